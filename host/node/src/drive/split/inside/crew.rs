//! The nodes that run a model split inside its layers.

use super::{InsideLayer, InsideNode, InsidePlan, TASK};
use crate::drive::cbor::write;
use crate::drive::mesh_of;
use crate::drive::split::ASKED_LAST;
use crate::drive::split::wire::Leg;
use crate::node::{Inner, Node};
use crate::services::{Loaded, Meanwhile, blocking, shutting_down};
use bytes::Bytes;
use futures::future::try_join_all;
use karman_engine::capability::nn::Tensors;
use karman_infer::integer::{Integer, IntegerError};
use karman_mesh::{Ask, CallHead, RemoteReport};
use karman_sched::partition::inside_layer::{Form, SharePlan, cost_of_share};
use karman_tensor::quantised::{Layer, Operator, Part};
use karman_tensor::split::ShareTask;
use karman_types::{Digest, ErrorKind, NodeId, TaskError, TaskRequest, Tier};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long a node gets for a piece: more than the plugin's own limit.
const PATIENCE: Duration = Duration::from_secs(15);
const CONTENT_TYPE: &str = "application/cbor";

/// The nodes that run a model, and what each of them does.
pub(in crate::drive::split) struct Crew {
    pub(super) node: Weak<Inner>,
    pub(super) model: karman_store::Model,
    pub(super) integer: Arc<Integer>,
    /// What comes after the layers in whole numbers.
    pub(super) rest: Loaded,
    pub(super) shares: SharePlan,
    pub(super) members: Vec<Member>,
}

/// A node that computes pieces.
pub(super) struct Member {
    pub(super) id: NodeId,
    pub(super) tier: Tier,
    /// Bytes that a piece may take there.
    pub(super) memory: u64,
    pub(super) operations_per_second: f64,
    pub(super) linear_memory: u64,
    pub(super) turn: Arc<Semaphore>,
    /// When it last did not answer.
    pub(super) lost: Mutex<Option<Instant>>,
}

/// A piece of a layer, by its place in the plan.
#[derive(Clone, Copy)]
struct Piece {
    layer: usize,
    member: usize,
    at: usize,
}

/// What a layer takes and gives, of one item.
type Activation = Arc<Vec<i8>>;

/// What the members did for a request.
type Did = Mutex<Vec<Leg>>;

impl Crew {
    /// Runs the model on these inputs: the results, and who did what.
    pub(in crate::drive::split) async fn run(
        self: &Arc<Self>,
        inputs: Tensors,
    ) -> Result<(Tensors, Vec<Leg>), TaskError> {
        let node = Node::upgrade(&self.node).ok_or_else(shutting_down)?;
        let legs = self
            .members
            .iter()
            .zip(0..)
            .map(|(member, at)| Leg::new(at, member.id));
        let did: Did = Mutex::new(legs.collect());
        let quantised = self.apart(move |crew| crew.integer.quantise(&inputs).map_err(integer_error));
        let mut answers = Vec::new();
        for item in quantised.await? {
            answers.push(self.layers(&node, item, &did).await?);
        }
        let handed = self.apart(move |crew| crew.integer.hand_over(&answers).map_err(integer_error));
        let handed = handed.await?;
        let (mut results, took) = self.rest.run_timed(handed, Meanwhile::Something).await?;
        let order = |name: &String| self.integer.results().iter().position(|result| result == name);
        results.sort_by_key(|(name, _)| order(name));
        let mut legs = did.into_inner();
        legs.retain(|leg| leg.bytes_in > 0 || leg.failed.is_some());
        legs.push(Leg {
            compute_us: took.as_micros() as u64,
            ..Leg::new(self.members.len() as u8, node.runtime().id())
        });
        Ok((results, legs))
    }

    /// Computes something where that holds up nobody else: an activation may have millions of values.
    async fn apart<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let crew = self.clone();
        blocking(move || work(&crew)).await
    }

    /// The file that it runs.
    pub(in crate::drive::split) const fn digest(&self) -> Digest {
        self.model.digest
    }

    /// Which nodes take part, for people.
    pub(in crate::drive::split) fn words(&self) -> String {
        let member = |member: &Member| format!("{} ({})", member.id.short(), member.tier);
        let members: Vec<String> = self.members.iter().map(member).collect();
        let layers = self.shares.layers.len();
        format!("in pieces of {layers} layers: {}", members.join(", "))
    }

    /// The plan as it is told.
    pub(super) fn answer(&self, applied: bool) -> InsidePlan {
        let node =
            |(member, cost): (&Member, &karman_sched::partition::inside_layer::ShareCost)| InsideNode {
                node: member.id,
                tier: member.tier,
                memory: member.memory,
                peak: cost.peak,
                sent: cost.sent,
                received: cost.received,
                calls: cost.calls,
                operations: cost.operations,
                operations_per_second: member.operations_per_second,
                linear_memory: member.linear_memory,
            };
        let layers = self.integer.network().layers().iter().zip(&self.shares.layers);
        InsidePlan {
            model: self.model.name.clone(),
            nodes: self.members.iter().zip(&self.shares.boards).map(node).collect(),
            layers: layers
                .map(|(layer, shared)| InsideLayer {
                    layer: describe(layer),
                    by: match shared.form {
                        Form::Rows => "rows".to_owned(),
                        Form::Channels => "channels".to_owned(),
                    },
                    pieces: shared.pieces.iter().map(Vec::len).collect(),
                    seconds: shared.seconds,
                })
                .collect(),
            rest: self.integer.operators_of_rest().to_vec(),
            alone: self.shares.alone,
            held: self.integer.network().most_held(&self.integer.gives()),
            seconds: self.shares.seconds,
            applied,
        }
    }

    /// One item through all layers in whole numbers: what the rest takes. Activations go when the last layer that takes them is done.
    async fn layers(
        self: &Arc<Self>,
        node: &Node,
        item: Vec<i8>,
        did: &Did,
    ) -> Result<Vec<Vec<i8>>, TaskError> {
        let (network, gives) = (self.integer.network(), self.integer.gives());
        let mut activations = vec![Arc::new(item)];
        for (layer, shared) in self.shares.layers.iter().enumerate() {
            let parts =
                (0..shared.pieces.len()).map(|member| self.part(node, (layer, member), &activations, did));
            let done = try_join_all(parts).await?;
            let output = self.apart(move |crew| Ok(crew.put_together(layer, done)));
            let output = output.await?;
            for (at, activation) in activations.iter_mut().enumerate() {
                if !network.is_used_after(at, layer) && !gives.contains(&at) {
                    *activation = Arc::default();
                }
            }
            activations.push(Arc::new(output));
        }
        let given = gives.into_iter();
        Ok(given
            .map(|at| Arc::unwrap_or_clone(std::mem::take(&mut activations[at])))
            .collect())
    }

    /// The output of a layer, of its pieces.
    fn put_together(&self, layer: usize, pieces: Vec<Vec<(Piece, Bytes)>>) -> Vec<i8> {
        let extent = self.integer.network().layers()[layer].output();
        let mut output = vec![0; extent.elements()];
        for (piece, values) in pieces.into_iter().flatten() {
            let values: Vec<i8> = values.iter().map(|byte| *byte as i8).collect();
            self.part_of(piece).put(extent, &mut output, &values);
        }
        output
    }

    fn part_of(&self, piece: Piece) -> &Part {
        &self.shares.layers[piece.layer].pieces[piece.member][piece.at]
    }

    /// A member's part of a layer, piece by piece.
    async fn part(
        self: &Arc<Self>,
        node: &Node,
        (layer, member): (usize, usize),
        activations: &[Activation],
        did: &Did,
    ) -> Result<Vec<(Piece, Bytes)>, TaskError> {
        let pieces = self.shares.layers[layer].pieces[member].len();
        let mut done = Vec::with_capacity(pieces);
        for at in 0..pieces {
            let piece = Piece { layer, member, at };
            let held = activations.to_vec();
            let body = self.apart(move |crew| crew.message(piece, &held)).await?;
            done.push((piece, self.compute(node, piece, body, did).await?));
        }
        Ok(done)
    }

    fn message(&self, piece: Piece, activations: &[Activation]) -> Result<Bytes, TaskError> {
        let (network, part) = (self.integer.network(), self.part_of(piece));
        let shape = &network.layers()[piece.layer];
        let taken = &activations[network.takes()[piece.layer]];
        let input = shape.needs(part).cut(shape.input(), taken);
        let other = match *shape.operator() {
            Operator::Add { other } => part.cut(shape.output(), &activations[other]),
            _ => Vec::new(),
        };
        let task = ShareTask::new(network, piece.layer, part, input, other);
        let task = task.map_err(|error| TaskError::internal(error.to_string()))?;
        write(&task)
    }

    /// One piece: by the member that it falls to, else by another one that has the memory for it.
    async fn compute(&self, node: &Node, piece: Piece, body: Bytes, did: &Did) -> Result<Bytes, TaskError> {
        let cost = cost_of_share(&self.integer.network().layers()[piece.layer], self.part_of(piece));
        let mut last = TaskError::unavailable("no node takes part");
        for at in self.line(piece.member, cost.peak) {
            let (member, started) = (&self.members[at], Instant::now());
            let error = match member.ask(node, body.clone()).await {
                Ok((answer, report)) if answer.len() as u64 == cost.received => {
                    *member.lost.lock() = None;
                    let mut did = did.lock();
                    let leg = &mut did[at];
                    leg.compute_us += report.took_us;
                    leg.transfer_us += (started.elapsed().as_micros() as u64).saturating_sub(report.took_us);
                    leg.bytes_in += body.len() as u64;
                    leg.bytes_out += answer.len() as u64;
                    return Ok(answer);
                }
                Ok((answer, _)) => TaskError::unavailable(format!(
                    "it gave {} values instead of {}",
                    answer.len(),
                    cost.received
                )),
                Err(error) => error,
            };
            let others_may = matches!(
                error.kind,
                ErrorKind::Unavailable | ErrorKind::Deadline | ErrorKind::Limit
            );
            last = of_member(member.id, piece.layer, error);
            if !others_may {
                return Err(last);
            }
            tracing::debug!(model = self.model.name, error = %last, "a piece is computed elsewhere");
            *member.lost.lock() = Some(Instant::now());
            did.lock()[at].failed = Some(last.message.clone());
        }
        Err(last)
    }

    /// The member that a piece falls to, then the others that have the memory for it; those that did not answer a moment ago last.
    fn line(&self, member: usize, peak: u64) -> Vec<usize> {
        let others = (0..self.members.len()).filter(|other| *other != member);
        let able = others.filter(|other| self.members[*other].memory >= peak);
        let mut line: Vec<usize> = std::iter::once(member).chain(able).collect();
        line.sort_by_key(|at| self.members[*at].is_lost());
        line
    }
}

impl Member {
    fn is_lost(&self) -> bool {
        self.lost.lock().is_some_and(|since| since.elapsed() < ASKED_LAST)
    }

    /// Has a piece computed there, after those before it.
    pub(super) async fn ask(&self, node: &Node, body: Bytes) -> Result<(Bytes, RemoteReport), TaskError> {
        let since = Instant::now();
        let _turn = self.turn.acquire().await.map_err(|_| shutting_down())?;
        // All who stood in line would else wait for it in vain, one after the other.
        if self.lost.lock().is_some_and(|lost| lost > since) {
            return Err(TaskError::unavailable("it has not answered those before"));
        }
        let context = node.runtime().context(Some(PATIENCE));
        if self.id == node.runtime().id() {
            let request = TaskRequest {
                content_type: CONTENT_TYPE.to_owned(),
                metadata: Vec::new(),
                body,
            };
            let (response, report) = node.plugins().find(TASK)?.call(request, context).await?;
            let report = RemoteReport {
                took_us: report.took.as_micros() as u64,
                memory_peak: report.memory_peak,
                ran_on: None,
            };
            return Ok((response.body, report));
        }
        let mesh = mesh_of(node)?;
        let peer = mesh.peer(self.id).await?;
        let head = CallHead {
            within_ms: Some(PATIENCE.as_millis() as u64),
            content_type: CONTENT_TYPE.to_owned(),
            ..CallHead::new(Ask::Call, TASK, context.task)
        };
        let (response, report) = mesh.call(peer, head, body).await?;
        Ok((response.body, report))
    }
}

pub(super) fn integer_error(error: IntegerError) -> TaskError {
    TaskError::new(error.kind(), error.to_string())
}

/// An error by the name of the node that it came from.
pub(super) fn of_member(member: NodeId, layer: usize, mut error: TaskError) -> TaskError {
    let node = member.short();
    error.message = format!(
        "node {node} did not compute its piece of layer {layer}: {}",
        error.message
    );
    error
}

/// A layer in words.
fn describe(layer: &Layer) -> String {
    let what = match layer.operator() {
        Operator::Convolution {
            window: [rows, columns],
            ..
        } => {
            let kind = if layer.is_depthwise() {
                "depthwise"
            } else {
                "convolution"
            };
            format!("{kind} {rows}x{columns}")
        }
        Operator::AveragePool => "mean".to_owned(),
        Operator::Add { other } => format!("sum with activation {other}"),
        Operator::MaxPool {
            window: [rows, columns],
            ..
        } => format!("maximum {rows}x{columns}"),
    };
    format!("{what}, {}", layer.output())
}
