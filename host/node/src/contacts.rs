//! When this node can reach which others: what an operator has written down, and what follows from orbits.

use crate::ahead::ContactsAhead;
use crate::config::MeshConfig;
use karman_space::{
    Contact, ContactPlan, Geodetic, GroundLink, PlanError, Rate, Satellite, Span, Station, Time, Track,
    read_elements,
};
use karman_types::{NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How far ahead contacts are computed.
const AHEAD: Duration = Duration::from_secs(2 * 86_400);

/// Orbits that contacts are computed from: `[mesh.orbits]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Orbits {
    /// A file of two-line element sets with names.
    pub elements: PathBuf,
    /// The nodes in orbit, by the names of their satellites in that file.
    pub satellites: BTreeMap<String, NodeId>,
    /// The nodes on the ground that reach them.
    pub stations: Vec<GroundStation>,
    /// How fast a station sends to a satellite.
    pub up: Rate,
    /// How fast a satellite sends to a station.
    pub down: Rate,
}

/// A node on the ground.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GroundStation {
    /// The node.
    pub node: NodeId,
    /// Degrees, north is positive.
    pub latitude: f64,
    /// Degrees, east is positive.
    pub longitude: f64,
    /// Metres above the ellipsoid. Default 0.
    #[serde(default)]
    pub height: f64,
    /// The elevation in degrees from which it reaches a satellite. Default 10.
    #[serde(default = "mask")]
    pub mask: f64,
}

const fn mask() -> f64 {
    10.0
}

/// The contacts of a configuration that touch this stretch of time: those of the file `contacts` and those of `[mesh.orbits]`.
/// Reads both files.
///
/// # Errors
/// `invalid` with the file and what is wrong with it.
pub fn contact_plan(config: &MeshConfig, from: Time, ahead: Duration) -> Result<ContactPlan, TaskError> {
    let until = from + ahead;
    let mut contacts: Vec<Contact> = Vec::new();
    if let Some(path) = &config.contacts {
        let plan = ContactPlan::from_toml(&read(path)?).map_err(|error| wrong(path, &error))?;
        contacts.extend(plan.contacts());
    }
    if let Some(orbits) = &config.orbits {
        contacts.extend(computed(orbits, from, until)?);
    }
    contacts.retain(|contact| contact.end > from && contact.start < until);
    ContactPlan::new(contacts)
        .map_err(|error: PlanError| TaskError::invalid(error.to_string()).with_field("contacts"))
}

fn computed(orbits: &Orbits, from: Time, until: Time) -> Result<Vec<Contact>, TaskError> {
    let path = &orbits.elements;
    let span = Span::new(from, until, Span::STEP).map_err(|error| wrong(path, &error))?;
    let link = GroundLink {
        up: orbits.up,
        down: orbits.down,
    };
    let mut contacts = Vec::new();
    for (node, satellite) in &in_orbit(orbits)? {
        let track = Track::new(*node, satellite, span).map_err(|error| wrong(path, &error))?;
        for station in &orbits.stations {
            let station = on_the_ground(station)?;
            contacts.extend(
                track
                    .ground_contacts(&station, link)
                    .map_err(|error| wrong(path, &error))?,
            );
        }
    }
    Ok(contacts)
}

/// The nodes in orbit, with the orbits of their satellites.
fn in_orbit(orbits: &Orbits) -> Result<Vec<(NodeId, Satellite)>, TaskError> {
    let path = &orbits.elements;
    let known = read_elements(&read(path)?).map_err(|error| wrong(path, &error))?;
    let find = |(name, node): (&String, &NodeId)| {
        let satellite = known.iter().find(|satellite| satellite.name() == name);
        let found = satellite.map(|satellite| (*node, satellite.clone()));
        found.ok_or_else(|| wrong(path, &format!("there is no satellite `{name}`")))
    };
    orbits.satellites.iter().map(find).collect()
}

fn on_the_ground(station: &GroundStation) -> Result<Station, TaskError> {
    let place = Geodetic::new(station.latitude, station.longitude, station.height / 1000.0);
    Ok(Station {
        node: station.node,
        place: place.map_err(|error| TaskError::invalid(error.to_string()).with_field("stations"))?,
        mask_deg: station.mask,
    })
}

fn read(path: &Path) -> Result<String, TaskError> {
    std::fs::read_to_string(path).map_err(|error| wrong(path, &error))
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> TaskError {
    TaskError::invalid(format!("{}: {why}", path.display())).with_field("contacts")
}

/// The time of this machine's clock.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_unix_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The plan of a running node, brought up to date when its file changes and when time has passed.
pub(crate) struct Contacts {
    config: MeshConfig,
    plan: ContactPlan,
    in_orbit: Vec<(NodeId, Satellite)>,
    computed: Option<Time>,
    changed: Option<SystemTime>,
}

impl Contacts {
    pub(crate) fn new(config: MeshConfig) -> Self {
        Self {
            config,
            plan: ContactPlan::default(),
            in_orbit: Vec::new(),
            computed: None,
            changed: None,
        }
    }

    /// The plan from now on. Where a file cannot be read, the plan before stays.
    pub(crate) fn plan(&mut self, now: Time) -> &ContactPlan {
        let modified = |path: &PathBuf| std::fs::metadata(path).and_then(|file| file.modified()).ok();
        let changed = self.config.contacts.as_ref().and_then(modified);
        let old = self
            .computed
            .is_none_or(|computed| now.since(computed) > AHEAD / 2);
        if old || changed != self.changed {
            (self.computed, self.changed) = (Some(now), changed);
            match contact_plan(&self.config, now, AHEAD) {
                Ok(plan) => self.plan = plan,
                Err(error) => tracing::error!(%error, "the contact plan stays as it was"),
            }
            // What is wrong with them was told just now.
            if let Some(Ok(satellites)) = self.config.orbits.as_ref().map(in_orbit) {
                self.in_orbit = satellites;
            }
        }
        &self.plan
    }

    /// What an operator sees of it.
    pub(crate) fn ahead(&mut self, now: Time, ahead: Duration, most: usize) -> ContactsAhead {
        self.plan(now);
        let mut seen = ContactsAhead::of(&self.plan, now, ahead, most);
        seen.planned = self.config.plans_contacts();
        if let Some(orbits) = &self.config.orbits {
            seen.place(&self.in_orbit, &orbits.stations, now);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::Place;

    const ISS: &str = "ISS (ZARYA)\n\
        1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927\n\
        2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537\n";

    fn config(folder: &Path, plan: &str) -> MeshConfig {
        let (elements, contacts) = (folder.join("iss.tle"), folder.join("contacts.toml"));
        std::fs::write(&elements, ISS).unwrap();
        std::fs::write(&contacts, plan).unwrap();
        let text = format!(
            "contacts = {contacts:?}\n[orbits]\nelements = {elements:?}\nup = \"1 Mbit/s\"\ndown = \"8 Mbit/s\"\n\
             satellites = {{ \"ISS (ZARYA)\" = \"00000000000000aa\" }}\n\
             [[orbits.stations]]\nnode = \"00000000000000bb\"\nlatitude = 47.07\nlongitude = 15.44\nheight = 350\n"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn written_and_computed_contacts_make_one_plan() {
        let folder = tempfile::tempdir().unwrap();
        let written = "[[contact]]\nfrom = \"00000000000000bb\"\nto = \"00000000000000cc\"\n\
            start = \"2008-09-21T00:00:00Z\"\nend = \"2008-09-21T01:00:00Z\"\nrate = \"1 Mbit/s\"\n";
        let config = config(folder.path(), written);
        let from: Time = "2008-09-20T12:00:00Z".parse().unwrap();
        let plan = contact_plan(&config, from, Duration::from_secs(86_400)).unwrap();
        let [satellite, station, other] =
            ["00000000000000aa", "00000000000000bb", "00000000000000cc"].map(|id| id.parse().unwrap());
        assert_eq!(plan.contacts_between(station, other).len(), 1);
        let passes = plan.contacts_between(station, satellite);
        // It passes over Graz six times a day or so, for at most ten minutes.
        assert!((4..9).contains(&passes.len()), "{passes:?}");
        assert!(
            passes
                .iter()
                .all(|pass| pass.end.since(pass.start) < Duration::from_secs(600))
        );
        assert_eq!(passes.len(), plan.contacts_between(satellite, station).len());
        // What is over is left out.
        let late = contact_plan(
            &config,
            from + Duration::from_secs(86_400),
            Duration::from_secs(3600),
        )
        .unwrap();
        assert!(late.contacts_between(station, other).is_empty());
    }

    #[test]
    fn an_operator_sees_what_is_open_and_what_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let contact = |to: &str, start: &str, end: &str| {
            format!(
                "[[contact]]\nfrom = \"00000000000000bb\"\nto = \"{to}\"\nstart = \"2008-09-20T{start}Z\"\n\
                 end = \"2008-09-20T{end}Z\"\nrate = \"1 Mbit/s\"\n"
            )
        };
        let plan = [
            contact("00000000000000cc", "13:00:00", "13:10:00"),
            contact("00000000000000cc", "11:50:00", "12:05:00"),
            contact("00000000000000dd", "11:00:00", "11:30:00"),
            contact("00000000000000dd", "23:00:00", "23:30:00"),
        ];
        let mut config = config(folder.path(), &plan.concat());
        let now: Time = "2008-09-20T12:00:00Z".parse().unwrap();
        let hour = Duration::from_secs(3600);
        let with_orbits = Contacts::new(config.clone()).ahead(now, hour, 10);
        let [above] = &with_orbits.satellites[..] else {
            panic!("{with_orbits:?}")
        };
        assert_eq!(
            (above.node.to_string(), &above.name[..]),
            ("00000000000000aa".to_owned(), "ISS (ZARYA)")
        );
        // Its orbit is inclined by 51.6 degrees: in one round it comes as far north as south, and not farther.
        let north = |most: f64, place: &Place| most.max(place.latitude);
        let south = |least: f64, place: &Place| least.min(place.latitude);
        let (north, south) = (
            above.track.iter().fold(0.0, north),
            above.track.iter().fold(0.0, south),
        );
        assert!(
            (50.0..53.0).contains(&north) && (-53.0..-50.0).contains(&south),
            "{north} {south}"
        );
        assert_eq!(with_orbits.stations[0].place.latitude, 47.07);

        config.orbits = None;
        let mut contacts = Contacts::new(config);
        let seen = contacts.ahead(now, 2 * hour, 10);
        let starts: Vec<i64> = seen
            .contacts
            .iter()
            .map(|contact| (contact.start_ms - seen.now_ms) / 60_000)
            .collect();
        assert_eq!(
            (starts, seen.more, seen.planned, seen.until_ms - seen.now_ms),
            (vec![-10, 60], 0, true, 7_200_000)
        );
        let first = contacts.ahead(now, 12 * hour, 1);
        assert_eq!((first.contacts.len(), first.more), (1, 2));
        assert_eq!(first.contacts, seen.contacts[..1]);
        let none = Contacts::new(MeshConfig::default()).ahead(now, hour, 10);
        assert!(!none.planned && none.contacts.is_empty());
    }

    #[test]
    fn a_plan_is_read_again_when_it_changes_and_stays_when_it_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let contact = |to: &str| {
            format!(
                "[[contact]]\nfrom = \"00000000000000bb\"\nto = \"{to}\"\nstart = \"2008-09-21T00:00:00Z\"\n\
                 end = \"2008-09-21T01:00:00Z\"\nrate = \"1 Mbit/s\"\n"
            )
        };
        let mut config = config(folder.path(), &contact("00000000000000cc"));
        config.orbits = None;
        let path = config.contacts.clone().unwrap();
        let mut contacts = Contacts::new(config);
        let now: Time = "2008-09-20T12:00:00Z".parse().unwrap();
        assert_eq!(
            contacts.plan(now).contacts()[0].to.to_string(),
            "00000000000000cc"
        );
        let write = |text: String, later: u64| {
            std::fs::write(&path, text).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(later))
                .unwrap();
        };
        write(contact("00000000000000dd"), 1);
        assert_eq!(
            contacts.plan(now).contacts()[0].to.to_string(),
            "00000000000000dd"
        );
        write("[[contact]]\n".into(), 2);
        assert_eq!(
            contacts.plan(now).contacts()[0].to.to_string(),
            "00000000000000dd"
        );
    }
}
