//! Models on servers of others that speak the Open Inference Protocol v2, where the operator has named them: they do tasks for this
//! node, and are measured and chosen as any other implementation.

mod protocol;
mod server;

use super::json::JSON;
use crate::config::EndpointConfig;
use crate::drive::model_tasks::{by_name, read_input, written_inputs};
use crate::inference::InferTensor;
use crate::inference::binary::EXTENSION;
use crate::services::apart;
use futures::future::join_all;
use karman_engine::capability::nn::Tensors;
use karman_types::{Binding, ErrorKind, TaskError, TaskRequest, TaskResponse};
use parking_lot::Mutex;
use protocol::{DescribedModel, DescribedServer, outputs, question};
use serde::de::DeserializeOwned;
use serde_json::json;
use server::Server;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long one is waited for that is only asked whether it is ready.
const LOOK: Duration = Duration::from_secs(5);

/// Those that the operator has named, by these names.
#[derive(Default)]
pub(super) struct Endpoints(BTreeMap<String, Endpoint>);

struct Endpoint {
    config: EndpointConfig,
    server: Server,
    known: Mutex<Known>,
}

/// What the server has said, once it was asked for.
#[derive(Default)]
struct Known {
    model: Option<Arc<DescribedModel>>,
    takes_bytes: Option<bool>,
}

impl Endpoints {
    /// Those that the configuration names.
    ///
    /// # Errors
    /// `invalid`, naming the key that cannot be used.
    pub(super) fn open(named: &BTreeMap<String, EndpointConfig>) -> Result<Self, TaskError> {
        let open = |(name, config): (&String, &EndpointConfig)| -> Result<_, TaskError> {
            let opened = Endpoint::open(name, config.clone())?;
            Ok((name.clone(), opened))
        };
        let all: Result<BTreeMap<String, Endpoint>, TaskError> = named.iter().map(open).collect();
        all.map(Self)
    }

    /// Those whose capability is wanted, by what they are spoken of.
    pub(super) fn doing(&self, wanted: impl Fn(&str) -> bool) -> Vec<(String, Binding)> {
        let found = self
            .0
            .iter()
            .filter(|(_, known)| wanted(&known.config.capability));
        let spoken_of = |(name, known): (&String, &Endpoint)| {
            let name = format!("{name}@{}", known.config.url.authority());
            (name, known.binding())
        };
        found.map(spoken_of).collect()
    }

    /// Whether the operator names it still. Whether it answers shows when it is called.
    pub(super) fn has(&self, url: &str, model: &str) -> bool {
        self.find(url, model).is_ok()
    }

    /// Calls a model as a task: with an object of its tensors by name, or a request of the protocol.
    ///
    /// # Errors
    /// `unavailable` when it is not named any more, or does not answer; `deadline`; `invalid` for inputs that it does not take; what
    /// the server says.
    pub(super) async fn call(
        &self,
        (url, model): (&str, &str),
        request: TaskRequest,
        within: Option<Duration>,
    ) -> Result<TaskResponse, TaskError> {
        let endpoint = self.find(url, model)?;
        endpoint.within(within, endpoint.call(request)).await
    }

    /// Runs a model on tensors.
    ///
    /// # Errors
    /// Those of [`Self::call`].
    pub(super) async fn infer(
        &self,
        (url, model): (&str, &str),
        inputs: &Tensors,
        within: Duration,
    ) -> Result<Tensors, TaskError> {
        let endpoint = self.find(url, model)?;
        let written = inputs
            .iter()
            .map(|(name, tensor)| InferTensor::write(name, tensor));
        let asked = endpoint.run(written.collect());
        let outputs = endpoint.within(Some(within), asked).await?;
        let read = |output: &InferTensor| output.read().map_err(|error| endpoint.answers_wrongly(&error));
        outputs.iter().map(read).collect()
    }

    /// Whether each of them could be called now, by its name. Asks all of them.
    pub(super) async fn ready(&self) -> Vec<(String, Result<(), TaskError>)> {
        let asked = self.0.iter().map(|(name, endpoint)| async move {
            let ready = endpoint.within(Some(LOOK), endpoint.is_ready()).await;
            (name.clone(), ready)
        });
        join_all(asked).await
    }

    fn find(&self, url: &str, model: &str) -> Result<&Endpoint, TaskError> {
        let is_it = |known: &&Endpoint| known.config.url.as_str() == url && known.config.model == model;
        self.0.values().find(is_it).ok_or_else(|| {
            TaskError::unavailable(format!("{model} at {url} is not named by this node"))
                .with_hint("name it below `[endpoints]` in node.toml, or measure without it")
        })
    }
}

impl Endpoint {
    fn open(name: &str, config: EndpointConfig) -> Result<Self, TaskError> {
        let in_path = |c: char| c.is_ascii_alphanumeric() || "-._~%".contains(c);
        if config.model.is_empty() || !config.model.chars().all(in_path) {
            let says = format!(
                "`{}` is no model as it stands in a path; `/` is written `%2F`",
                config.model
            );
            return Err(TaskError::invalid(says).with_field(format!("endpoints.{name}.model")));
        }
        Ok(Self {
            server: Server::new(name, &config)?,
            config,
            known: Mutex::default(),
        })
    }

    fn binding(&self) -> Binding {
        Binding::Endpoint {
            url: self.config.url.to_string(),
            model: self.config.model.clone(),
        }
    }

    async fn call(&self, request: TaskRequest) -> Result<TaskResponse, TaskError> {
        let (length, body, of) = (request.body.len(), request.body, self.to_string());
        let mut input = apart(length, move || read_input(&body, &of)).await?;
        let of_protocol = input["inputs"].is_array();
        let inputs: Vec<InferTensor> = match of_protocol {
            true => {
                let read = move || {
                    serde_json::from_value(input["inputs"].take())
                        .map_err(|error| TaskError::invalid(error.to_string()).with_field("inputs"))
                };
                apart(length, read).await?
            }
            false => {
                let model = self.model().await?;
                let write = move || {
                    let takes = model.inputs.iter();
                    let takes = takes.map(|input| (&*input.name, &*input.datatype));
                    written_inputs(&takes.collect::<Vec<_>>(), input)
                };
                apart(length, write).await?
            }
        };
        let outputs = self.run(inputs).await?;
        let named = of_protocol.then(|| self.config.model.clone());
        let elements = |output: &InferTensor| {
            let dims = output.shape.iter();
            dims.fold(1_usize, |elements, dim| elements.saturating_mul(*dim as usize))
        };
        let bytes = outputs.iter().map(elements).fold(0, usize::saturating_add);
        let written = apart(bytes, move || {
            let output = match named {
                Some(model) => json!({ "model_name": model, "outputs": outputs }),
                None => by_name(&outputs)?,
            };
            Ok(output.to_string().into())
        });
        Ok(TaskResponse {
            content_type: JSON.to_owned(),
            metadata: Vec::new(),
            body: written.await.map_err(|error| self.answers_wrongly(&error))?,
        })
    }

    async fn run(&self, inputs: Vec<InferTensor>) -> Result<Vec<InferTensor>, TaskError> {
        let as_bytes = match self.takes_bytes().await {
            true => Some(self.model().await?),
            false => None,
        };
        let question = question(inputs, as_bytes.as_deref())?;
        let most = self.config.answer.as_usize();
        let answer = self.server.post(&self.path("/infer"), question, most).await;
        if answer
            .as_ref()
            .is_err_and(|error| error.kind == ErrorKind::Invalid)
        {
            // Perhaps it takes something else than it did.
            *self.known.lock() = Known::default();
        }
        outputs(answer?).map_err(|error| self.answers_wrongly(&error))
    }

    async fn is_ready(&self) -> Result<(), TaskError> {
        self.server.get(&self.path("/ready")).await.map(|_| ())
    }

    async fn model(&self) -> Result<Arc<DescribedModel>, TaskError> {
        let known = self.known.lock().model.clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let model: DescribedModel = self.read(&self.server.get(&self.path("")).await?)?;
        let model = Arc::new(model);
        self.known.lock().model = Some(model.clone());
        Ok(model)
    }

    /// Whether the server says that it takes tensors as bytes. One that does not say anything of itself is asked again the next time.
    async fn takes_bytes(&self) -> bool {
        let known = self.known.lock().takes_bytes;
        if let Some(known) = known {
            return known;
        }
        let Ok(answer) = self.server.get("/v2").await else {
            return false;
        };
        let takes = self
            .read(&answer)
            .is_ok_and(|server: DescribedServer| server.extensions.iter().any(|name| name == EXTENSION));
        self.known.lock().takes_bytes = Some(takes);
        takes
    }

    /// The path of the model, and what is below it.
    fn path(&self, below: &str) -> String {
        format!("/v2/models/{}{below}", self.config.model)
    }

    fn read<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, TaskError> {
        serde_json::from_slice(answer).map_err(|error| self.answers_wrongly(&error))
    }

    fn answers_wrongly(&self, why: &dyn fmt::Display) -> TaskError {
        TaskError::failed(format!("{self} answers what is no answer of the protocol: {why}"))
    }

    /// For no longer than its caller has, nor than its operator allows. A server that takes all that it may is passed over, as one that
    /// is not there; a caller without time is just late.
    async fn within<T>(
        &self,
        left: Option<Duration>,
        asked: impl Future<Output = Result<T, TaskError>>,
    ) -> Result<T, TaskError> {
        let most = self.config.time;
        let late = |time: Duration| format!("{self} did not answer within {time:.0?}");
        match left.filter(|left| *left < most) {
            Some(left) => timeout(left, asked)
                .await
                .unwrap_or_else(|_| Err(TaskError::deadline(late(left)))),
            None => timeout(most, asked).await.unwrap_or_else(|_| {
                let hint = "`time` of its table in node.toml says how long it may take";
                Err(TaskError::unavailable(late(most)).with_hint(hint))
            }),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.config.model, self.config.url)
    }
}

#[cfg(test)]
mod tests;
