//! Models split inside their layers: nodes without memory for a layer compute pieces of it.
//!
//! The node with the model holds the activations and the weights. It sends each of the others pieces of a layer as calls of the task
//! `split-worker`, which every node can run, also one that interprets, and puts the answers together. Only whole numbers take part, so
//! that the result is the same whoever computed which piece. What comes after the layers in whole numbers runs here.
//!
//! | file | what |
//! |---|---|
//! | `plan` | asks the nodes how fast they are, and divides the layers by that and by memory |
//! | `crew` | the nodes that run a model so: every request in pieces, past nodes that do not answer |

mod crew;
mod plan;

pub(super) use crew::Crew;

use super::orders::Order;
use super::running::Running;
use crate::node::Node;
use karman_types::{ByteSize, NodeId, TaskError, Tier};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The task that computes a piece of a layer.
const TASK: &str = "split-worker";

/// A node computes one piece at a time for this one, whichever model it is of.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<NodeId, Arc<Semaphore>>>);

impl Turns {
    fn of(&self, node: NodeId) -> Arc<Semaphore> {
        let mut turns = self.0.lock();
        turns
            .entry(node)
            .or_insert_with(|| Arc::new(Semaphore::new(1)))
            .clone()
    }
}

/// An operator's order to split the layers of a model over nodes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct InsideOrder {
    /// The nodes, as for deployments; this one is among them only where it is named.
    pub on: Vec<String>,
    /// The memory that a piece may take on a node, with its message and answer, besides the plugin's own: at most and by default
    /// [`InsideOrder::MOST_MEMORY`].
    pub memory: Option<ByteSize>,
    /// The same for the nodes that a selector names.
    pub memory_of: Vec<(String, ByteSize)>,
    /// Whether tasks that load the model get it so from now on.
    pub apply: bool,
}

impl InsideOrder {
    /// What the limits of `split-worker` leave for a piece.
    pub const MOST_MEMORY: ByteSize = ByteSize::mib(24);
}

/// A model's layers, divided among nodes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct InsidePlan {
    /// The model's name.
    pub model: String,
    /// Who takes part.
    pub nodes: Vec<InsideNode>,
    /// The layers in whole numbers.
    pub layers: Vec<InsideLayer>,
    /// The kinds of operators that come after them and run on the node with the model.
    pub rest: Vec<String>,
    /// Bytes that one node alone would need for its largest layer, counted like [`InsideNode::peak`].
    pub alone: u64,
    /// The most bytes of activations that the node with the model holds at once.
    pub held: u64,
    /// Predicted seconds of one item, without the rest of the model.
    pub seconds: f64,
    /// Whether it is in use.
    pub applied: bool,
}

/// What a node has to do for one item.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct InsideNode {
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub tier: Tier,
    /// Bytes that a piece may take there.
    pub memory: u64,
    /// The most bytes that one does take: its message, what is read from it, and its answer.
    pub peak: u64,
    /// Bytes that it is sent, at most.
    pub sent: u64,
    /// Bytes that it sends back.
    pub received: u64,
    /// Calls.
    pub calls: u64,
    /// Multiplications.
    pub operations: u64,
    /// Multiplications each second, measured.
    pub operations_per_second: f64,
    /// The linear memory of the plugin when that was measured, its own and that of the piece.
    pub linear_memory: u64,
}

/// How a layer is divided.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct InsideLayer {
    /// What it computes, and its output: `convolution 3x3, 32x112x112`.
    pub layer: String,
    /// `rows` or `channels`.
    pub by: String,
    /// The number of pieces on each node.
    pub pieces: Vec<usize>,
    /// Predicted seconds.
    pub seconds: f64,
}

impl Node {
    /// Divides the layers of a quantised model among nodes within their memory and, where the order says so, runs it like that from then
    /// on.
    ///
    /// # Errors
    /// `unavailable` when no layer is in whole numbers, or a node is not in reach or lacks the plugin; `limit` when the memory
    /// of no node suffices for a layer.
    pub async fn plan_inside(&self, name: &str, order: &InsideOrder) -> Result<InsidePlan, TaskError> {
        let crew = crew(self, name, order).await?;
        let answer = crew.answer(order.apply);
        if order.apply {
            self.apply(name, Order::Inside(order.clone()), Running::Crew(crew))
                .await?;
        }
        Ok(answer)
    }
}

/// Those who are to run a model so.
pub(super) async fn crew(node: &Node, name: &str, order: &InsideOrder) -> Result<Arc<Crew>, TaskError> {
    plan::plan(node, name, order).await.map(Arc::new)
}
