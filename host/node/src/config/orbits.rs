use karman_space::Rate;
use karman_types::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// A file by which a time that was is played again, for rehearsals; read again when it changes. The satellites are where they were
    /// then, and contacts are those of the file `contacts` only. Default: none, the satellites are where they are now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<PathBuf>,
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
