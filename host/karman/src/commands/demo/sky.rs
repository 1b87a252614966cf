//! When the satellite passes. Its orbit is that of CBERS 2, an earth observation satellite, in June 2006, as the elements of the
//! published verification of SGP4 have it (Vallado and others, *Revisiting Spacetrack Report #3*, 2006). Each pass of the
//! demonstration is one over the dish, so many times faster than it was; the hours between two of them are left out but for
//! some seconds.

use super::continuum::Who;
use karman_space::{Geodetic, GroundLink, Rate, Span, Station, Time, Track, read_elements};
use karman_types::{NodeId, TaskError};
use serde::Serialize;
use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ELEMENTS: &str = include_str!("../../../../../plugins/flood/cbers2.tle");
/// The dish stands on Norris dam.
const DISH: (f64, f64, f64) = (36.224, -84.092, 0.315);
/// The elevation in degrees from which it sees the satellite.
const MASK: f64 = 10.0;
/// How far ahead passes are looked for.
const AHEAD: Duration = Duration::from_secs(4 * 86_400);
/// Shorter ones are left out: they are too low.
const LEAST: Duration = Duration::from_secs(9 * 60);
/// How many times faster a pass goes by.
pub(super) const FASTER: u32 = 80;
/// What is left of the time between two passes.
pub(super) const BETWEEN: Duration = Duration::from_secs(4);

/// A pass over the dish.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Pass {
    /// When it was.
    #[serde(serialize_with = "text")]
    pub(super) was: Time,
    /// How long it took.
    pub(super) lasted: Duration,
    /// When it is now.
    #[serde(skip)]
    pub(super) start: Time,
    /// And when it is over.
    #[serde(skip)]
    pub(super) end: Time,
    #[serde(skip)]
    nodes: (NodeId, NodeId),
    #[serde(skip)]
    rates: (Rate, Rate),
}

fn text<S: serde::Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// The next passes of a satellite over the dish, the first one at this time.
///
/// # Errors
/// What is wrong with the elements.
pub(super) fn passes(count: usize, sat: NodeId, dish: NodeId, first: Time) -> Result<Vec<Pass>, TaskError> {
    let wrong = |why: &dyn Display| TaskError::internal(format!("the orbit: {why}"));
    let known = read_elements(ELEMENTS).map_err(|error| wrong(&error))?;
    let satellite = known.first().ok_or_else(|| wrong(&"there is none"))?;
    let from = satellite.epoch();
    let span = Span::new(from, from + AHEAD, Span::STEP).map_err(|error| wrong(&error))?;
    let track = Track::new(sat, satellite, span).map_err(|error| wrong(&error))?;
    let (latitude, longitude, height) = DISH;
    let station = Station {
        node: dish,
        place: Geodetic::new(latitude, longitude, height).map_err(|error| wrong(&error))?,
        mask_deg: MASK,
    };
    let link = GroundLink {
        up: Rate(2_000_000),
        down: Rate(8_000_000),
    };
    let contacts = track
        .ground_contacts(&station, link)
        .map_err(|error| wrong(&error))?;
    let mut windows: Vec<(Time, Duration)> = contacts
        .iter()
        .filter(|contact| contact.from == sat)
        .map(|contact| (contact.start, contact.end.since(contact.start)))
        .filter(|(_, lasted)| *lasted >= LEAST)
        .collect();
    windows.sort_by_key(|(was, _)| *was);
    let mut start = first;
    let of = |(was, lasted): (Time, Duration)| {
        let end = start + lasted / FASTER;
        let pass = Pass {
            was,
            lasted,
            start,
            end,
            nodes: (sat, dish),
            rates: (link.down, link.up),
        };
        start = end + BETWEEN;
        pass
    };
    Ok(windows.into_iter().take(count).map(of).collect())
}

impl Pass {
    /// The contact, as nodes read it.
    pub(super) fn as_contacts(&self) -> String {
        let ((sat, dish), (down, up)) = (self.nodes, self.rates);
        let Self { start, end, .. } = self;
        let way = |from: NodeId, to: NodeId, rate: Rate| {
            format!(
                "[[contact]]\nfrom = \"{from}\"\nto = \"{to}\"\nstart = \"{start}\"\nend = \"{end}\"\nrate = \"{rate}\"\n\
                 delay = \"4 ms\"\n"
            )
        };
        way(sat, dish, down) + &way(dish, sat, up)
    }

    /// In words: when it was, and how long it lasts now.
    pub(super) fn words(&self) -> String {
        let was = self.was.to_string();
        let (date, time) = was.split_once('T').unwrap_or((&was, ""));
        format!(
            "{date} {} UTC over the {}, {} min {:02} s in {:.1} s",
            time.get(..8).unwrap_or(time),
            Who::Dish,
            self.lasted.as_secs() / 60,
            self.lasted.as_secs() % 60,
            (self.lasted / FASTER).as_secs_f64()
        )
    }
}

/// The time of this machine's clock.
pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_those_of_the_orbit_in_their_order() {
        let [sat, dish] = ["sat", "dish"].map(|name| NodeId::of_key(name.as_bytes()));
        let first = now();
        let passes = passes(5, sat, dish, first).unwrap();
        assert_eq!((passes.len(), passes[0].start), (5, first));
        for pair in passes.windows(2) {
            assert_eq!(pair[1].start, pair[0].end + BETWEEN);
            // It comes again after a revolution of 100 minutes at the soonest.
            assert!(pair[1].was.since(pair[0].was) > Duration::from_secs(90 * 60));
        }
        // 780 km up, no pass over 10 degrees takes longer than a quarter of an hour.
        assert!(passes.iter().all(|pass| pass.lasted < Duration::from_secs(900)));
        let plan: String = passes.iter().map(Pass::as_contacts).collect();
        let plan = karman_space::ContactPlan::from_toml(&plan).unwrap();
        assert_eq!(plan.contacts().len(), 10);
        assert!(plan.open(sat, dish, first + Duration::from_secs(1)).is_some());
    }
}
