//! When this node can reach which others: what an operator has written down, and what follows from orbits.

use crate::ahead::Outlook;
use crate::config::{GroundStation, MeshConfig, Orbits};
use karman_mesh::wall_clock;
use karman_space::{
    Contact, ContactPlan, Geodetic, GroundLink, PlanError, Replay, Satellite, Span, Station, Time, Track,
    read_elements,
};
use karman_types::{NodeId, TaskError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How far ahead contacts are computed.
const AHEAD: Duration = Duration::from_secs(2 * 86_400);
/// How long before files are read again that could not be.
const AGAIN: Duration = Duration::from_secs(30);

/// The contacts of a configuration that touch this stretch of time: those of the file `contacts` and, where no other time is played,
/// those of `[mesh.orbits]`. Reads both files.
///
/// # Errors
/// `unavailable` where it names neither, `invalid` with the file and what is wrong with it.
pub fn contact_plan(config: &MeshConfig, from: Time, ahead: Duration) -> Result<ContactPlan, TaskError> {
    if !config.plans_contacts() {
        return Err(TaskError::unavailable("node.toml names no contacts")
            .with_hint("set `contacts = \"contacts.toml\"` under [mesh], or write [mesh.orbits]"));
    }
    let until = from + ahead;
    let mut contacts = contacts(config, from, until)?;
    contacts.retain(|contact| contact.start < until);
    plan_of(contacts)
}

/// The contacts after this time: all that are written down, for what is sent now may need one in a month, and those that are computed until
/// then.
fn contacts(config: &MeshConfig, from: Time, until: Time) -> Result<Vec<Contact>, TaskError> {
    let mut contacts: Vec<Contact> = Vec::new();
    if let Some(path) = &config.contacts {
        let plan = ContactPlan::from_toml(&read(path)?).map_err(|error| wrong(path, &error))?;
        contacts.extend(plan.contacts());
    }
    if let Some(orbits) = &config.orbits
        && orbits.replay.is_none()
    {
        let computed = computed(orbits, from, until)?.into_iter();
        contacts.extend(computed.filter(|contact| contact.start < until));
    }
    contacts.retain(|contact| contact.end > from);
    Ok(contacts)
}

fn plan_of(contacts: Vec<Contact>) -> Result<ContactPlan, TaskError> {
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

/// The time that is played.
fn played_from(path: &Path) -> Result<Replay, TaskError> {
    let replay = Replay::from_toml(&read(path)?);
    replay.map_err(|error| wrong(path, &error).with_field("orbits.replay"))
}

fn read(path: &Path) -> Result<String, TaskError> {
    std::fs::read_to_string(path).map_err(|error| wrong(path, &error))
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> TaskError {
    TaskError::invalid(format!("{}: {why}", path.display())).with_field("contacts")
}

/// The time of this machine's clock.
pub(crate) fn now() -> Time {
    let since = wall_clock();
    Time::from_unix_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The same in milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    now().unix_ms()
}

/// The plan of a running node, brought up to date when its file changes and when time has passed.
pub(crate) struct Contacts {
    config: MeshConfig,
    plan: Arc<ContactPlan>,
    in_orbit: Arc<[(NodeId, Satellite)]>,
    replay: Option<Replay>,
    /// When it was brought up to date last, and when and why that failed last, where it did since.
    computed: Option<Time>,
    failed: Option<(Time, TaskError)>,
    /// When the plan's file, that of the elements and that of the replay were written.
    changed: [Option<SystemTime>; 3],
    /// How often it was brought up to date.
    version: u64,
}

impl Contacts {
    pub(crate) fn new(config: MeshConfig) -> Self {
        Self {
            config,
            plan: Arc::default(),
            in_orbit: Arc::default(),
            replay: None,
            computed: None,
            failed: None,
            changed: [None; 3],
            version: 0,
        }
    }

    /// The plan from now on. Where a file cannot be read, the plan before stays.
    pub(crate) fn plan(&mut self, now: Time) -> &Arc<ContactPlan> {
        let changed = self.files_changed();
        if changed != self.changed || self.is_due(now) {
            self.changed = changed;
            self.bring_up_to_date(now);
        }
        &self.plan
    }

    /// Why the plan stays as it was, if it does.
    pub(crate) fn trouble(&self) -> Option<TaskError> {
        self.failed.as_ref().map(|(_, error)| error.clone())
    }

    fn files_changed(&self) -> [Option<SystemTime>; 3] {
        let modified = |path: &PathBuf| std::fs::metadata(path).and_then(|file| file.modified()).ok();
        let orbits = self.config.orbits.as_ref();
        let elements = orbits.map(|orbits| &orbits.elements);
        let replay = orbits.and_then(|orbits| orbits.replay.as_ref());
        [self.config.contacts.as_ref(), elements, replay].map(|file| file.and_then(modified))
    }

    /// Whether it is to be brought up to date though no file has changed: time has passed, or the clock was set back.
    fn is_due(&self, now: Time) -> bool {
        let is_past = |then: Time, time: Duration| now < then || now.since(then) > time;
        match &self.failed {
            Some((failed, _)) => is_past(*failed, AGAIN),
            None => self.computed.is_none_or(|computed| is_past(computed, AHEAD / 2)),
        }
    }

    fn bring_up_to_date(&mut self, now: Time) {
        self.version += 1;
        match contacts(&self.config, now, now + AHEAD).and_then(plan_of) {
            Ok(plan) => {
                self.plan = Arc::new(plan);
                (self.computed, self.failed) = (Some(now), None);
            }
            Err(error) => {
                tracing::error!(%error, "the contact plan stays as it was");
                self.failed = Some((now, error));
            }
        }
        let orbits = self.config.orbits.as_ref();
        // What is wrong with them was told just now.
        if let Some(Ok(satellites)) = orbits.map(in_orbit) {
            self.in_orbit = satellites.into();
        }
        let replay = orbits.and_then(|orbits| orbits.replay.as_ref());
        match replay.map(|file| played_from(file)) {
            Some(Ok(replay)) => self.replay = Some(replay),
            Some(Err(error)) => {
                tracing::error!(%error, "the time that is played stays as it was");
                self.failed = Some((now, error));
            }
            None => {}
        }
    }

    /// What people may see of it now, to be computed where nobody waits for the plan.
    pub(crate) fn outlook(&mut self, now: Time) -> Outlook {
        let plan = self.plan(now).clone();
        let orbits = self.config.orbits.as_ref();
        let there = match &self.replay {
            Some(replay) => replay.was(now),
            None => orbits.filter(|orbits| orbits.replay.is_none()).map(|_| now),
        };
        Outlook {
            version: self.version,
            planned: self.config.plans_contacts(),
            now,
            there,
            plan,
            in_orbit: self.in_orbit.clone(),
            stations: orbits.map_or_else(Vec::new, |orbits| orbits.stations.clone()),
        }
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
    fn a_node_knows_what_is_written_down_however_far_ahead() {
        let folder = tempfile::tempdir().unwrap();
        let written = "[[contact]]\nfrom = \"00000000000000bb\"\nto = \"00000000000000cc\"\n\
            start = \"2008-10-10T00:00:00Z\"\nend = \"2008-10-10T01:00:00Z\"\nrate = \"1 Mbit/s\"\n";
        let config = config(folder.path(), written);
        let now: Time = "2008-09-20T12:00:00Z".parse().unwrap();
        let [satellite, station, other] =
            ["00000000000000aa", "00000000000000bb", "00000000000000cc"].map(|id| id.parse().unwrap());
        let plan = Contacts::new(config.clone()).plan(now).clone();
        assert_eq!(plan.contacts_between(station, other).len(), 1);
        let passes = plan.contacts_between(station, satellite);
        assert!(!passes.is_empty() && passes.iter().all(|pass| pass.start < now + AHEAD));
        // Who asks for two days gets two days.
        let shown = contact_plan(&config, now, AHEAD).unwrap();
        assert!(shown.contacts_between(station, other).is_empty());
        assert_eq!(shown.contacts_between(station, satellite), passes);
    }

    #[test]
    fn a_plan_is_computed_anew_when_the_clock_is_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let [station, satellite] = ["00000000000000bb", "00000000000000aa"].map(|id| id.parse().unwrap());
        let mut contacts = Contacts::new(config(folder.path(), ""));
        let now: Time = "2008-09-20T12:00:00Z".parse().unwrap();
        contacts.plan(now + 10 * AHEAD);
        let passes = contacts.plan(now).contacts_between(station, satellite).to_vec();
        assert!(
            passes.iter().any(|pass| pass.start < now + AHEAD / 4),
            "{passes:?}"
        );
        // A day later it is computed further.
        let later = now + AHEAD * 3 / 4;
        let passes = contacts.plan(later).contacts_between(station, satellite).to_vec();
        assert!(passes.iter().any(|pass| pass.start > now + AHEAD), "{passes:?}");
    }

    #[test]
    fn what_could_not_be_read_is_tried_again_soon_and_elements_when_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "");
        let elements = config.orbits.as_ref().unwrap().elements.clone();
        let modified = SystemTime::now();
        let write = |text: &str, seconds: u64| {
            std::fs::write(&elements, text).unwrap();
            let file = std::fs::File::options().write(true).open(&elements).unwrap();
            file.set_modified(modified + Duration::from_secs(seconds))
                .unwrap();
        };
        let mut contacts = Contacts::new(config);
        let now: Time = "2008-09-20T12:00:00Z".parse().unwrap();
        let is_planned = |contacts: &mut Contacts, now| !contacts.plan(now).contacts().is_empty();
        write("nothing of use", 0);
        assert!(!is_planned(&mut contacts, now));
        // As if it had been a disk that refused: the file is as it was.
        write(ISS, 0);
        assert!(!is_planned(&mut contacts, now + AGAIN / 2));
        assert!(is_planned(&mut contacts, now + 2 * AGAIN));

        let before = contacts.plan(now + 2 * AGAIN).contacts().to_vec();
        // Half a round further.
        write(&ISS.replace("325.0288", "145.0288"), 1);
        let after = contacts.plan(now + 2 * AGAIN).contacts().to_vec();
        assert!(!after.is_empty() && after != before);
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
        let with_orbits = Contacts::new(config.clone()).outlook(now).ahead(hour, 10);
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
        let seen = contacts.outlook(now).ahead(2 * hour, 10);
        let starts: Vec<i64> = seen
            .contacts
            .iter()
            .map(|contact| (contact.start_ms - seen.now_ms) / 60_000)
            .collect();
        assert_eq!(
            (starts, seen.more, seen.planned, seen.until_ms - seen.now_ms),
            (vec![-10, 60], 0, true, 7_200_000)
        );
        let first = contacts.outlook(now).ahead(12 * hour, 1);
        assert_eq!((first.contacts.len(), first.more), (1, 2));
        assert_eq!(first.contacts, seen.contacts[..1]);
        let none = Contacts::new(MeshConfig::default()).outlook(now).ahead(hour, 10);
        assert!(!none.planned && none.contacts.is_empty());
    }

    #[test]
    fn a_time_that_is_played_moves_satellites_and_makes_no_contacts() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), "");
        let (now, hour): (Time, _) = ("2026-11-21T10:00:00Z".parse().unwrap(), Duration::from_secs(3600));
        let was: Time = "2008-09-20T12:30:00Z".parse().unwrap();
        let seen = |contacts: &mut Contacts, now: Time| contacts.outlook(now).ahead(hour, 10);
        let here = |config: &MeshConfig, now: Time| seen(&mut Contacts::new(config.clone()), now);
        let then = here(&config, was).satellites.remove(0);
        assert!(!then.track.is_empty());
        // Its elements say nothing of a time that far from theirs, until that is played.
        assert!(here(&config, now).satellites[0].track.is_empty());
        let file = folder.path().join("replay.toml");
        std::fs::write(&file, "").unwrap();
        config.orbits.as_mut().unwrap().replay = Some(file.clone());
        let mut contacts = Contacts::new(config.clone());
        assert!(seen(&mut contacts, now).satellites[0].track.is_empty());
        let moments = "[[moment]]\nat = \"2026-11-21T09:59:00Z\"\nwas = \"2008-09-20T12:00:00Z\"\n\
            [[moment]]\nat = \"2026-11-21T10:01:00Z\"\nwas = \"2008-09-20T13:00:00Z\"\n";
        std::fs::write(&file, moments).unwrap();
        let written = std::fs::File::options().write(true).open(&file).unwrap();
        written
            .set_modified(SystemTime::now() + Duration::from_secs(1))
            .unwrap();
        let played = seen(&mut contacts, now);
        assert_eq!(played.satellites[0], then);
        // The passes of that day are none of this one.
        assert!(
            contact_plan(&config, was, 24 * hour)
                .unwrap()
                .contacts()
                .is_empty()
        );
        std::fs::write(&file, moments.replace("13:00:00", "11:00:00")).unwrap();
        let error = played_from(&file).unwrap_err();
        assert!(
            error.message.contains("moment 2") && error.field.as_deref() == Some("orbits.replay"),
            "{error:?}"
        );
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
