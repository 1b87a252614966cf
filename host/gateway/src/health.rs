//! gRPC's own way to ask whether a server answers (`grpc.health.v1`): probes of Kubernetes and of load balancers do. The messages are
//! written down here, as those of `inference` are.

use crate::inference::no_method;
use crate::refusal::Speaks;
use crate::span;
use crate::target::{GRPC_HEALTH, GRPC_SERVICE};
use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use prost::Message;
use std::future::{Ready, ready};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Bytes: the longest question. It holds the name of a service.
const MOST_BYTES: usize = 1 << 10;

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

#[derive(Clone, Message, PartialEq)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, Copy, Message, PartialEq)]
struct HealthCheckResponse {
    /// An enumeration: [`SERVING`] or [`NOT_SERVING`].
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Answers one question. It takes as long as its body does to come.
pub(crate) async fn answer<B>(is_ready: bool, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError> + Send,
{
    match request.uri().path().strip_prefix(GRPC_HEALTH) {
        Some("Check") => {
            let codec = ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(MOST_BYTES);
            grpc.unary(Check { is_ready }, request).await.map(Body::new)
        }
        Some("Watch") => no_method("`Watch` is not there: use `Check`".to_owned()).response(Speaks::Grpc),
        other => {
            let asked = span::cut(other.unwrap_or_default());
            no_method(format!("there is no method `{asked}`")).response(Speaks::Grpc)
        }
    }
}

struct Check {
    is_ready: bool,
}

impl UnaryService<HealthCheckRequest> for Check {
    type Response = HealthCheckResponse;
    type Future = Ready<Result<tonic::Response<HealthCheckResponse>, Status>>;

    fn call(&mut self, asked: tonic::Request<HealthCheckRequest>) -> Self::Future {
        let service = asked.into_inner().service;
        ready(
            match service.is_empty() || service == GRPC_SERVICE.trim_matches('/') {
                true => Ok(tonic::Response::new(HealthCheckResponse {
                    status: if self.is_ready { SERVING } else { NOT_SERVING },
                })),
                false => Err(Status::new(
                    Code::NotFound,
                    format!("there is no service `{service}`"),
                )),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};

    /// The status of gRPC, and that of the service.
    async fn asked(method: &str, service: &str, is_ready: bool) -> (Code, Option<i32>) {
        let message = HealthCheckRequest {
            service: service.to_owned(),
        };
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let body = [&[0], &length[..], &message].concat();
        let request = Request::post(format!("{GRPC_HEALTH}{method}")).body(Full::new(Bytes::from(body)));
        let response = answer(is_ready, request.unwrap()).await;
        if let Some(status) = Status::from_header_map(response.headers()) {
            return (status.code(), None);
        }
        let body = response.into_body().collect().await.unwrap();
        let status = Status::from_header_map(body.trailers().unwrap()).unwrap();
        let answer = HealthCheckResponse::decode(&body.to_bytes()[5..]).unwrap();
        (status.code(), Some(answer.status))
    }

    #[tokio::test]
    async fn a_probe_is_told_whether_the_gateway_answers() {
        for service in ["", "inference.GRPCInferenceService"] {
            assert_eq!(asked("Check", service, true).await, (Code::Ok, Some(SERVING)));
            assert_eq!(
                asked("Check", service, false).await,
                (Code::Ok, Some(NOT_SERVING))
            );
        }
        assert_eq!(asked("Check", "other", true).await, (Code::NotFound, None));
        assert_eq!(asked("Watch", "", true).await, (Code::Unimplemented, None));
        let (code, _) = asked("Check", &"a".repeat(MOST_BYTES), true).await;
        assert_eq!(code, Code::OutOfRange);
    }
}
