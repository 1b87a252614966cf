use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::response::{IntoResponse, Json};
use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::Full;
use karman_types::{ByteSize, ErrorKind, TaskError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An error as the body of an answer: the fields of the command line's `--json` errors.
pub(crate) fn error_json(error: &TaskError) -> Value {
    let mut body = json!({ "code": error.kind, "message": error.message });
    if let Some(hint) = &error.hint {
        body["hint"] = hint.as_str().into();
    }
    if let Some(field) = &error.field {
        body["field"] = field.as_str().into();
    }
    body
}

pub(crate) fn status(error: &TaskError) -> StatusCode {
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
    *response.status_mut() = status(error);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

/// Lets handlers use `?` on task errors.
pub(crate) struct Refusal(pub(crate) TaskError);

impl From<TaskError> for Refusal {
    fn from(error: TaskError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        (status(&self.0), Json(error_json(&self.0))).into_response()
    }
}

/// A path that is there, asked by a method that it does not take; the header `allow` names those that it does.
pub(crate) async fn other_method() -> impl IntoResponse {
    let error = TaskError::invalid("this path takes another method").with_field("method");
    let error = error.with_hint("the header `allow` names those that it takes");
    (StatusCode::METHOD_NOT_ALLOWED, Json(error_json(&error)))
}

/// What a path names.
pub(crate) struct Named<T>(pub(crate) T);

impl<S, T> FromRequestParts<S> for Named<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        Ok(Self(read_path(parts, state).await?))
    }
}

/// What stands behind a path's question mark.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S, T> FromRequestParts<S> for Asked<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        Ok(Self(read_query(parts, state).await?))
    }
}

/// Reads what a path names, in the places that its route has for it.
///
/// # Errors
/// `invalid`, with the field `path`, when that does not read.
pub async fn read_path<T, S>(parts: &mut Parts, state: &S) -> Result<T, TaskError>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    match Path::<T>::from_request_parts(parts, state).await {
        Ok(Path(named)) => Ok(named),
        Err(rejection) => Err(TaskError::invalid(rejection.body_text()).with_field("path")),
    }
}

/// Reads what stands behind a path's question mark.
///
/// # Errors
/// `invalid`, with the field `query`, when that does not read.
pub async fn read_query<T, S>(parts: &mut Parts, state: &S) -> Result<T, TaskError>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    match Query::<T>::from_request_parts(parts, state).await {
        Ok(Query(asked)) => Ok(asked),
        Err(rejection) => Err(TaskError::invalid(rejection.body_text()).with_field("query")),
    }
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
