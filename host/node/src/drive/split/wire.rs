//! What nodes say to each other about a model that they run together.

use bytes::Bytes;
use karman_engine::capability::nn::Tensors;
use karman_mesh::{pack_tensors, unpack_tensors};
use karman_types::{Digest, NodeId, TaskError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most stages after the first.
const MOST_STATIONS: usize = 7;
/// The most nodes that a stage may be tried on.
const MOST_NODES: usize = 4;

/// A model, and for each of its layers the stage that runs it. Every node reads the same layers from the same file, so this says
/// all of a cut.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(crate) struct Cut {
    /// The model's file.
    pub(crate) model: Digest,
    /// Stages count from 0; none is lower than that of a layer it needs.
    pub(crate) stage_of_layer: Vec<u8>,
}

/// Asks a node to make a stage ready: to fetch the model where it does not have it, and to load the part that it runs.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Prepare {
    pub(super) cut: Cut,
    pub(super) stage: u8,
    /// Allows to read the model's file.
    #[serde(with = "serde_bytes")]
    pub(super) ticket: Vec<u8>,
}

/// One request on its way through the stages.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Journey {
    pub(super) cut: Cut,
    /// The stage that is next.
    pub(super) stage: u8,
    /// Where those after it run, in order.
    pub(super) stations: Vec<Station>,
    /// How far a number may come out from what was sent, as a share of the largest magnitude in its tensor.
    pub(super) max_error: f64,
    /// How fast the link back to who asks is believed to be, in megabits per second: results come over it as soon as they can without loss.
    pub(super) back_mbit_s: f64,
}

impl Journey {
    /// Who asks decides how often a stage may be tried; within bounds.
    pub(super) fn check(&self) -> Result<(), TaskError> {
        let within = |field, value: usize, most| match value > most {
            true => Err(TaskError::limit(format!("{value} {field}; at most {most}")).with_field(field)),
            false => Ok(()),
        };
        within("stations", self.stations.len(), MOST_STATIONS)?;
        let most = self.stations.iter().map(|station| station.nodes.len()).max();
        within("nodes of a station", most.unwrap_or_default(), MOST_NODES)
    }
}

/// Where a stage runs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Station {
    pub(super) stage: u8,
    /// The node that should, then those that may when it does not answer.
    pub(super) nodes: Vec<NodeId>,
    /// How long each of them may answer nobody, in milliseconds, until it is passed over.
    pub(super) patience_ms: u64,
    /// How fast the link to the first of them is believed to be, in megabits per second.
    pub(super) rate_mbit_s: f64,
    /// The same of the link back.
    pub(super) back_mbit_s: f64,
    /// After so many milliseconds without a result who holds the data begins with the rest itself; nothing: it waits.
    pub(super) late_ms: Option<u64>,
    /// The same after so many milliseconds without a word that the first of the data have come, where the node says so.
    pub(super) silent_ms: Option<u64>,
}

/// What a node did for one request, or that it did not.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Leg {
    /// The stage.
    pub stage: u8,
    /// The node.
    #[schema(value_type = String)]
    pub node: NodeId,
    /// Microseconds that the part of the model ran.
    pub compute_us: u64,
    /// How many requests it ran at once, where this one was not the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// The early exit that answered, 1 the shallowest, where it was not all of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u32>,
    /// Microseconds that the data were under way to this node, and the answer back.
    pub transfer_us: u64,
    /// Bytes that it was sent: on the wire where they came from another node.
    pub bytes_in: u64,
    /// Bytes that it answered with: on the wire where they went to another node.
    pub bytes_out: u64,
    /// How these bytes were encoded; nothing where they came as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Why another one ran the stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Whether it was only late: another one had the result first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overtaken: bool,
}

impl Leg {
    /// A node that has done nothing for a stage yet.
    pub(super) const fn new(stage: u8, node: NodeId) -> Self {
        Self {
            stage,
            node,
            compute_us: 0,
            batch: None,
            exit: None,
            transfer_us: 0,
            bytes_in: 0,
            bytes_out: 0,
            encoding: None,
            failed: None,
            overtaken: false,
        }
    }
}

pub(super) fn pack(head: &impl Serialize, tensors: &Tensors) -> Result<Bytes, TaskError> {
    let body = pack_tensors(head, tensors);
    let body = body.map_err(|error| TaskError::limit(error.to_string()).with_field("tensors"))?;
    Ok(body.into_bytes())
}

pub(super) fn unpack<H: DeserializeOwned>(body: &Bytes) -> Result<(H, Tensors), TaskError> {
    unpack_tensors(body).map_err(|error| TaskError::invalid(error.to_string()).with_field("tensors"))
}
