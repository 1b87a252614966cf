//! What comes, for people who look: contacts, and where satellites go meanwhile. It is computed from a copy of what the node works with,
//! and once for all who look within two seconds.

use crate::config::GroundStation;
use crate::contacts::now;
use crate::node::Node;
use crate::services::blocking;
use karman_space::{Contact, ContactPlan, Rate, Satellite, Time};
use karman_types::{NodeId, TaskError};
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// Places of one round of a satellite.
const PLACES: u32 = 60;
/// Satellites whose places are computed at most: each takes a fraction of a millisecond.
const MOST_SATELLITES: usize = 32;
/// For so long what was computed is shown again, unless the plan has changed.
const FRESH: Duration = Duration::from_secs(2);

/// The contacts that are open or to come, as an operator sees them, and the nodes that they are of, where orbits are known.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ContactsAhead {
    /// When this was so, in milliseconds since 1970 by the clock of the node.
    pub now_ms: i64,
    /// Contacts that begin later are left out.
    pub until_ms: i64,
    /// Whether the node's configuration names contacts or orbits at all.
    pub planned: bool,
    /// The nodes in orbit, 32 at most.
    pub satellites: Vec<SatelliteNode>,
    /// The nodes on the ground that reach them.
    pub stations: Vec<StationNode>,
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
    /// What it is above, from now on for one round, in equal steps; empty where its elements say nothing of now.
    pub track: Vec<Place>,
}

/// A node on the ground.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct StationNode {
    /// The node.
    #[schema(value_type = String)]
    pub node: NodeId,
    /// Where it stands.
    pub place: Place,
}

/// A place on the Earth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct Place {
    /// Degrees, north is positive.
    pub latitude: f64,
    /// Degrees from -180 to 180, east is positive.
    pub longitude: f64,
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

/// What there is to be seen of a plan at one moment.
pub(crate) struct Outlook {
    /// Another one has another plan.
    pub(crate) version: u64,
    pub(crate) planned: bool,
    pub(crate) now: Time,
    /// The time that it is for the satellites, if that is known.
    pub(crate) there: Option<Time>,
    pub(crate) plan: Arc<ContactPlan>,
    pub(crate) in_orbit: Arc<[(NodeId, Satellite)]>,
    pub(crate) stations: Vec<GroundStation>,
}

impl Outlook {
    /// What an operator sees of it.
    pub(crate) fn ahead(&self, ahead: Duration, most: usize) -> ContactsAhead {
        let mut seen = ContactsAhead::of(&self.plan, self.now, ahead, most);
        seen.planned = self.planned;
        seen.place(&self.in_orbit, &self.stations, self.there);
        seen
    }
}

/// What was seen last.
#[derive(Default)]
pub(crate) struct LastSeen(Mutex<Option<Look>>);

/// What was asked for, and what was seen.
struct Look {
    version: u64,
    at: Time,
    asked: (Duration, usize),
    seen: Arc<ContactsAhead>,
}

impl LastSeen {
    /// What an operator sees of this outlook: what was seen before where that is fresh. Nobody waits while it is computed.
    pub(crate) fn look(&self, outlook: &Outlook, ahead: Duration, most: usize) -> Arc<ContactsAhead> {
        let (version, now, asked) = (outlook.version, outlook.now, (ahead, most));
        // A clock that was set back makes nothing fresh for longer.
        let is_fresh = |look: &&Look| {
            (look.version, look.asked) == (version, asked) && look.at <= now && now.since(look.at) < FRESH
        };
        let before = self
            .0
            .lock()
            .as_ref()
            .filter(is_fresh)
            .map(|look| look.seen.clone());
        before.unwrap_or_else(|| {
            let seen = Arc::new(outlook.ahead(ahead, most));
            *self.0.lock() = Some(Look {
                version,
                at: now,
                asked,
                seen: seen.clone(),
            });
            seen
        })
    }
}

impl ContactsAhead {
    /// Those of a plan.
    fn of(plan: &ContactPlan, now: Time, ahead: Duration, most: usize) -> Self {
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
        Self {
            now_ms: ms(now),
            until_ms: ms(until),
            planned: true,
            satellites: Vec::new(),
            stations: Vec::new(),
            contacts: contacts.collect(),
            more: near.len().saturating_sub(most),
        }
    }

    /// Says where the nodes are, and where the satellites go from this time on, if it is known.
    fn place(&mut self, in_orbit: &[(NodeId, Satellite)], stations: &[GroundStation], there: Option<Time>) {
        let satellites = in_orbit.iter().take(MOST_SATELLITES);
        let satellites = satellites.map(|(node, satellite)| SatelliteNode {
            node: *node,
            name: satellite.name().to_owned(),
            track: there.map_or_else(Vec::new, |there| track(satellite, there)),
        });
        self.satellites = satellites.collect();
        let stations = stations.iter().map(|station| StationNode {
            node: station.node,
            place: Place {
                latitude: station.latitude,
                longitude: half_turned(station.longitude),
            },
        });
        self.stations = stations.collect();
    }
}

/// What a satellite is above, for one round.
fn track(satellite: &Satellite, now: Time) -> Vec<Place> {
    let step = satellite.period() / PLACES;
    let places = (0..=PLACES).map_while(|at| {
        let below = satellite.position(now + step * at).ok()?.geodetic();
        Some(Place {
            latitude: below.latitude_deg(),
            longitude: half_turned(below.longitude_deg()),
        })
    });
    places.collect()
}

/// A longitude between -180 and 180 degrees.
fn half_turned(longitude: f64) -> f64 {
    if longitude > 180.0 {
        longitude - 360.0
    } else {
        longitude
    }
}

impl Node {
    /// The contacts that are open now or begin within this time, by the plan that this node keeps to; `most` of them, those that
    /// begin first. It knows a day ahead at least. The same question within two seconds gets the same answer.
    ///
    /// # Errors
    /// `internal` when the host cannot compute them.
    pub async fn contacts_ahead(
        &self,
        ahead: Duration,
        most: usize,
    ) -> Result<Arc<ContactsAhead>, TaskError> {
        let bundles = self.bundles().clone();
        // Orbits take a while to compute.
        blocking(move || Ok(bundles.contacts_ahead(now(), ahead, most))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlook(version: u64, seconds: i64) -> Outlook {
        Outlook {
            version,
            planned: true,
            now: Time::from_unix_ms(1000 * seconds),
            there: None,
            plan: Arc::default(),
            in_orbit: Arc::default(),
            stations: Vec::new(),
        }
    }

    #[test]
    fn what_was_seen_is_shown_again_while_it_is_fresh_and_of_the_same_plan() {
        let last = LastSeen::default();
        let hour = Duration::from_secs(3600);
        let first = last.look(&outlook(1, 100), hour, 5);
        assert_eq!(first.now_ms, 100_000);
        let same = last.look(&outlook(1, 101), hour, 5);
        assert!(Arc::ptr_eq(&first, &same));
        // What nobody has computed: later, a new plan, before a clock was set back, more of it.
        for (version, seconds, most) in [(1, 103, 5), (2, 103, 5), (2, 50, 5), (2, 50, 6)] {
            let seen = last.look(&outlook(version, seconds), hour, most);
            assert_eq!(seen.now_ms, 1000 * seconds);
            assert!(!Arc::ptr_eq(&first, &seen));
        }
    }
}
