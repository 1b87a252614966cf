//! When this node can reach which others: what an operator has written down, and what follows from orbits.

use crate::config::MeshConfig;
use crate::node::Node;
use crate::services::blocking;
use karman_space::{
    Contact, ContactPlan, Geodetic, GroundLink, PlanError, Rate, Satellite, Span, Station, Time, Track,
    read_elements,
};
use karman_types::{NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;

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

/// The contacts that are open or to come, as an operator sees them.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ContactsAhead {
    /// When this was so, in milliseconds since 1970 by the clock of the node.
    pub now_ms: i64,
    /// Contacts that begin later are left out.
    pub until_ms: i64,
    /// Whether the node's configuration names contacts or orbits at all.
    pub planned: bool,
    /// The nodes in orbit.
    pub satellites: Vec<SatelliteNode>,
    /// What begins first, first; each direction counts.
    pub contacts: Vec<ContactStatus>,
    /// How many more there are until then.
    pub more: usize,
}

/// A node in orbit.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct SatelliteNode {
    /// The node.
    #[schema(value_type = String)]
    pub node: NodeId,
    /// The name of its satellite in the file of elements.
    pub name: String,
}

/// A contact as an operator sees it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ContactStatus {
    /// The node that sends.
    #[schema(value_type = String)]
    pub from: NodeId,
    /// The node that receives.
    #[schema(value_type = String)]
    pub to: NodeId,
    /// From when on, in milliseconds since 1970.
    pub start_ms: i64,
    /// Until when, in milliseconds since 1970.
    pub end_ms: i64,
    /// How fast it sends, as `2 Mbit/s`.
    #[schema(value_type = String)]
    pub rate: Rate,
}

impl ContactsAhead {
    fn of(plan: &ContactPlan, config: &MeshConfig, now: Time, ahead: Duration, most: usize) -> Self {
        let ms = |time: Time| time.unix_micros() / 1000;
        let until = now + ahead;
        let near = |contact: &&Contact| contact.end > now && contact.start < until;
        let mut near: Vec<&Contact> = plan.contacts().iter().filter(near).collect();
        near.sort_by_key(|contact| contact.start);
        let contacts = near.iter().take(most).map(|contact| ContactStatus {
            from: contact.from,
            to: contact.to,
            start_ms: ms(contact.start),
            end_ms: ms(contact.end),
            rate: contact.rate,
        });
        let satellites = config.orbits.iter().flat_map(|orbits| &orbits.satellites);
        let satellites = satellites.map(|(name, node)| SatelliteNode {
            node: *node,
            name: name.clone(),
        });
        Self {
            now_ms: ms(now),
            until_ms: ms(until),
            planned: config.plans_contacts(),
            satellites: satellites.collect(),
            contacts: contacts.collect(),
            more: near.len().saturating_sub(most),
        }
    }
}

impl Node {
    /// The contacts that are open now or begin within this time, by the plan that this node keeps to; `most` of them, those that
    /// begin first. It knows a day ahead at least.
    ///
    /// # Errors
    /// `internal` when the host cannot compute them.
    pub async fn contacts_ahead(&self, ahead: Duration, most: usize) -> Result<ContactsAhead, TaskError> {
        let bundles = self.bundles().clone();
        // Orbits take a while to compute.
        blocking(move || Ok(bundles.contacts_ahead(now(), ahead, most))).await
    }
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
    let known = read_elements(&read(path)?).map_err(|error| wrong(path, &error))?;
    let span = Span::new(from, until, Span::STEP).map_err(|error| wrong(path, &error))?;
    let link = GroundLink {
        up: orbits.up,
        down: orbits.down,
    };
    let mut contacts = Vec::new();
    for (name, node) in &orbits.satellites {
        let named = |satellite: &&Satellite| satellite.name() == name;
        let satellite = known
            .iter()
            .find(named)
            .ok_or_else(|| wrong(path, &format!("there is no satellite `{name}`")))?;
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
    computed: Option<Time>,
    changed: Option<SystemTime>,
}

impl Contacts {
    pub(crate) fn new(config: MeshConfig) -> Self {
        Self {
            config,
            plan: ContactPlan::default(),
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
        }
        &self.plan
    }

    /// What an operator sees of it.
    pub(crate) fn ahead(&mut self, now: Time, ahead: Duration, most: usize) -> ContactsAhead {
        self.plan(now);
        ContactsAhead::of(&self.plan, &self.config, now, ahead, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let satellites = [SatelliteNode {
            node: "00000000000000aa".parse().unwrap(),
            name: "ISS (ZARYA)".into(),
        }];
        let with_orbits = Contacts::new(config.clone()).ahead(now, hour, 10);
        assert_eq!(with_orbits.satellites, satellites);

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
