//! Models of the whole mesh: run and described here where this node has them, else on one that does.

use super::dispatch::nearest_first;
use super::mesh::mesh_of;
use super::model_tasks::MODEL;
use super::split::{Leg, Unpacked, unpack_apart};
use crate::inference::datatype;
use crate::node::Node;
use bytes::Bytes;
use karman_engine::capability::nn::Tensors;
use karman_infer::{Dim, TensorInfo};
use karman_mesh::{Ask, CallHead, Mesh, PeerId, Provider, RemoteReport, pack_tensors};
use karman_store::ModelInfo;
use karman_types::{Digest, ErrorKind, NodeId, Offer, TaskError, TaskResponse, Tier};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Nodes that are tried for one request before it is given up.
const MOST_ATTEMPTS: usize = 3;

/// The results of a model that was run once, and how that went.
#[derive(Debug)]
pub struct Inferred {
    /// The results.
    pub results: Tensors,
    /// What each node did, in order.
    pub legs: Vec<Leg>,
    /// The back-end, or which node runs which part.
    pub ran_on: String,
    /// The node that was asked to run it, and where it stands.
    pub node: (NodeId, Tier),
    /// Why it ran there, in words.
    pub why: Cow<'static, str>,
}

/// The inputs and outputs of a model.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ModelDescription {
    /// By which it is asked for.
    pub name: String,
    /// The digest of its file.
    pub digest: Digest,
    /// The length of its file in bytes.
    pub bytes: u64,
    /// The back-end that runs it, where it is.
    pub ran_on: String,
    /// What it takes, in its order.
    pub inputs: Vec<TensorDescription>,
    /// What it gives, in its order.
    pub outputs: Vec<TensorDescription>,
    /// What else is known of it.
    pub info: ModelInfo,
}

/// A tensor in the words of the Open Inference Protocol.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TensorDescription {
    /// Its name.
    pub name: String,
    /// The type of its elements, such as `FP32`.
    pub datatype: String,
    /// Its dimensions; -1 for one of any size, and alone where the model does not say how many there are.
    pub shape: Vec<i64>,
}

impl From<&TensorInfo> for TensorDescription {
    fn from(info: &TensorInfo) -> Self {
        let dims = info.dims.as_deref();
        let size = |dim: &Dim| match dim {
            Dim::Fixed(size) => i64::from(*size),
            Dim::Any(_) => -1,
        };
        Self {
            name: info.name.clone(),
            datatype: datatype(info.element).to_owned(),
            shape: dims.map_or_else(|| vec![-1], |dims| dims.iter().map(size).collect()),
        }
    }
}

/// How it went on the node that ran it.
#[derive(Deserialize, Serialize)]
struct RanThere {
    legs: Vec<Leg>,
    ran_on: String,
}

impl Node {
    /// Runs a model of the mesh once: here where this node has it, in parts where it is planned so, else on a node that has it, in the
    /// order of this node's policy. `within` is how long who asks waits, where that is known: it is not enforced here, but a request waits
    /// for no other one where it leaves no time for that.
    ///
    /// # Errors
    /// Inputs that do not fit; what the back-end says; `unavailable` (field `model`) when no node in reach has it.
    pub async fn infer(
        &self,
        name: &str,
        inputs: Tensors,
        within: Option<Duration>,
    ) -> Result<Inferred, TaskError> {
        if self.has_model(name)? {
            let ran = self.run_model(name, inputs, within).await?;
            return Ok(Inferred {
                why: stopped(&ran.legs, "this node has the model".into()),
                results: ran.results,
                legs: ran.legs,
                ran_on: ran.ran_on,
                node: (self.runtime().id(), self.runtime().tier()),
            });
        }
        // Boxed: who asks a model of this node pays for no way to others.
        Box::pin(self.infer_elsewhere(name, inputs, within)).await
    }

    async fn infer_elsewhere(
        &self,
        name: &str,
        inputs: Tensors,
        within: Option<Duration>,
    ) -> Result<Inferred, TaskError> {
        let mesh = mesh_of(self).map_err(|_| unknown(name))?;
        let mut last = unknown(name);
        let (started, request) = (Instant::now(), self.runtime().context(None).task);
        let (task, routes) = (format!("{MODEL}{name}"), self.tasks().routes());
        let found = self.providers_of_model(name).await;
        let pick = routes.of_call(mesh, (task.as_str(), request), found).await;
        for provider in pick.providers.iter().take(MOST_ATTEMPTS) {
            let at = (provider.offer.node, provider.offer.tier);
            let under_way = routes.under_way(mesh, &task, provider);
            let left = within.map(|within| within.saturating_sub(started.elapsed()));
            let asked = self
                .ask_to_infer(mesh, (provider.id, at), name, &inputs, left)
                .await;
            under_way.ended(&asked);
            match asked {
                Ok(inferred) => {
                    let answered = routes.answered(&pick, at.0, started.elapsed());
                    let only = "the only node in reach that has the model";
                    let why = answered.why.map_or(Cow::Borrowed(only), Cow::Owned);
                    let why = stopped(&inferred.legs, why);
                    return Ok(Inferred { why, ..inferred });
                }
                Err(error) if error.kind == ErrorKind::Unavailable => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Runs a model on this very node, another one.
    ///
    /// # Errors
    /// Those of [`Node::infer`].
    pub(super) async fn infer_at(
        &self,
        at: (NodeId, Tier),
        name: &str,
        inputs: &Tensors,
        within: Duration,
    ) -> Result<Inferred, TaskError> {
        let mesh = mesh_of(self)?;
        let peer = mesh.peer(at.0).await?;
        self.ask_to_infer(mesh, (peer, at), name, inputs, Some(within))
            .await
    }

    async fn ask_to_infer(
        &self,
        mesh: &Mesh,
        (peer, node): (PeerId, (NodeId, Tier)),
        name: &str,
        inputs: &Tensors,
        within: Option<Duration>,
    ) -> Result<Inferred, TaskError> {
        let body = pack_tensors(&(), inputs)
            .map_err(|error| TaskError::limit(error.to_string()).with_field("inputs"))?;
        let head = CallHead {
            within_ms: within.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX)),
            ..CallHead::new(Ask::RunModel, name, self.runtime().context(None).task)
        };
        let started = Instant::now();
        let (response, report) = mesh.call(peer, head, body).await?;
        let (there, results): (RanThere, Tensors) = unpack_apart(&response.body).await?;
        let mut legs = there.legs;
        if let Some(first) = legs.first_mut() {
            let took = started.elapsed().as_micros() as u64;
            first.transfer_us += took.saturating_sub(report.took_us);
        }
        Ok(Inferred {
            results,
            legs,
            ran_on: there.ran_on,
            node,
            why: "it was asked to".into(),
        })
    }

    /// What a model of the mesh takes and gives.
    ///
    /// # Errors
    /// What the back-end says of its file; `unavailable` (field `model`) when no node in reach has it.
    pub async fn describe_model(&self, name: &str) -> Result<ModelDescription, TaskError> {
        if self.has_model(name)? {
            return self.describe_own_model(name).await;
        }
        let mesh = mesh_of(self).map_err(|_| unknown(name))?;
        let mut last = unknown(name);
        let found = nearest_first(mesh, self.providers_of_model(name).await);
        for provider in found.into_iter().take(MOST_ATTEMPTS) {
            let head = CallHead::new(Ask::DescribeModel, name, self.runtime().context(None).task);
            match mesh.call(provider.id, head, Bytes::new()).await {
                Ok((response, _)) => {
                    return serde_json::from_slice(&response.body)
                        .map_err(|error| TaskError::internal(error.to_string()));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// What a model of this node takes and gives.
    pub(crate) async fn describe_own_model(&self, name: &str) -> Result<ModelDescription, TaskError> {
        let found = self.runtime().models().find(name)?.ok_or_else(|| unknown(name))?;
        let (model, digest) = self.runtime().models().named(name).await?;
        let (inputs, outputs) = model.signature();
        Ok(ModelDescription {
            name: name.to_owned(),
            digest,
            bytes: found.model.bytes,
            ran_on: model.runs_on(),
            inputs: inputs.iter().map(TensorDescription::from).collect(),
            outputs: outputs.iter().map(TensorDescription::from).collect(),
            info: found.info(),
        })
    }

    /// Why this node would refuse a request for a model of its own, as far as it knows: nothing is tried for it, so one that was never asked
    /// for counts as ready.
    pub fn refused_model(&self, name: &str) -> Option<TaskError> {
        self.runtime().models().refusal(name)
    }

    /// The models of the nodes in reach by name, and who has each, this node first; of other nodes as it was found
    /// [lately](Mesh::nodes_lately).
    ///
    /// # Errors
    /// What the disk refuses.
    pub async fn models_of_mesh(&self) -> Result<BTreeMap<String, Vec<NodeId>>, TaskError> {
        let mut models: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
        for model in self.runtime().models().list()?.iter() {
            for name in std::iter::once(model.name.clone()).chain(model.exit_names()) {
                models.entry(name).or_default().push(self.runtime().id());
            }
        }
        let others = match self.mesh() {
            Some(mesh) => nearest_first(mesh, mesh.nodes_lately().await),
            None => Vec::new(),
        };
        for other in others {
            for model in &other.offer.models {
                models.entry(model.clone()).or_default().push(other.offer.node);
            }
        }
        Ok(models)
    }

    /// Who has the model: of the nodes that have said so already, else of those that announce it as a task.
    async fn providers_of_model(&self, name: &str) -> Vec<Provider> {
        let Some(mesh) = self.mesh() else {
            return Vec::new();
        };
        let has = |offer: &Offer| offer.models.iter().any(|model| model == name);
        let mut providers = mesh.connected_offers(has);
        if providers.is_empty() {
            providers = mesh.providers(&format!("{MODEL}{name}")).await;
            providers.retain(|provider| has(&provider.offer));
        }
        providers
    }

    /// Whether this node has a model of this name, or one with this exit.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn has_model(&self, name: &str) -> Result<bool, TaskError> {
        Ok(self.runtime().models().find(name)?.is_some())
    }
}

fn unknown(name: &str) -> TaskError {
    TaskError::unavailable(format!("no node in reach has a model `{name}`"))
        .with_field("model")
        .with_hint("`karman model list` and `karman mesh offers` show what there is")
}

/// Why it ran where it did, and that an early exit answered where one did.
pub(super) fn stopped(legs: &[Leg], why: Cow<'static, str>) -> Cow<'static, str> {
    match legs.iter().find_map(|leg| leg.exit) {
        Some(exit) => format!("{why}; its early exit {exit} answered").into(),
        None => why,
    }
}

/// Runs a model of this node for another one.
pub(super) async fn run(
    node: &Node,
    (name, within): (&str, Option<Duration>),
    body: &Bytes,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    let started = Instant::now();
    let Unpacked {
        head: (),
        tensors: inputs,
        room: _room,
    } = node.split().room().unpack(body).await?;
    let ran = node.run_model(name, inputs, within).await?;
    let there = RanThere {
        legs: ran.legs,
        ran_on: ran.ran_on.clone(),
    };
    let body = pack_tensors(&there, &ran.results)
        .map_err(|error| TaskError::limit(error.to_string()).with_field("outputs"))?;
    let report = RemoteReport {
        took_us: started.elapsed().as_micros() as u64,
        ran_on: Some(format!("{name} ({})", ran.ran_on)),
        ..RemoteReport::default()
    };
    let response = TaskResponse::from(body.into_bytes());
    Ok((response, report))
}
