use crate::{Ecef, Time};
use std::time::Duration;

/// The least distance from the centre of the Earth at which anything orbits, in km: the radius at the poles.
const GROUND_KM: f64 = 6356.752;

/// A satellite whose orbit is given by a two-line element set, propagated by SGP4 (Vallado, Crawford, Hujsak, Kelso,
/// "Revisiting Spacetrack Report #3", 2006).
///
/// An element set is good to about a kilometre at its epoch and loses one to three more each day in low orbit; a
/// manoeuvre makes it wrong at once.
#[derive(Clone, Debug)]
pub struct Satellite {
    name: String,
    catalog_number: u64,
    epoch: Time,
    period: Duration,
    constants: sgp4::Constants,
}

/// An element set that cannot be used. Lines count from 1.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ElementsError {
    /// A text that is too long to be read.
    #[error(
        "the element sets have {bytes} bytes, but at most {} are read: split them",
        Satellite::MAX_TEXT
    )]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// A line that is not the one that has to stand there.
    #[error(
        "line {line} is not line {expected} of an element set: that has 69 ASCII characters, the first is `{expected}`, \
         the last a digit; take it as it was published"
    )]
    Line {
        /// Where it is, or where it is missing.
        line: usize,
        /// 1 or 2.
        expected: char,
    },
    /// A field that cannot be read, or a wrong checksum.
    #[error("the element set at line {line}: {reason}; take it as it was published")]
    Field {
        /// Where its line 1 is.
        line: usize,
        /// Which characters of which of its two lines.
        reason: String,
    },
    /// Numbers that are no orbit around the Earth.
    #[error("the element set at line {line} is no orbit: {reason}")]
    Orbit {
        /// Where its line 1 is.
        line: usize,
        /// What is impossible about it.
        reason: String,
    },
}

/// An instant for which a satellite has no position.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PositionError {
    /// Too far from the epoch for any accuracy.
    #[error(
        "the elements of {name} are of {epoch}, more than {} days from {at}: get newer ones",
        Satellite::MAX_AGE.as_secs() / 86_400
    )]
    Stale {
        /// The satellite.
        name: String,
        /// When its elements hold.
        epoch: Time,
        /// When its position was asked for.
        at: Time,
    },
    /// The orbit does not last until then.
    #[error("{name} has no orbit at {at}: {reason}; leave it out, or get newer elements")]
    Decayed {
        /// The satellite.
        name: String,
        /// When its position was asked for.
        at: Time,
        /// How the propagation ended.
        reason: String,
    },
}

impl Satellite {
    /// How far from the epoch a position is computed at all, before and after. What is left of the accuracy after
    /// weeks is the shape of the orbit, not the place on it.
    pub const MAX_AGE: Duration = Duration::from_secs(366 * 86_400);

    /// The most bytes of element sets that are read: a hundred thousand satellites.
    pub const MAX_TEXT: usize = 16 << 20;

    /// A satellite from the two lines of its element set.
    ///
    /// # Errors
    /// As [`read_elements`], with lines counted as 1 and 2.
    pub fn from_lines(name: &str, line1: &str, line2: &str) -> Result<Self, ElementsError> {
        Self::from_numbered_lines(name, (1, line1), (2, line2))
    }

    fn from_numbered_lines(
        name: &str,
        line1: (usize, &str),
        line2: (usize, &str),
    ) -> Result<Self, ElementsError> {
        check_line(line1, '1')?;
        check_line(line2, '2')?;
        let line = line1.0;
        let elements =
            sgp4::Elements::from_tle(None, line1.1.as_bytes(), line2.1.as_bytes()).map_err(|error| {
                ElementsError::Field {
                    line,
                    reason: error.to_string(),
                }
            })?;
        let orbit = |reason: String| ElementsError::Orbit { line, reason };
        // A number may be written as `inf` or `nan`; the Moon makes 0.04 orbits a day, the surface would be 17.
        for (field, value, least, most) in [
            ("the mean motion (orbits a day)", elements.mean_motion, 0.03, 18.0),
            ("the eccentricity", elements.eccentricity, 0.0, 0.999),
            ("the inclination (degrees)", elements.inclination, 0.0, 180.0),
            (
                "the right ascension (degrees)",
                elements.right_ascension,
                0.0,
                360.0,
            ),
            (
                "the argument of perigee (degrees)",
                elements.argument_of_perigee,
                0.0,
                360.0,
            ),
            ("the mean anomaly (degrees)", elements.mean_anomaly, 0.0, 360.0),
            ("the drag term (1/Earth radii)", elements.drag_term, -10.0, 10.0),
        ] {
            if !(least..=most).contains(&value) {
                return Err(orbit(format!(
                    "{field} is {value}, not between {least} and {most}"
                )));
            }
        }
        // Element sets are fitted with the constants of WGS 72, so they are propagated with them (Vallado 2006).
        let constants = sgp4::Constants::from_elements_afspc_compatibility_mode(&elements)
            .map_err(|error| orbit(error.to_string()))?;
        // Rounds to a microsecond what would be cut off.
        let half = chrono::TimeDelta::nanoseconds(500);
        let name = match name.trim() {
            "" => elements.norad_id.to_string(),
            name => name.into(),
        };
        Ok(Self {
            name,
            catalog_number: elements.norad_id,
            epoch: Time::from_unix_micros((elements.datetime + half).and_utc().timestamp_micros()),
            period: Duration::from_secs_f64(86_400.0 / elements.mean_motion),
            constants,
        })
    }

    /// Its name; its catalogue number where it has none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number in the catalogue of the US Space Force ("NORAD id").
    pub const fn catalog_number(&self) -> u64 {
        self.catalog_number
    }

    /// The instant for which the elements were determined.
    pub const fn epoch(&self) -> Time {
        self.epoch
    }

    /// How long one orbit takes at the epoch.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Where it is, relative to the turning Earth. Costs a few microseconds.
    ///
    /// # Errors
    /// [`PositionError::Stale`] more than [`Self::MAX_AGE`] from the epoch, [`PositionError::Decayed`] when SGP4
    /// finds no orbit or one below the ground.
    pub fn position(&self, at: Time) -> Result<Ecef, PositionError> {
        Ok(Ecef::from_teme(self.teme(at)?, at))
    }

    /// In km in the frame of SGP4: true equator, mean equinox of date.
    fn teme(&self, at: Time) -> Result<[f64; 3], PositionError> {
        if at.since(self.epoch).max(self.epoch.since(at)) > Self::MAX_AGE {
            return Err(PositionError::Stale {
                name: self.name.clone(),
                epoch: self.epoch,
                at,
            });
        }
        let decayed = |reason: String| PositionError::Decayed {
            name: self.name.clone(),
            at,
            reason,
        };
        let minutes = (at.unix_micros() - self.epoch.unix_micros()) as f64 / 60e6;
        let [x, y, z] = self
            .constants
            .propagate_afspc_compatibility_mode(sgp4::MinutesSinceEpoch(minutes))
            .map_err(|error| decayed(error.to_string()))?
            .position;
        let radius = Ecef { x, y, z }.norm();
        if radius.is_nan() || radius < GROUND_KM {
            return Err(decayed(format!(
                "it would be {radius:.0} km from the Earth's centre"
            )));
        }
        Ok([x, y, z])
    }
}

/// Reads two- and three-line element sets, also mixed; empty lines are skipped. A third line goes first and holds the
/// name, of at most 24 characters, with or without `0 ` before it.
///
/// # Errors
/// At the first element set that is not one, with the number of the line. Lines are checked for length, character set
/// and checksum before they are decoded.
pub fn read_elements(text: &str) -> Result<Vec<Satellite>, ElementsError> {
    if text.len() > Satellite::MAX_TEXT {
        return Err(ElementsError::TooLong { bytes: text.len() });
    }
    let last = text.lines().count();
    let mut lines = (1..)
        .zip(text.lines().map(str::trim_end))
        .filter(|(_, line)| !line.is_empty());
    let mut satellites = Vec::new();
    while let Some(mut line1) = lines.next() {
        let mut name = "";
        // What is longer than a name is meant to be line 1, and is told so.
        if line1.1.chars().count() <= 26 {
            name = line1.1.strip_prefix("0 ").unwrap_or(line1.1);
            line1 = lines.next().unwrap_or((last + 1, ""));
        }
        let line2 = lines.next().unwrap_or((last + 1, ""));
        satellites.push(Satellite::from_numbered_lines(name, line1, line2)?);
    }
    Ok(satellites)
}

/// The parser of `sgp4` takes the bytes for text and the last one for a digit without a look, so both are checked
/// here.
fn check_line((line, text): (usize, &str), expected: char) -> Result<(), ElementsError> {
    let checksum = text.bytes().last().unwrap_or_default();
    if text.len() == 69 && text.is_ascii() && text.starts_with(expected) && checksum.is_ascii_digit() {
        Ok(())
    } else {
        Err(ElementsError::Line { line, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The International Space Station of 20 September 2008, an example met everywhere (Wikipedia, "Two-line element
    /// set").
    const ISS: &str = "ISS (ZARYA)
1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927
2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537
";

    /// Vanguard 1 and what SGP4 must say of it: minutes after the epoch, position in TEME in km (Vallado 2006,
    /// verification set SGP4-VER.TLE with its output tcppver.out).
    const VANGUARD: [&str; 2] = [
        "1 00005U 58002B   00179.78495062  .00000023  00000-0  28098-4 0  4753",
        "2 00005  34.2682 348.7242 1859667 331.7664  19.3264 10.82419157413667",
    ];
    const VERIFIED: [(u64, [f64; 3]); 2] = [
        (0, [7_022.465_292_66, -1_400.082_967_55, 0.039_951_55]),
        (360, [-7_154.031_202_02, -3_783.176_825_04, -3_536.194_122_94]),
    ];

    /// The line with the checksum that it should have: the sum of its digits, where `-` counts as 1.
    fn checked(line: &str) -> String {
        let digits = line[..68]
            .chars()
            .map(|c| if c == '-' { 1 } else { c.to_digit(10).unwrap_or(0) });
        format!("{}{}", &line[..68], digits.sum::<u32>() % 10)
    }

    #[test]
    fn positions_are_those_of_the_verification_set() {
        let vanguard = Satellite::from_lines("", VANGUARD[0], VANGUARD[1]).unwrap();
        assert_eq!((vanguard.name(), vanguard.catalog_number()), ("5", 5));
        for (minutes, expected) in VERIFIED {
            let at = vanguard.epoch() + Duration::from_secs(60 * minutes);
            let teme = vanguard.teme(at).unwrap();
            for (is, should) in teme.into_iter().zip(expected) {
                // A microsecond, to which the epoch is kept, is 7 mm.
                assert!((is - should).abs() < 2e-5, "{minutes} min: {teme:?}");
            }
        }
    }

    #[test]
    fn the_station_goes_round_in_91_minutes_between_330_and_370_km() {
        let iss = &read_elements(ISS).unwrap()[0];
        assert_eq!(iss.name(), "ISS (ZARYA)");
        assert_eq!(iss.epoch().to_string(), "2008-09-20T12:25:40.104192Z");
        assert!((iss.period().as_secs_f64() / 60.0 - 91.6).abs() < 0.05);
        for minute in 0..24 * 60 {
            let at = iss.epoch() + Duration::from_secs(60 * minute);
            let place = iss.position(at).unwrap().geodetic();
            assert!((330.0..375.0).contains(&place.height_km()), "{place:?}");
            assert!(place.latitude_deg().abs() < 52.0, "{place:?}");
        }
    }

    #[test]
    fn sets_of_two_and_three_lines_mix() {
        let text = format!("\n0 {ISS}\r\n{}\n{}\n\n{ISS}", VANGUARD[0], VANGUARD[1]);
        let names: Vec<_> = read_elements(&text)
            .unwrap()
            .into_iter()
            .map(|s| s.name)
            .collect();
        assert_eq!(names, ["ISS (ZARYA)", "5", "ISS (ZARYA)"]);
        assert!(read_elements("").unwrap().is_empty());
    }

    #[test]
    fn the_line_that_is_wrong_is_named() {
        let error = |text: &str| read_elements(text).unwrap_err();
        let line = |line, expected| ElementsError::Line { line, expected };
        let lines: Vec<_> = ISS.lines().collect();
        assert_eq!(error(lines[0]), line(2, '1'));
        assert_eq!(error(&lines[..2].join("\n")), line(3, '2'));
        assert_eq!(error(&ISS.replace("2927", "292")), line(2, '1'));
        assert_eq!(error(&ISS.replace("2927", "292é")), line(2, '1'));
        assert_eq!(error(&ISS.replace("563537", "56353x")), line(3, '2'));
        let checksum = error(&format!("{ISS}{}", ISS.replace("51.6416", "51.6417")));
        assert!(
            matches!(checksum, ElementsError::Field { line: 5, .. }),
            "{checksum}"
        );
        let infinite = checked(&lines[2].replace("15.72125391", "        inf"));
        let infinite = error(&[lines[1], &infinite].join("\n"));
        assert_eq!(
            infinite.to_string(),
            "the element set at line 1 is no orbit: the mean motion (orbits a day) is inf, not between 0.03 and 18"
        );
        assert_eq!(
            error(&" ".repeat(Satellite::MAX_TEXT + 1)),
            ElementsError::TooLong {
                bytes: Satellite::MAX_TEXT + 1
            }
        );
    }

    #[test]
    fn old_elements_give_no_position() {
        let iss = &read_elements(ISS).unwrap()[0];
        let error = iss.position("2026-11-21T10:00:00Z".parse().unwrap()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("more than 366 days from 2026-11-21T10:00:00Z"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}", tail in "[ -~]{68}[0-9]") {
            let _ = read_elements(&text);
            let _ = read_elements(&format!("1{}\n2{}", &tail[1..], &tail[1..]));
        }

        /// One character of a good set is changed and the checksum made to fit.
        #[test]
        fn no_element_panics(at in 0usize..136, with in "[ -~]", hours in 0u64..10_000) {
            let mut lines: Vec<String> = ISS.lines().skip(1).map(str::to_owned).collect();
            let line = &mut lines[at / 68];
            line.replace_range(at % 68..at % 68 + 1, &with);
            *line = checked(line);
            if let Ok(satellite) = Satellite::from_lines("", &lines[0], &lines[1]) {
                let _ = satellite.position(satellite.epoch() + Duration::from_secs(3600 * hours));
            }
        }
    }
}
