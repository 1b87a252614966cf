//! The protocol over REST.

use super::apart::apart;
use super::{
    Described, EXTENSIONS, Here, Inference, MOST_TENSORS, Named, Objectives, Question, Reply, SERVER, Value,
    binary, weight,
};
use crate::access::Caller;
use crate::admission::Admission;
use crate::refusal::{Refusal, Speaks};
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use karman_node::inference::binary::{HEADER_LENGTH, WireBody, part};
use karman_node::inference::{InferParameters, InferRequest, InferResponse};
use karman_node::{InPath, TensorDescription};
use karman_types::TaskError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::ToSchema;

/// Bytes: an answer that outgrows its memory is copied, so that of most is made large enough at once.
const SHORT_ANSWER: usize = 960;

/// What the server says of itself.
#[derive(Serialize, ToSchema)]
pub(crate) struct ServerMetadata {
    /// Its name.
    name: &'static str,
    /// Its version.
    version: &'static str,
    /// What it does beyond the protocol.
    extensions: Vec<&'static str>,
}

/// What a model takes and gives.
#[derive(Serialize, ToSchema)]
pub(crate) struct ModelMetadata {
    /// Its name.
    name: String,
    /// The versions that can be asked for.
    versions: Vec<String>,
    /// What runs it.
    platform: String,
    /// Its inputs.
    inputs: Vec<TensorMetadata>,
    /// Its outputs.
    outputs: Vec<TensorMetadata>,
}

/// One input or output of a model.
#[derive(Serialize, ToSchema)]
pub(crate) struct TensorMetadata {
    /// Its name.
    name: String,
    /// The type of its elements.
    datatype: String,
    /// Its dimensions, -1 for any size.
    shape: Vec<i64>,
}

/// Whether a model can be run.
#[derive(Serialize, ToSchema)]
pub(crate) struct ModelReady {
    /// Its name.
    name: String,
    /// Whether it can be run.
    ready: bool,
}

/// What is to be on a list of models and tasks.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default)]
pub(crate) struct IndexRequest {
    /// Only those that are ready.
    ready: bool,
}

/// A model or task that the caller may run.
#[derive(Serialize, ToSchema)]
pub(crate) struct RepositoryEntry {
    /// Its name.
    name: String,
    /// Its version, where a list can know it.
    version: String,
    /// `READY`; `UNAVAILABLE` where the gateway's node has it and knows that requests for it are refused.
    state: &'static str,
    /// Why they are.
    reason: String,
}

/// An error of the inference protocol.
#[derive(Serialize, ToSchema)]
pub(crate) struct InferenceError {
    /// What is wrong, and what to do next.
    #[allow(
        dead_code,
        reason = "only its schema is used: the one that writes it is `Refusal`"
    )]
    error: String,
}

impl From<TensorDescription> for TensorMetadata {
    fn from(tensor: TensorDescription) -> Self {
        Self {
            name: tensor.name,
            datatype: tensor.datatype,
            shape: tensor.shape,
        }
    }
}

impl From<Described> for ModelMetadata {
    fn from(described: Described) -> Self {
        Self {
            name: described.name,
            versions: vec![described.version],
            platform: described.platform,
            inputs: described.inputs.into_iter().map(TensorMetadata::from).collect(),
            outputs: described.outputs.into_iter().map(TensorMetadata::from).collect(),
        }
    }
}

/// Lets handlers use `?`.
struct Wrong(Refusal);

impl<E: Into<Refusal>> From<E> for Wrong {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        self.0.response(Speaks::Inference)
    }
}

/// The routes of the protocol.
pub(crate) fn router(inference: Inference) -> Router {
    Router::new()
        .route("/v2", get(server))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/repository/index", post(index))
        .route("/v2/models/{model}", get(model))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}", get(model))
        .route("/v2/models/{model}/versions/{version}/ready", get(model_ready))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer))
        // Bodies were read before, within the bounds of the gateway and of the caller.
        .layer(DefaultBodyLimit::disable())
        .with_state(inference)
}

/// What a path names, or why it does not read.
type Asked = Result<InPath<Named>, karman_node::Refusal>;

/// What the server is.
#[utoipa::path(get, path = "/v2", tag = "inference", responses((status = 200, body = ServerMetadata)))]
async fn server() -> Json<ServerMetadata> {
    Json(ServerMetadata {
        name: SERVER,
        version: env!("CARGO_PKG_VERSION"),
        extensions: EXTENSIONS.to_vec(),
    })
}

/// Whether the server runs, and need not be started again.
#[utoipa::path(get, path = "/v2/health/live", tag = "inference", responses(
    (status = 200, description = "It runs"), (status = 503, description = "It has to be started again")))]
async fn live(State(inference): State<Inference>) -> Response {
    health("live", inference.node.not_live().is_none())
}

/// Whether the server can run models.
#[utoipa::path(get, path = "/v2/health/ready", tag = "inference", responses(
    (status = 200, description = "It can"), (status = 503, description = "Not yet, or no more")))]
async fn ready(State(inference): State<Inference>) -> Response {
    health("ready", inference.node.is_ready())
}

/// Says yes, or with status 503 no.
fn health(what: &str, is_so: bool) -> Response {
    let status = match is_so {
        true => http::StatusCode::OK,
        false => http::StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(serde_json::json!({ what: is_so }))).into_response()
}

/// The models and tasks of the mesh that the caller may run. It may come without a body.
#[utoipa::path(post, path = "/v2/repository/index", tag = "inference", request_body = Option<IndexRequest>, responses(
    (status = 200, body = Vec<RepositoryEntry>), (status = 400, body = InferenceError)))]
async fn index(
    State(inference): State<Inference>,
    Extension(caller): Extension<Arc<Caller>>,
    body: Bytes,
) -> Result<Json<Vec<RepositoryEntry>>, Wrong> {
    let asked: IndexRequest = match body.is_empty() {
        true => IndexRequest::default(),
        false => serde_json::from_slice(&body).map_err(unread)?,
    };
    let listed = inference.list(&caller, asked.ready).await?.into_iter();
    let entries = listed.map(|listed| {
        let (state, reason) = listed.state();
        RepositoryEntry {
            name: listed.name,
            version: listed.version,
            state,
            reason,
        }
    });
    Ok(Json(entries.collect()))
}

fn unread(error: serde_json::Error) -> TaskError {
    TaskError::invalid(format!("the request does not read: {error}")).with_field("body")
}

/// What a model or task takes and gives.
#[utoipa::path(get, path = "/v2/models/{model}", tag = "inference", params(("model" = String, Path)), responses(
    (status = 200, body = ModelMetadata), (status = 400, body = InferenceError), (status = 404, body = InferenceError),
    (status = 504, body = InferenceError)))]
async fn model(
    State(inference): State<Inference>,
    Extension(caller): Extension<Arc<Caller>>,
    path: Asked,
) -> Result<Json<ModelMetadata>, Wrong> {
    let InPath(Named { model, version }) = path?;
    let described = inference.describe(&caller, &model, version.as_deref()).await?;
    Ok(Json(described.into()))
}

/// Whether a model or task can be run.
#[utoipa::path(get, path = "/v2/models/{model}/ready", tag = "inference", params(("model" = String, Path)), responses(
    (status = 200, body = ModelReady), (status = 400, body = InferenceError), (status = 404, body = InferenceError),
    (status = 504, body = InferenceError)))]
async fn model_ready(
    State(inference): State<Inference>,
    Extension(caller): Extension<Arc<Caller>>,
    path: Asked,
) -> Result<Json<ModelReady>, Wrong> {
    let InPath(Named { model, version }) = path?;
    let described = inference.describe(&caller, &model, version.as_deref()).await?;
    Ok(Json(ModelReady {
        name: described.name,
        ready: true,
    }))
}

/// What a version of a model or task takes and gives.
#[utoipa::path(get, path = "/v2/models/{model}/versions/{version}", tag = "inference",
    params(("model" = String, Path), ("version" = String, Path)), responses(
    (status = 200, body = ModelMetadata), (status = 400, body = InferenceError), (status = 404, body = InferenceError),
    (status = 504, body = InferenceError)))]
#[allow(dead_code, reason = "its attribute is the description: `model` answers")]
fn model_version() {}

/// Whether a version of a model or task can be run.
#[utoipa::path(get, path = "/v2/models/{model}/versions/{version}/ready", tag = "inference",
    params(("model" = String, Path), ("version" = String, Path)), responses(
    (status = 200, body = ModelReady), (status = 400, body = InferenceError), (status = 404, body = InferenceError),
    (status = 504, body = InferenceError)))]
#[allow(dead_code, reason = "its attribute is the description: `model_ready` answers")]
fn model_version_ready() {}

/// Runs a version of a model or task: like `/v2/models/{model}/infer`, where the model has this version.
#[utoipa::path(post, path = "/v2/models/{model}/versions/{version}/infer", tag = "inference",
    params(("model" = String, Path), ("version" = String, Path),
        ("Inference-Header-Content-Length" = Option<u64>, Header, description = "How long the JSON is, where bytes are behind it"),
        ("karman-within" = Option<String>, Header, description = "The longest time, as `200 ms`"),
        ("karman-accuracy" = Option<f64>, Header, description = "The share of right answers, from 0 to 1: at least this"),
        ("karman-p95" = Option<String>, Header, description = "95 of a hundred answers take at most this, as `50 ms`"),
        ("karman-cost" = Option<f64>, Header, description = "What the answer costs: at most this")),
    request_body(content((InferRequest = "application/json"), (Vec<u8> = "application/octet-stream"))), responses(
    (status = 200, content((InferResponse = "application/json"), (Vec<u8> = "application/octet-stream"))),
    (status = 400, body = InferenceError), (status = 404, body = InferenceError),
    (status = 412, body = InferenceError, description = "Nobody meets a bound; it is named"), (status = 422, body = InferenceError),
    (status = 499, body = InferenceError), (status = 504, body = InferenceError)))]
#[allow(dead_code, reason = "its attribute is the description: `infer` answers")]
fn infer_version() {}

/// Runs a model or task. The body is JSON, or JSON with tensors as bytes behind it, where the header
/// `Inference-Header-Content-Length` says how long the JSON is. `karman-within: 200 ms` bounds the time, and so does `timeout` among the
/// parameters, in microseconds. With `karman-accuracy`, `karman-p95` or `karman-cost`, and where `model` is a capability, who answers is
/// chosen among those that were measured. Headers of the response say what ran where and why.
#[utoipa::path(post, path = "/v2/models/{model}/infer", tag = "inference",
    params(("model" = String, Path),
        ("Inference-Header-Content-Length" = Option<u64>, Header, description = "How long the JSON is, where bytes are behind it"),
        ("karman-within" = Option<String>, Header, description = "The longest time, as `200 ms`"),
        ("karman-accuracy" = Option<f64>, Header, description = "The share of right answers, from 0 to 1: at least this"),
        ("karman-p95" = Option<String>, Header, description = "95 of a hundred answers take at most this, as `50 ms`"),
        ("karman-cost" = Option<f64>, Header, description = "What the answer costs: at most this")),
    request_body(content((InferRequest = "application/json"), (Vec<u8> = "application/octet-stream"))), responses(
    (status = 200, content((InferResponse = "application/json"), (Vec<u8> = "application/octet-stream"))),
    (status = 400, body = InferenceError), (status = 404, body = InferenceError),
    (status = 412, body = InferenceError, description = "Nobody meets a bound; it is named"), (status = 422, body = InferenceError),
    (status = 499, body = InferenceError), (status = 504, body = InferenceError)))]
async fn infer(
    State(inference): State<Inference>,
    Extension(caller): Extension<Arc<Caller>>,
    path: Asked,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Wrong> {
    let InPath(named) = path?;
    Ok(run(&inference, &caller, named, &headers, body).await?)
}

/// Runs what is named.
pub(crate) async fn run(
    inference: &Inference,
    caller: &Caller,
    Named { model, version }: Named,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let length = headers
        .get(HEADER_LENGTH)
        .map(|value| value.to_str().unwrap_or_default());
    let (json, behind) = part(body, length)?;
    let (length, admission) = (json.len(), inference.admission.clone());
    let reading = apart(length, move || read(&admission, &json, behind));
    let Unpacked {
        request,
        inputs,
        room: _room,
    } = reading.await?;
    let question = Question {
        inputs,
        wanted: request.outputs.iter().map(|wanted| wanted.name.clone()).collect(),
        objectives: Objectives::of(headers)?.within_too(request.parameters.timeout),
        model,
        version: version.clone(),
    };
    let reply = inference.infer(caller, question).await?;
    let as_bytes = move |name: &str| {
        let wanted = request.outputs.iter().find(|wanted| wanted.name == name);
        wanted
            .and_then(|wanted| wanted.parameters.binary_data)
            .unwrap_or(request.parameters.binary_data_output)
    };
    let as_text = reply.outputs.iter().filter(|(name, _)| !as_bytes(name));
    let length = as_text.map(|(_, value)| value.bytes()).sum();
    let here = inference.here.clone();
    apart(length, move || {
        written(&here, reply, request.id, version, as_bytes)
    })
    .await
}

/// A request that was read.
struct Unpacked {
    /// Without its inputs.
    request: InferRequest,
    inputs: Vec<(String, Value)>,
    /// The room that they take.
    room: OwnedSemaphorePermit,
}

fn read(admission: &Arc<Admission>, json: &[u8], behind: Bytes) -> Result<Unpacked, Refusal> {
    let room = admission.room_to_read(weight::of_json(json), json.len())?;
    let mut request: InferRequest = serde_json::from_slice(json).map_err(unread)?;
    request.check()?;
    if request.inputs.len() > MOST_TENSORS {
        return Err(TaskError::limit(format!("a request has at most {MOST_TENSORS} inputs")).into());
    }
    let inputs = binary::read(std::mem::take(&mut request.inputs), behind)?;
    Ok(Unpacked {
        request,
        inputs,
        room,
    })
}

/// The response: JSON, and behind it the outputs that are wanted as bytes.
fn written(
    here: &Here,
    reply: Reply,
    id: Option<String>,
    version: Option<String>,
    as_bytes: impl Fn(&str) -> bool,
) -> Result<Response, Refusal> {
    let (mut outputs, mut behind) = (Vec::new(), Vec::new());
    for (name, value) in &reply.outputs {
        let (tensor, bytes) = binary::write(name, value, as_bytes(name))?;
        outputs.push(tensor);
        behind.extend(bytes);
    }
    let mut headers = reply.decision.headers(here);
    let response = InferResponse {
        model_name: reply.decision.model,
        model_version: version,
        id,
        parameters: InferParameters {
            decision: reply.decision.request.map(|request| request.to_string()),
            legs: reply.decision.legs,
            ..InferParameters::default()
        },
        outputs,
    };
    let mut json = Vec::with_capacity(SHORT_ANSWER);
    serde_json::to_writer(&mut json, &response).map_err(|error| TaskError::internal(error.to_string()))?;
    let body = WireBody::of(json, behind);
    if let Some(length) = body.header_length {
        headers.insert(HEADER_LENGTH, HeaderValue::from(length));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(body.content_type));
    let mut response = Response::new(Body::from(body.bytes));
    *response.headers_mut() = headers;
    Ok(response)
}
