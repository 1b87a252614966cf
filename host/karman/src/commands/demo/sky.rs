//! When the satellite passes. Its orbit is that of CBERS 2, an earth observation satellite, in June 2006, as the elements of the
//! published verification of SGP4 have it (Vallado and others, *Revisiting Spacetrack Report #3*, 2006). Each pass of the
//! demonstration is one over the dish, many times faster than it was; the hours between two of them are left out but for
//! some seconds. Who shows where the satellite is has the same elements, and the time that is played.

use super::continuum::Who;
use karman_mesh::wall_clock;
use karman_space::{Geodetic, GroundLink, Rate, Span, Station, Time, Track, read_elements};
use karman_types::{NodeId, TaskError};
use serde::Serialize;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

/// Its elements, as a file has them.
pub(super) const ELEMENTS: &str = include_str!("../../../../../plugins/flood/cbers2.tle");
/// The dish stands on Norris dam.
const DISH: (f64, f64, f64) = (36.224, -84.092, 0.315);
/// The elevation in degrees from which it sees the satellite.
const MASK: f64 = 10.0;
/// How far ahead passes are looked for.
const AHEAD: Duration = Duration::from_secs(4 * 86_400);
/// Shorter ones are left out: they are too low.
const LEAST: Duration = Duration::from_secs(9 * 60);
/// How fast the dish sends to it, and it to the dish.
const UP: Rate = Rate(2_000_000);
const DOWN: Rate = Rate(8_000_000);

/// How the time of the passes goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How many times faster a pass is.
    pub(super) faster: u32,
    /// What is left of the time between two passes.
    pub(super) between: Duration,
}

/// In the story.
pub(super) const STORY: Pace = Pace {
    faster: 80,
    between: Duration::from_secs(4),
};
/// After it, where there is time to look.
pub(super) const AFTER: Pace = Pace {
    faster: 20,
    between: Duration::from_secs(20),
};

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
}

/// The satellite over the dish.
pub(super) struct Sky {
    nodes: (NodeId, NodeId),
    /// When it passed, and for how long.
    windows: Vec<(Time, Duration)>,
}

fn text<S: serde::Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

impl Sky {
    /// The passes of some days.
    ///
    /// # Errors
    /// What is wrong with the elements.
    pub(super) fn over(sat: NodeId, dish: NodeId) -> Result<Self, TaskError> {
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
        let link = GroundLink { up: UP, down: DOWN };
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
        match windows.is_empty() {
            true => Err(wrong(&"it does not pass over the dish")),
            false => Ok(Self {
                nodes: (sat, dish),
                windows,
            }),
        }
    }

    /// This many of them, or those that are left, from the one of this number on, counted from 0; the first one at this time.
    pub(super) fn passes(&self, from: usize, count: usize, first: Time, pace: Pace) -> Vec<Pass> {
        let mut start = first;
        let of = |(was, lasted): &(Time, Duration)| {
            let end = start + *lasted / pace.faster;
            let pass = Pass {
                was: *was,
                lasted: *lasted,
                start,
                end,
                nodes: self.nodes,
            };
            start = end + pace.between;
            pass
        };
        self.windows.iter().skip(from).take(count).map(of).collect()
    }
}

/// What a node needs in its node.toml to know where the satellite is: its elements, and the file with the time that is played.
pub(super) fn orbits(sat: NodeId, dish: NodeId, elements: &Path, replay: &Path) -> String {
    let name = ELEMENTS.lines().next().unwrap_or_default().trim();
    let (latitude, longitude, height_km) = DISH;
    let height = 1000.0 * height_km;
    format!(
        "[mesh.orbits]\nelements = {elements:?}\nreplay = {replay:?}\nup = \"{UP}\"\ndown = \"{DOWN}\"\n\
         satellites = {{ \"{name}\" = \"{sat}\" }}\n[[mesh.orbits.stations]]\nnode = \"{dish}\"\n\
         latitude = {latitude}\nlongitude = {longitude}\nheight = {height}\nmask = {MASK}\n"
    )
}

impl Pass {
    /// It comes so much later.
    pub(super) fn put_off(&mut self, by: Duration) {
        (self.start, self.end) = (self.start + by, self.end + by);
    }

    /// The contact, as nodes read it.
    pub(super) fn as_contacts(&self) -> String {
        let Self {
            start,
            end,
            nodes: (sat, dish),
            ..
        } = *self;
        let way = |from: NodeId, to: NodeId, rate: Rate| {
            format!(
                "[[contact]]\nfrom = \"{from}\"\nto = \"{to}\"\nstart = \"{start}\"\nend = \"{end}\"\nrate = \"{rate}\"\n\
                 delay = \"4 ms\"\n"
            )
        };
        way(sat, dish, DOWN) + &way(dish, sat, UP)
    }

    /// Its beginning and its end, as a replay has them.
    pub(super) fn as_moments(&self) -> String {
        let moment = |at: Time, was: Time| format!("[[moment]]\nat = \"{at}\"\nwas = \"{was}\"\n");
        moment(self.start, self.was) + &moment(self.end, self.was + self.lasted)
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
            self.end.since(self.start).as_secs_f64()
        )
    }
}

/// The time of this machine's clock.
pub(super) fn now() -> Time {
    let since = wall_clock();
    Time::from_unix_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_node::NodeConfig;
    use karman_space::{ContactPlan, Replay};

    fn nodes() -> [NodeId; 2] {
        ["sat", "dish"].map(|name| NodeId::of_key(name.as_bytes()))
    }

    #[test]
    fn passes_are_those_of_the_orbit_in_their_order() {
        let ([sat, dish], first) = (nodes(), now());
        let sky = Sky::over(sat, dish).unwrap();
        let passes = sky.passes(0, 5, first, STORY);
        assert_eq!((passes.len(), passes[0].start), (5, first));
        for pair in passes.windows(2) {
            assert_eq!(pair[1].start, pair[0].end + STORY.between);
            // It comes again after a revolution of 100 minutes at the soonest.
            assert!(pair[1].was.since(pair[0].was) > Duration::from_secs(90 * 60));
        }
        // 780 km up, no pass over 10 degrees takes longer than a quarter of an hour.
        assert!(passes.iter().all(|pass| pass.lasted < Duration::from_secs(900)));
        let plan: String = passes.iter().map(Pass::as_contacts).collect();
        let plan = ContactPlan::from_toml(&plan).unwrap();
        assert_eq!(plan.contacts().len(), 10);
        assert!(plan.open(sat, dish, first + Duration::from_secs(1)).is_some());
        // Those that come are the same ones, and in the end there are none.
        let later = sky.passes(3, 9, first, AFTER);
        assert_eq!(later[0].was, passes[3].was);
        assert!(sky.passes(sky.windows.len(), 1, first, AFTER).is_empty());
    }

    #[test]
    fn what_is_played_is_when_it_passed() {
        let ([sat, dish], first) = (nodes(), now());
        let passes = Sky::over(sat, dish).unwrap().passes(0, 3, first, STORY);
        let moments: String = passes.iter().map(Pass::as_moments).collect();
        let replay = Replay::from_toml(&moments).unwrap();
        for pass in &passes {
            assert_eq!(replay.was(pass.start), Some(pass.was));
            assert_eq!(replay.was(pass.end), Some(pass.was + pass.lasted));
        }
        assert_eq!(replay.was(first - Duration::from_secs(1)), None);
    }

    #[test]
    fn the_orbit_is_read_as_a_node_reads_it() {
        let [sat, dish] = nodes();
        let text = orbits(sat, dish, Path::new("cbers2.tle"), Path::new("replay.toml"));
        let config: NodeConfig = karman_types::from_toml(&text).unwrap();
        let orbits = config.mesh.orbits.unwrap();
        let known = read_elements(ELEMENTS).unwrap();
        assert_eq!(orbits.satellites.get(known[0].name()), Some(&sat));
        let [station] = &orbits.stations[..] else {
            panic!("{orbits:?}")
        };
        assert_eq!((station.node, station.latitude), (dish, DISH.0));
        assert_eq!((station.mask, orbits.up, orbits.down), (MASK, UP, DOWN));
    }
}
