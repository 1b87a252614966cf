//! The protocol over gRPC.

use super::messages::{
    Contents, IndexEntry, IndexRequest, IndexResponse, InferTensor, ModelInferRequest, ModelInferResponse,
    ModelMetadataResponse, ModelReadyResponse, ModelRequest, Nothing, ServerLiveResponse,
    ServerMetadataResponse, ServerReadyResponse, TensorMetadata,
};
use super::rpc::Rpc;
use super::{BYTES, EXTENSIONS, Inference, Objectives, Question, Reply, SERVER, Value, binary, parameters};
use crate::access::Caller;
use crate::refusal::{Refusal, Speaks};
use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use karman_node::TensorDescription;
use karman_node::inference::{self, Scalar, TensorData};
use karman_types::TaskError;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Answers one call: the body is whole, and its length was judged.
pub(crate) async fn answer(
    inference: Inference,
    caller: Arc<Caller>,
    request: Request<Bytes>,
) -> Response<Body> {
    let method = match Rpc::at(request.uri().path()) {
        Ok(method) => method,
        Err(refusal) => return refusal.response(Speaks::Grpc),
    };
    let call = Call { inference, caller };
    match method {
        Rpc::ServerLive => {
            call.unary(request, |call, _: Nothing, _| live(call).boxed())
                .await
        }
        Rpc::ServerReady => {
            call.unary(request, |call, _: Nothing, _| ready(call).boxed())
                .await
        }
        Rpc::ServerMetadata => call.unary(request, |_, _: Nothing, _| server().boxed()).await,
        Rpc::ModelReady => {
            call.unary(request, |call, asked, _| model_ready(call, asked).boxed())
                .await
        }
        Rpc::ModelMetadata => {
            call.unary(request, |call, asked, _| model(call, asked).boxed())
                .await
        }
        Rpc::RepositoryIndex => {
            call.unary(request, |call, asked, _| index(call, asked).boxed())
                .await
        }
        Rpc::ModelInfer => match call.inference.room_for(request.body()) {
            Ok(_room) => {
                let does: Does<_, _> = |call, asked, headers| infer(call, asked, headers).boxed();
                call.unary(request, does).await
            }
            Err(refusal) => refusal.response(Speaks::Grpc),
        },
    }
}

/// What a method works with.
#[derive(Clone)]
struct Call {
    inference: Inference,
    caller: Arc<Caller>,
}

/// What a method answers, with what goes beside it.
type Answered<T> = Result<(T, HeaderMap), Refusal>;

/// A method: what it works with, the message, and what came beside it.
type Does<A, T> = fn(Call, A, HeaderMap) -> BoxFuture<'static, Answered<T>>;

impl Call {
    /// Reads the message, lets the method answer, and writes that.
    async fn unary<A, T>(self, request: Request<Bytes>, does: Does<A, T>) -> Response<Body>
    where
        A: Message + Default + 'static,
        T: Message + Default + 'static,
    {
        let most = request.body().len();
        let mut grpc = Grpc::new(ProstCodec::<T, A>::default())
            .max_decoding_message_size(most)
            .max_encoding_message_size(usize::MAX);
        let method = Method { call: self, does };
        grpc.unary(method, request.map(Full::new)).await.map(Body::new)
    }
}

/// A function as the method of a service.
struct Method<A, T> {
    call: Call,
    does: Does<A, T>,
}

impl<A, T: 'static> UnaryService<A> for Method<A, T> {
    type Response = T;
    type Future = BoxFuture<'static, Result<tonic::Response<T>, Status>>;

    fn call(&mut self, asked: tonic::Request<A>) -> Self::Future {
        let headers = asked.metadata().clone().into_headers();
        let answered = (self.does)(self.call.clone(), asked.into_inner(), headers);
        let written = answered.map(|answered| {
            let (answer, headers) = answered.map_err(Refusal::into_grpc)?;
            let mut response = tonic::Response::new(answer);
            response.metadata_mut().as_mut().extend(headers);
            Ok(response)
        });
        written.boxed()
    }
}

async fn live(call: Call) -> Answered<ServerLiveResponse> {
    let live = call.inference.node.not_live().is_none();
    Ok((ServerLiveResponse { live }, HeaderMap::new()))
}

async fn ready(call: Call) -> Answered<ServerReadyResponse> {
    let ready = call.inference.node.is_ready();
    Ok((ServerReadyResponse { ready }, HeaderMap::new()))
}

async fn server() -> Answered<ServerMetadataResponse> {
    let server = ServerMetadataResponse {
        name: SERVER.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: EXTENSIONS.map(str::to_owned).to_vec(),
    };
    Ok((server, HeaderMap::new()))
}

fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

async fn model_ready(call: Call, asked: ModelRequest) -> Answered<ModelReadyResponse> {
    let described = call
        .inference
        .describe(&call.caller, &asked.name, given(&asked.version))
        .await;
    match described {
        Ok(_) => Ok((ModelReadyResponse { ready: true }, HeaderMap::new())),
        // Not there is an answer; not allowed is none.
        Err(refusal) if refusal.clone().into_grpc().code() == Code::NotFound => {
            Ok((ModelReadyResponse { ready: false }, HeaderMap::new()))
        }
        Err(refusal) => Err(refusal),
    }
}

async fn model(call: Call, asked: ModelRequest) -> Answered<ModelMetadataResponse> {
    let described = call
        .inference
        .describe(&call.caller, &asked.name, given(&asked.version))
        .await?;
    let tensor = |tensor: TensorDescription| TensorMetadata {
        name: tensor.name,
        datatype: tensor.datatype,
        shape: tensor.shape,
    };
    let answer = ModelMetadataResponse {
        name: described.name,
        versions: vec![described.version],
        platform: described.platform,
        inputs: described.inputs.into_iter().map(tensor).collect(),
        outputs: described.outputs.into_iter().map(tensor).collect(),
    };
    Ok((answer, HeaderMap::new()))
}

async fn index(call: Call, asked: IndexRequest) -> Answered<IndexResponse> {
    let listed = call.inference.list(&call.caller, asked.ready).await?.into_iter();
    let models = listed.map(|listed| {
        let (state, reason) = listed.state();
        IndexEntry {
            name: listed.name,
            version: listed.version,
            state: state.to_owned(),
            reason,
        }
    });
    let models = models.collect();
    Ok((IndexResponse { models }, HeaderMap::new()))
}

async fn infer(call: Call, asked: ModelInferRequest, headers: HeaderMap) -> Answered<ModelInferResponse> {
    let objectives = Objectives::of(&headers)?;
    let objectives = Objectives {
        within: objectives.within.or_else(|| deadline(&headers)),
        ..objectives
    };
    parameters::all_done(&asked.inputs, &asked.outputs)?;
    let question = Question {
        inputs: inputs(asked.inputs, asked.raw_input_contents)?,
        wanted: asked.outputs.into_iter().map(|wanted| wanted.name).collect(),
        objectives: objectives.within_too(parameters::timeout(&asked.parameters)?),
        version: given(&asked.model_version).map(str::to_owned),
        model: asked.model_name,
    };
    let Reply { outputs, decision } = call.inference.infer(&call.caller, question).await?;
    let headers = decision.headers(&call.inference.here);
    let mut answer = ModelInferResponse {
        model_name: decision.model,
        model_version: asked.model_version,
        id: asked.id,
        // Not every client shows its user what comes beside the message.
        parameters: parameters::of_headers(&headers),
        ..ModelInferResponse::default()
    };
    for (name, value) in outputs {
        let (tensor, bytes) = binary::write(&name, &value, true)?;
        answer.raw_output_contents.extend(bytes);
        answer.outputs.push(InferTensor {
            name,
            datatype: tensor.datatype,
            shape: tensor.shape.into_iter().map(i64::from).collect(),
            ..InferTensor::default()
        });
    }
    Ok((answer, headers))
}

/// The inputs: all of them as bytes behind the message, or each with its contents.
fn inputs(tensors: Vec<InferTensor>, raw: Vec<Bytes>) -> Result<Vec<(String, Value)>, TaskError> {
    if !raw.is_empty() && raw.len() != tensors.len() {
        let (raw, tensors) = (raw.len(), tensors.len());
        return Err(
            TaskError::invalid(format!("{tensors} inputs and {raw} raw contents")).with_field("inputs"),
        );
    }
    let mut raw = raw.into_iter();
    let read = |tensor: InferTensor| {
        let shape = tensor.shape.iter().map(|size| u32::try_from(*size));
        let shape = shape.collect::<Result<Vec<u32>, _>>().map_err(|_| {
            let name = &tensor.name;
            TaskError::invalid(format!("`{name}`: {:?} is no shape", tensor.shape)).with_field("inputs")
        })?;
        let contents = tensor.contents.unwrap_or_default();
        let input = inference::InferTensor {
            data: Some(TensorData::Read(scalars(&tensor.datatype, &contents))),
            name: tensor.name,
            shape,
            datatype: tensor.datatype,
            parameters: Default::default(),
        };
        match (raw.next(), &contents.bytes[..]) {
            (Some(bytes), _) => binary::read_one(input, Some(bytes)),
            (None, [element]) if input.datatype == BYTES => {
                binary::read_one(input, Some(binary::framed(element)?))
            }
            (None, _) => binary::read_one(input, None),
        }
    };
    tensors.into_iter().map(read).collect()
}

/// The elements that the contents have for this type.
fn scalars(datatype: &str, contents: &Contents) -> Vec<Scalar> {
    let signed = |value: i64| match u64::try_from(value) {
        Ok(value) => Scalar::Unsigned(value),
        Err(_) => Scalar::Signed(value),
    };
    match datatype {
        "BOOL" => contents.bools.iter().copied().map(Scalar::Bool).collect(),
        "INT8" | "INT16" | "INT32" => contents
            .ints
            .iter()
            .map(|value| signed((*value).into()))
            .collect(),
        "INT64" => contents.longs.iter().copied().map(signed).collect(),
        "UINT8" | "UINT16" | "UINT32" => {
            let values = contents.unsigned_ints.iter();
            values.map(|value| Scalar::Unsigned((*value).into())).collect()
        }
        "UINT64" => contents
            .unsigned_longs
            .iter()
            .copied()
            .map(Scalar::Unsigned)
            .collect(),
        "FP32" => contents
            .floats
            .iter()
            .map(|value| Scalar::Float((*value).into()))
            .collect(),
        "FP64" => contents.doubles.iter().copied().map(Scalar::Float).collect(),
        _ => Vec::new(),
    }
}

/// The deadline as gRPC writes it: at most 8 digits and a unit, `200m` for 200 milliseconds.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = (digits.len() <= 8).then(|| digits.parse().ok())??;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_as_grpc_writes_them() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            deadline(&headers)
        };
        assert_eq!(of("200m"), Some(Duration::from_millis(200)));
        assert_eq!(of("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for wrong in ["", "m", "200", "123456789S", "-1S", "1s", "é"] {
            let mut headers = HeaderMap::new();
            headers.insert(
                "grpc-timeout",
                http::HeaderValue::from_bytes(wrong.as_bytes()).unwrap(),
            );
            assert_eq!(deadline(&headers), None, "{wrong}");
        }
    }

    #[test]
    fn contents_and_raw_contents_say_the_same() {
        let tensor = |contents| InferTensor {
            name: "x".into(),
            datatype: "FP32".into(),
            shape: vec![2],
            contents,
            ..InferTensor::default()
        };
        let typed = Contents {
            floats: vec![1.0, -2.0],
            ..Contents::default()
        };
        let raw: Vec<u8> = [1f32, -2.0]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let (one, other) = (
            inputs(vec![tensor(Some(typed))], Vec::new()).unwrap(),
            inputs(vec![tensor(None)], vec![raw.into()]).unwrap(),
        );
        let (Value::Tensor(one), Value::Tensor(other)) = (&one[0].1, &other[0].1) else {
            panic!("{one:?}")
        };
        assert_eq!(one, other);
        for (tensors, raw, says) in [
            (vec![tensor(None)], vec![Bytes::new(); 2], "2 raw contents"),
            (vec![tensor(None)], vec![], "x"),
            (
                vec![InferTensor {
                    shape: vec![-1],
                    ..tensor(None)
                }],
                vec![],
                "is no shape",
            ),
        ] {
            let error = inputs(tensors, raw).unwrap_err();
            assert!(error.message.contains(says), "{error}");
        }
    }
}
