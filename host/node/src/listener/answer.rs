use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Json};
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use karman_types::{ByteSize, ErrorKind, TaskError};
use serde_json::{Value, json};

/// An error as the body of an answer: the fields of the command line's `--json` errors.
pub fn error_json(error: &TaskError) -> Value {
    let mut body = json!({ "code": error.kind, "message": error.message });
    if let Some(hint) = &error.hint {
        body["hint"] = hint.as_str().into();
    }
    if let Some(field) = &error.field {
        body["field"] = field.as_str().into();
    }
    body
}

/// The status that tells an error over HTTP.
pub fn error_status(error: &TaskError) -> StatusCode {
    match (error.kind, error.field.as_deref()) {
        // A body over its limit has a status of its own; so has a limit on how many may call at once.
        (ErrorKind::Limit, Some("body")) => StatusCode::PAYLOAD_TOO_LARGE,
        // There is none of this name, which is another thing than one that does not answer.
        (ErrorKind::Unavailable, Some("task" | "model")) => StatusCode::NOT_FOUND,
        _ => StatusCode::from_u16(error.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

pub(crate) fn error_response(error: &TaskError) -> Response<Full<Bytes>> {
    let body = Full::new(error_json(error).to_string().into());
    let mut response = Response::new(body);
    *response.status_mut() = error_status(error);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

/// An error as the answer to a request, in JSON. Lets handlers use `?` on task errors.
pub struct Refusal(pub TaskError);

impl From<TaskError> for Refusal {
    fn from(error: TaskError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        (error_status(&self.0), Json(error_json(&self.0))).into_response()
    }
}

/// A path that is there, asked by a method that it does not take; the header `allow` names those that it does.
pub(crate) async fn other_method() -> impl IntoResponse {
    let error = TaskError::invalid("this path takes another method").with_field("method");
    let error = error.with_hint("the header `allow` names those that it takes");
    (StatusCode::METHOD_NOT_ALLOWED, Json(error_json(&error)))
}

/// A body that was to be read whole, of at most so many bytes.
pub(crate) fn whole(read: Result<Bytes, BytesRejection>, most: ByteSize) -> Result<Bytes, TaskError> {
    read.map_err(|rejection| {
        let error = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => TaskError::limit(format!("the body is longer than {most}")),
            _ => TaskError::invalid(rejection.body_text()),
        };
        error.with_field("body")
    })
}
