//! What is refused, as each protocol says it.

use axum::body::Body;
use axum::response::{IntoResponse, Json, Response};
use http::{HeaderValue, StatusCode, header};
use karman_node::{error_json, error_status};
use karman_types::{ErrorKind, TaskError};
use serde_json::json;
use std::time::Duration;
use tonic::Code;

/// An error on its way to a caller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) error: TaskError,
    status: StatusCode,
    retry_after: Option<Duration>,
}

/// How a caller wants to be told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Speaks {
    /// JSON with `code`, `message`, `hint` and `field`, as the node's own routes.
    Plain,
    /// JSON with `error`, as the inference protocol has it.
    Inference,
    /// A status of gRPC in the headers.
    Grpc,
}

impl Refusal {
    pub(crate) const fn new(status: StatusCode, error: TaskError) -> Self {
        Self {
            error,
            status,
            retry_after: None,
        }
    }

    /// Nobody knows who calls.
    pub(crate) const fn unauthorized(error: TaskError) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, error)
    }

    /// It may be tried again after this time.
    pub(crate) fn later(error: TaskError, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..Self::from(error)
        }
    }

    /// There is no such thing.
    pub(crate) const fn unknown(error: TaskError) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    /// What the caller asks for besides an answer cannot be had.
    pub(crate) const fn unmet(error: TaskError) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, error)
    }

    /// It is asked for in a way that there is not.
    pub(crate) const fn unimplemented(error: TaskError) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, error)
    }

    pub(crate) fn response(&self, speaks: Speaks) -> Response {
        let mut response = match speaks {
            Speaks::Plain => (self.status, Json(error_json(&self.error))).into_response(),
            Speaks::Inference => (self.status, Json(json!({ "error": self.words() }))).into_response(),
            Speaks::Grpc => self.clone().into_grpc().into_http::<Body>(),
        };
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if let Some(wait) = self.retry_after {
            // Whole seconds are all that the header has.
            let seconds = wait.as_secs_f64().ceil().clamp(1.0, 3600.0) as u64;
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn words(&self) -> String {
        match &self.error.hint {
            Some(hint) => format!("{}; {hint}", self.error.message),
            None => self.error.message.clone(),
        }
    }

    pub(crate) fn into_grpc(self) -> tonic::Status {
        let code = match self.status {
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::NOT_FOUND => Code::NotFound,
            StatusCode::PRECONDITION_FAILED => Code::FailedPrecondition,
            StatusCode::NOT_IMPLEMENTED => Code::Unimplemented,
            _ => match self.error.kind {
                ErrorKind::Failed => Code::Aborted,
                ErrorKind::Invalid => Code::InvalidArgument,
                ErrorKind::Denied => Code::PermissionDenied,
                ErrorKind::Unavailable => Code::Unavailable,
                ErrorKind::Deadline => Code::DeadlineExceeded,
                ErrorKind::Limit => Code::ResourceExhausted,
                ErrorKind::Cancelled => Code::Cancelled,
                ErrorKind::Internal => Code::Internal,
            },
        };
        tonic::Status::new(code, self.words())
    }
}

impl From<TaskError> for Refusal {
    fn from(error: TaskError) -> Self {
        Self::new(error_status(&error), error)
    }
}

impl From<karman_node::Refusal> for Refusal {
    fn from(karman_node::Refusal(error): karman_node::Refusal) -> Self {
        error.into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.response(Speaks::Plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn each_protocol_is_told_in_its_words() {
        let refusal = Refusal::later(
            TaskError::limit("too many").with_hint("wait"),
            Duration::from_millis(1200),
        );
        let plain = refusal.response(Speaks::Plain);
        assert_eq!(
            (plain.status(), &plain.headers()[header::RETRY_AFTER]),
            (StatusCode::TOO_MANY_REQUESTS, &HeaderValue::from(2))
        );
        let inference = refusal
            .response(Speaks::Inference)
            .into_body()
            .collect()
            .await
            .unwrap();
        assert_eq!(inference.to_bytes(), r#"{"error":"too many; wait"}"#);
        let grpc = refusal.response(Speaks::Grpc);
        assert_eq!(
            (grpc.status(), &grpc.headers()["grpc-status"]),
            (StatusCode::OK, &HeaderValue::from(8))
        );
    }

    #[test]
    fn what_is_not_there_is_told_from_what_does_not_answer() {
        let none = TaskError::unavailable("no model").with_field("model");
        assert_eq!(Refusal::from(none).status, StatusCode::NOT_FOUND);
        assert_eq!(
            Refusal::from(TaskError::unavailable("gone")).status,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }
}
