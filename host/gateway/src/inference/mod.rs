//! The Open Inference Protocol v2 for every model and task of the mesh. REST and gRPC read and write differently; what they ask
//! for is done here, once.
//!
//! A task is a model that takes `input` and gives `output`, both one element of `BYTES`: the bytes that
//! `POST /tasks/NAME` takes and gives.
//!
//! | file | what |
//! |---|---|
//! | `rest`, `named`, `binary` | JSON, and tensors as bytes behind it |
//! | `grpc`, `rpc`, `messages`, `parameters` | the same over gRPC |
//! | `weight`, `scale` | what a request takes once it is read |
//! | `apart` | what is long is read and written beside the threads of the connections |
//! | `objectives` | how accurate, how fast, how cheap the answer has to be |
//! | `decision` | who ran what and why, as headers |
//! | `listed` | all that there is |

mod apart;
mod binary;
mod decision;
mod grpc;
mod listed;
mod messages;
mod named;
mod objectives;
mod parameters;
mod rest;
mod rpc;
mod scale;
mod weight;

pub(crate) use decision::{Decision, Here};
pub(crate) use grpc::answer as answer_grpc;
pub(crate) use named::Named;
use objectives::{Objectives, told};
pub(crate) use rest::{
    __path_index, __path_infer, __path_infer_version, __path_live, __path_model, __path_model_ready,
    __path_model_version, __path_model_version_ready, __path_ready, __path_server,
};
pub(crate) use rest::{router, run as run_rest};
pub(crate) use rpc::{must_be_method, no_method};
pub use scale::weigh as weigh_infer_request;

use crate::access::{Caller, Right};
use crate::admission::Admission;
use crate::metrics::Metrics;
use crate::prompt;
use crate::refusal::Refusal;
use bytes::Bytes;
use karman_mesh::membership::Pattern;
use karman_node::inference::binary::EXTENSION;
use karman_node::inference::{chosen, each_once};
use karman_node::{ModelDescription, Node, TensorDescription, Wanted};
use karman_tensor::Tensor;
use karman_types::{TaskError, TaskRequest};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// The name of the server in its metadata.
const SERVER: &str = "karman";
/// What it does beyond the protocol, as its metadata lists it. Of `model_repository`, which is to load and unload models too, only the index
/// is answered, so it is not listed.
const EXTENSIONS: [&str; 1] = [EXTENSION];
/// The most inputs or outputs of one request.
const MOST_TENSORS: usize = 1024;

/// The type of a task's input and output.
const BYTES: &str = "BYTES";
/// The input of a task.
const TASK_INPUT: &str = "input";
/// The output of a task.
const TASK_OUTPUT: &str = "output";

/// What a request brings for one input.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A tensor, for a model.
    Tensor(Tensor),
    /// The one element of a `BYTES` tensor, for a task.
    Bytes(Bytes),
}

impl Value {
    /// How many bytes it has.
    fn bytes(&self) -> usize {
        match self {
            Self::Tensor(tensor) => tensor.bytes().len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// A request, however it came.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) model: String,
    pub(crate) version: Option<String>,
    pub(crate) inputs: Vec<(String, Value)>,
    /// The outputs that are wanted; all where none is named.
    pub(crate) wanted: Vec<String>,
    pub(crate) objectives: Objectives,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) outputs: Vec<(String, Value)>,
    pub(crate) decision: Decision,
}

/// Answers for the models and tasks of the mesh.
#[derive(Clone)]
pub(crate) struct Inference {
    node: Node,
    here: Here,
    /// The longest that a request may take.
    most: Duration,
    /// The room that there is for what is read.
    admission: Arc<Admission>,
    metrics: Arc<Metrics>,
}

impl Inference {
    pub(crate) fn new(node: Node, most: Duration, admission: Arc<Admission>, metrics: Arc<Metrics>) -> Self {
        Self {
            here: Here::of(&node),
            node,
            most,
            admission,
            metrics,
        }
    }

    /// Room for what a call of gRPC becomes once it is read: what there is none for is not read.
    ///
    /// # Errors
    /// As those of [`Admission::room_to_read`]; `invalid` when it is more than one message.
    fn room_for(&self, call: &[u8]) -> Result<OwnedSemaphorePermit, Refusal> {
        let message = scale::message_of(call)?;
        self.admission.room_to_read(scale::weigh(message), message.len())
    }

    /// Runs a model or task.
    pub(crate) async fn infer(&self, caller: &Caller, mut question: Question) -> Result<Reply, Refusal> {
        caller.must(&right(&question.model)?)?;
        let started = Instant::now();
        let within = question.objectives.within.unwrap_or(self.most).min(self.most);
        let ended = prompt::within(within, pin!(self.run(&mut question, within))).await;
        let name = &question.model;
        let late = || TaskError::deadline(format!("`{name}` did not finish within {within:.0?}"));
        let ended = ended.unwrap_or_else(|_| Err(late().into()));
        match &ended {
            Ok(reply) => self.metrics.inferred(&reply.decision.model, started.elapsed()),
            // A caller may make up any name: what there is not is not counted.
            Err(refused) if self.is_there(name) => {
                self.metrics.refused_to_infer(name, refused.error.kind);
            }
            Err(_) => {}
        }
        ended
    }

    /// Whether there is such a model or task: this node has it, or somebody has answered for it.
    fn is_there(&self, name: &str) -> bool {
        self.metrics.has_inferred(name)
            || self.node.has_model(name).unwrap_or(false)
            || self.node.plugins().find(name).is_ok()
    }

    async fn run(&self, question: &mut Question, within: Duration) -> Result<Reply, Refusal> {
        if question.inputs.len() > MOST_TENSORS || question.wanted.len() > MOST_TENSORS {
            return Err(
                TaskError::limit(format!("a request has at most {MOST_TENSORS} tensors"))
                    .with_field("inputs")
                    .into(),
            );
        }
        each_once(&question.wanted)?;
        let inputs = std::mem::take(&mut question.inputs);
        let is_task = matches!(&inputs[..], [(_, Value::Bytes(_))]);
        let mut reply = match is_task {
            // Boxed, as all that is rare beside: each request has room for the largest of its steps.
            true => match Box::pin(self.run_task(question, inputs, within)).await {
                Err(refused) if matches!(refused.error.field.as_deref(), Some("inputs" | "task")) => {
                    return Err(Box::pin(self.unsuited_model(&question.model, refused)).await);
                }
                replied => replied?,
            },
            false => match self.run_model(question, inputs, within).await {
                Err(refused) if refused.error.field.as_deref() == Some("model") => {
                    return Err(Box::pin(self.unsuited(&question.model, refused)).await);
                }
                replied => replied?,
            },
        };
        reply.outputs = chosen(reply.outputs, &question.wanted)?;
        Ok(reply)
    }

    /// Why there is no such model: it may be a task, which takes other inputs.
    async fn unsuited(&self, name: &str, refused: Refusal) -> Refusal {
        match self.task(name).await {
            Some(_) => {
                let error = format!(
                    "`{name}` is a task: it takes `{TASK_INPUT}`, one element of {BYTES}, and nothing else"
                );
                TaskError::invalid(error).with_field("inputs").into()
            }
            None => refused,
        }
    }

    /// Why there is no such task, or it takes no such input: it may be a model, which takes others.
    async fn unsuited_model(&self, name: &str, refused: Refusal) -> Refusal {
        if self.task(name).await.is_some() {
            return refused;
        }
        let is_no_task = refused.error.field.as_deref() == Some("task");
        match self.node.describe_model(name).await {
            Ok(model) => {
                let inputs = model.inputs.iter();
                let inputs = inputs.map(|input| format!("`{}` of {}", input.name, input.datatype));
                let inputs = inputs.collect::<Vec<_>>().join(", ");
                let error = format!("`{name}` is a model: it takes {inputs}, and no {BYTES}");
                TaskError::invalid(error).with_field("inputs").into()
            }
            Err(none) if none.field.as_deref() == Some("model") && is_no_task => refused,
            Err(error) => error.into(),
        }
    }

    async fn run_model(
        &self,
        question: &mut Question,
        inputs: Vec<(String, Value)>,
        within: Duration,
    ) -> Result<Reply, Refusal> {
        let model = &question.model;
        if let Some(version) = &question.version {
            Box::pin(self.check_version(model, version)).await?;
        }
        let tensors = inputs.into_iter().map(|(name, value)| match value {
            Value::Tensor(tensor) => Ok((name, tensor)),
            Value::Bytes(_) => Err(TaskError::invalid(format!(
                "`{name}` is {BYTES}, which tasks take alone and models do not take"
            ))
            .with_field("inputs")),
        });
        let tensors = tensors.collect::<Result<_, _>>()?;
        let (outputs, decision) = match self.is_chosen_for(question).await? {
            true => {
                let wanted = wanted(&question.objectives, within);
                let chosen = Box::pin(self.node.infer_within(model, wanted, tensors)).await;
                let (ran, chosen) = chosen.map_err(told)?;
                let (outputs, decision) = Decision::of_model(chosen.model().to_owned(), ran);
                (outputs, decision.chosen(chosen.request))
            }
            false => {
                let ran = self.node.infer(model, tensors, Some(within)).await?;
                Decision::of_model(model.clone(), ran)
            }
        };
        let outputs = outputs.into_iter();
        Ok(Reply {
            outputs: outputs
                .map(|(name, tensor)| (name, Value::Tensor(tensor)))
                .collect(),
            decision,
        })
    }

    /// Whether who answers is to be chosen: where the caller bounds something, or names a capability, which no model has as its name.
    async fn is_chosen_for(&self, question: &Question) -> Result<bool, TaskError> {
        if !question.objectives.bounds.is_empty() {
            return Ok(true);
        }
        Ok(question.model.contains('/') && Box::pin(self.node.is_measured(&question.model)).await?)
    }

    async fn run_task(
        &self,
        question: &Question,
        inputs: Vec<(String, Value)>,
        within: Duration,
    ) -> Result<Reply, Refusal> {
        let task = &question.model;
        if let Some(version) = &question.version
            && let Some(described) = self.task(task).await
            && described.version != *version
        {
            return Err(no_version(task, version, &described.version));
        }
        let mut request = TaskRequest::default();
        for (name, value) in inputs {
            match value {
                Value::Bytes(body) if name == TASK_INPUT => request.body = body,
                _ => {
                    return Err(
                        TaskError::invalid(format!("a task takes `{TASK_INPUT}`, not `{name}`"))
                            .with_field("inputs")
                            .into(),
                    );
                }
            }
        }
        let (response, decision) = match question.objectives.bounds.is_empty() {
            true => {
                let context = self.node.runtime().context(Some(within));
                let (response, ran) = self.node.call(task, request, context).await?;
                (response, Decision::of_task(task, &ran, &self.node))
            }
            false => {
                let wanted = wanted(&question.objectives, within);
                let answered = self.node.call_within(task, wanted, request).await;
                let (response, chosen) = answered.map_err(told)?;
                (response, Decision::of_chosen(&chosen))
            }
        };
        Ok(Reply {
            outputs: vec![(TASK_OUTPUT.to_owned(), Value::Bytes(response.body))],
            decision,
        })
    }

    /// What a model or task takes and gives.
    pub(crate) async fn describe(
        &self,
        caller: &Caller,
        model: &str,
        version: Option<&str>,
    ) -> Result<Described, Refusal> {
        caller.must(&right(model)?)?;
        let described = match self.node.describe_model(model).await {
            Ok(model) => Described::of_model(model),
            Err(none) if none.field.as_deref() == Some("model") => {
                self.task(model).await.ok_or_else(|| Refusal::from(none))?
            }
            Err(error) => return Err(error.into()),
        };
        match version.is_none_or(|version| version == described.version) {
            true => Ok(described),
            false => Err(no_version(model, version.unwrap_or_default(), &described.version)),
        }
    }

    async fn check_version(&self, model: &str, version: &str) -> Result<(), Refusal> {
        let described = Described::of_model(self.node.describe_model(model).await?);
        match described.version == version {
            true => Ok(()),
            false => Err(no_version(model, version, &described.version)),
        }
    }

    async fn task(&self, name: &str) -> Option<Described> {
        let here = self.node.offer();
        let version = match here.runs(name) {
            Some(task) => task.version.to_string(),
            None => {
                let mesh = self.node.mesh()?;
                let provider = mesh.providers(name).await.into_iter().next()?;
                provider.offer.runs(name)?.version.to_string()
            }
        };
        Some(Described::of_task(name, version))
    }
}

/// A model or task in the words of the protocol.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) platform: String,
    pub(crate) inputs: Vec<TensorDescription>,
    pub(crate) outputs: Vec<TensorDescription>,
}

impl Described {
    /// Its version is the beginning of the digest of its file.
    fn of_model(model: ModelDescription) -> Self {
        Self {
            version: model.digest.short(),
            platform: format!("onnx_{}", model.ran_on.split(',').next().unwrap_or_default()),
            name: model.name,
            inputs: model.inputs,
            outputs: model.outputs,
        }
    }

    fn of_task(name: &str, version: String) -> Self {
        let bytes = |name: &str| TensorDescription {
            name: name.to_owned(),
            datatype: BYTES.to_owned(),
            shape: vec![1],
        };
        Self {
            name: name.to_owned(),
            version,
            platform: "karman_task".to_owned(),
            inputs: vec![bytes(TASK_INPUT)],
            outputs: vec![bytes(TASK_OUTPUT)],
        }
    }
}

fn no_version(model: &str, asked: &str, there: &str) -> Refusal {
    let error = TaskError::unavailable(format!("`{model}` has no version `{asked}`; it has `{there}`"));
    Refusal::unknown(error.with_field("version"))
}

/// The right to run what has this name.
fn right(name: &str) -> Result<Right, Refusal> {
    let pattern: Result<Pattern, _> = name.parse();
    pattern.map(Right::Infer).map_err(|why| {
        let error = TaskError::invalid(format!("`{name}` is no name of a model or task: {why}"));
        error.with_field("model").into()
    })
}

const fn wanted(objectives: &Objectives, within: Duration) -> Wanted {
    Wanted {
        bounds: objectives.bounds,
        within,
    }
}

#[cfg(test)]
mod tests;
