//! What comes, for people who look: contacts, and where satellites go meanwhile.

use crate::contacts::{GroundStation, now};
use crate::node::Node;
use crate::services::blocking;
use karman_space::{Contact, ContactPlan, Rate, Satellite, Time};
use karman_types::{NodeId, TaskError};
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// Places of one round of a satellite.
const PLACES: u32 = 60;
/// Satellites whose places are computed at most: each takes a fraction of a millisecond.
const MOST_SATELLITES: usize = 32;

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

impl ContactsAhead {
    /// Those of a plan.
    pub(crate) fn of(plan: &ContactPlan, now: Time, ahead: Duration, most: usize) -> Self {
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

    /// Says where the nodes are.
    pub(crate) fn place(&mut self, in_orbit: &[(NodeId, Satellite)], stations: &[GroundStation], now: Time) {
        let satellites = in_orbit.iter().take(MOST_SATELLITES);
        let satellites = satellites.map(|(node, satellite)| SatelliteNode {
            node: *node,
            name: satellite.name().to_owned(),
            track: track(satellite, now),
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
