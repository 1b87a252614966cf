use crate::earth::Horizon;
use crate::{Contact, Ecef, Geodetic, PositionError, Rate, Satellite, Time};
use karman_types::NodeId;
use std::time::Duration;

/// How fast light is, in km/s.
const LIGHT_KM_S: f64 = 299_792.458;

/// The edge of a window is found to this much, and lies inside the window.
const EDGE: Duration = Duration::from_millis(100);

/// A stretch of time that is searched for contacts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    from: Time,
    until: Time,
    step: Duration,
}

/// A node on the ground.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub place: Geodetic,
    /// The elevation in degrees, from -90 to 90, from which it reaches a satellite: 25 is usual for broadband
    /// constellations, 5 to 10 for tracking stations.
    pub mask_deg: f64,
}

/// The radio between a satellite and the ground. A rate of 0 leaves that direction out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GroundLink {
    /// From the station to the satellite.
    pub up: Rate,
    /// From the satellite to the station.
    pub down: Rate,
}

/// The link between two satellites, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crosslink {
    /// How fast it sends.
    pub rate: Rate,
    /// How far the line of sight has to stay above the ground, in km: 80 clears the air that bends and dims a beam.
    pub grazing_km: f64,
    /// The longest distance that it bridges, in km.
    pub max_range_km: f64,
}

/// Why contacts cannot be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// A satellite has no position.
    #[error(transparent)]
    Position(#[from] PositionError),
    /// No time lies between start and end.
    #[error("the span ends at {until}, which is not later than its start {from}: exchange or correct them")]
    Empty {
        /// The start.
        from: Time,
        /// The end.
        until: Time,
    },
    /// The step is too small to be of use.
    #[error(
        "the step is {step:?}, but at least {:?} is needed: take {:?}",
        EDGE,
        Span::STEP
    )]
    Step {
        /// As given.
        step: Duration,
    },
    /// More samples than are kept.
    #[error(
        "the span has {samples} steps, but at most {} are possible: shorten it, or take longer steps",
        Span::MAX_SAMPLES
    )]
    TooMany {
        /// The span divided by the step.
        samples: u128,
    },
    /// A number that no link has.
    #[error("{field} is {value}: it must lie between {least} and {most}")]
    Number {
        /// Which one.
        field: &'static str,
        /// As given.
        value: f64,
        /// The least that is possible.
        least: f64,
        /// The most that is possible.
        most: f64,
    },
    /// Two tracks that were not sampled at the same instants.
    #[error("the two tracks have different spans: sample both over the same one")]
    Spans,
}

impl Span {
    /// The step to take unless there is a reason for another. A pass in low orbit lasts minutes; what is shorter than
    /// a step barely clears the mask and may be missed.
    pub const STEP: Duration = Duration::from_secs(10);

    /// The most samples of a track, 24 bytes each: a hundred days at [`Self::STEP`].
    pub const MAX_SAMPLES: u128 = 1_000_000;

    /// The time from one instant until another, sampled at each step.
    ///
    /// # Errors
    /// When it is empty, has more than [`Self::MAX_SAMPLES`] steps, or steps shorter than 0.1 s.
    pub fn new(from: Time, until: Time, step: Duration) -> Result<Self, WindowError> {
        if until <= from {
            return Err(WindowError::Empty { from, until });
        }
        if step < EDGE {
            return Err(WindowError::Step { step });
        }
        let samples = until.since(from).as_micros().div_ceil(step.as_micros());
        if samples > Self::MAX_SAMPLES {
            return Err(WindowError::TooMany { samples });
        }
        Ok(Self { from, until, step })
    }

    /// The instants at which it is sampled: each step, and the end.
    fn times(self) -> impl Iterator<Item = Time> {
        std::iter::successors(Some(self.from), move |&time| {
            (time < self.until).then(|| (time + self.step).min(self.until))
        })
    }
}

/// Where a node in orbit is during a span. Sample it once and ask for its contacts with everything it may meet.
#[derive(Clone, Debug)]
pub struct Track<'a> {
    node: NodeId,
    satellite: &'a Satellite,
    span: Span,
    samples: Vec<(Time, Ecef)>,
}

/// What a track is seen from.
enum Other<'a> {
    Ground(&'a Horizon),
    Orbit(&'a Track<'a>),
}

impl Other<'_> {
    fn position(&self, at: Time) -> Result<Ecef, PositionError> {
        match self {
            Self::Ground(horizon) => Ok(horizon.place),
            Self::Orbit(track) => track.satellite.position(at),
        }
    }

    /// The same, without computing it again.
    fn sample(&self, index: usize) -> Ecef {
        match self {
            Self::Ground(horizon) => horizon.place,
            Self::Orbit(track) => track.samples[index].1,
        }
    }
}

/// A stretch of time in which two see each other.
struct Window {
    start: Time,
    end: Time,
    /// How long light takes at the greatest distance within it.
    delay: Duration,
}

impl<'a> Track<'a> {
    /// Computes where the satellite, which is this node, is at each step of the span.
    ///
    /// # Errors
    /// When it has no position at one of them.
    pub fn new(node: NodeId, satellite: &'a Satellite, span: Span) -> Result<Self, PositionError> {
        let samples = span
            .times()
            .map(|at| Ok((at, satellite.position(at)?)))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            node,
            satellite,
            span,
            samples,
        })
    }

    /// The contacts with a ground station: while the satellite is above its mask. Each edge is found to 0.1 s and
    /// lies inside the window. The delay is that of the greatest distance within a contact, so that nothing arrives
    /// later than planned; in low orbit it varies by a few milliseconds.
    ///
    /// # Errors
    /// When the mask is no elevation, or the satellite has no position.
    pub fn ground_contacts(&self, station: &Station, link: GroundLink) -> Result<Vec<Contact>, WindowError> {
        check("the mask in degrees", station.mask_deg, -90.0, 90.0)?;
        let horizon = station.place.horizon();
        let windows = self.windows(&Other::Ground(&horizon), |satellite, _| {
            horizon.elevation_deg(satellite) >= station.mask_deg
        })?;
        Ok(contacts(&windows, station.node, self.node, link.up, link.down))
    }

    /// The contacts with another satellite: while the line of sight clears the Earth and is not too long. Edges and
    /// delay are as for the ground.
    ///
    /// # Errors
    /// When the other track has another span, a number of the link is impossible, or a satellite has no position.
    pub fn crosslink_contacts(
        &self,
        other: &Track<'_>,
        link: Crosslink,
    ) -> Result<Vec<Contact>, WindowError> {
        check("the grazing height in km", link.grazing_km, 0.0, 1e6)?;
        check("the longest range in km", link.max_range_km, 0.0, 1e6)?;
        if self.span != other.span {
            return Err(WindowError::Spans);
        }
        let windows = self.windows(&Other::Orbit(other), |here, there| {
            here.range_km(there) <= link.max_range_km && here.clearance_km(there) >= link.grazing_km
        })?;
        Ok(contacts(&windows, self.node, other.node, link.rate, link.rate))
    }

    fn windows(
        &self,
        other: &Other<'_>,
        visible: impl Fn(Ecef, Ecef) -> bool,
    ) -> Result<Vec<Window>, PositionError> {
        let at = |time| Ok::<_, PositionError>((self.satellite.position(time)?, other.position(time)?));
        // Halves the time between an instant without sight and one with it, and stays on the visible side.
        let edge = |mut hidden: Time, mut seen: Time| {
            while hidden.since(seen).max(seen.since(hidden)) > EDGE {
                let middle = Time::from_unix_micros(hidden.unix_micros().midpoint(seen.unix_micros()));
                let (here, there) = at(middle)?;
                if visible(here, there) {
                    seen = middle;
                } else {
                    hidden = middle;
                }
            }
            let (here, there) = at(seen)?;
            Ok::<_, PositionError>((seen, here.range_km(there)))
        };

        let mut windows = Vec::new();
        // Since when it is visible, and the greatest distance so far.
        let mut open = None;
        let mut before = self.span.from;
        for (index, &(time, here)) in self.samples.iter().enumerate() {
            let there = other.sample(index);
            let seen = visible(here, there);
            if seen {
                let (start, range_km) = open.map_or_else(|| edge(before, time), Ok)?;
                open = Some((start, here.range_km(there).max(range_km)));
            }
            if let Some((start, range_km)) = open
                && (!seen || time == self.span.until)
            {
                let (end, last_km) = if seen {
                    (time, range_km)
                } else {
                    edge(time, before)?
                };
                if start < end {
                    let micros = (range_km.max(last_km) / LIGHT_KM_S * 1e6).ceil();
                    let delay = Duration::from_micros(micros as u64);
                    windows.push(Window { start, end, delay });
                }
                open = None;
            }
            before = time;
        }
        Ok(windows)
    }
}

/// Both directions of each window, as far as they have a rate.
fn contacts(windows: &[Window], from: NodeId, to: NodeId, forth: Rate, back: Rate) -> Vec<Contact> {
    let directions = [(from, to, forth), (to, from, back)];
    let usable = directions.into_iter().filter(|(.., rate)| *rate > Rate(0));
    usable
        .flat_map(|(from, to, rate)| {
            windows.iter().map(move |window| Contact {
                from,
                to,
                start: window.start,
                end: window.end,
                rate,
                delay: window.delay,
            })
        })
        .collect()
}

fn check(field: &'static str, value: f64, least: f64, most: f64) -> Result<(), WindowError> {
    // Written so that NaN is refused.
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(WindowError::Number {
        field,
        value,
        least,
        most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_ends_with_the_span() {
        let from = Time::from_unix_ms(0);
        let times: Vec<_> = Span::new(from, Time::from_unix_ms(25_000), Span::STEP)
            .unwrap()
            .times()
            .collect();
        assert_eq!(times, [0, 10_000, 20_000, 25_000].map(Time::from_unix_ms));
    }
}
