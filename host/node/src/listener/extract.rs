use super::answer::Refusal;
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http::StatusCode;
use http::request::Parts;
use karman_types::TaskError;
use serde::de::DeserializeOwned;

/// What a path names, in the places that its route has for it. Where that does not read, the refusal is `invalid` with the field `path`.
pub struct InPath<T>(pub T);

impl<S, T> FromRequestParts<S> for InPath<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(named)) => Ok(Self(named)),
            Err(rejection) => Err(Refusal(
                TaskError::invalid(rejection.body_text()).with_field("path"),
            )),
        }
    }
}

/// What stands behind a path's question mark. Where that does not read, the refusal is `invalid` with the field `query`.
pub struct InQuery<T>(pub T);

impl<S, T> FromRequestParts<S> for InQuery<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(Refusal(
                TaskError::invalid(rejection.body_text()).with_field("query"),
            )),
        }
    }
}

/// What the body of a request says in JSON. Where that does not read, the refusal has the field `body`: `limit` where the body is longer than its
/// route takes, `invalid` otherwise.
pub(super) struct InBody<T>(pub T);

impl<S, T> FromRequest<S> for InBody<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(said)) => Ok(Self(said)),
            Err(rejection) => {
                let text = rejection.body_text();
                let error = match rejection.status() {
                    StatusCode::PAYLOAD_TOO_LARGE => TaskError::limit(text),
                    _ => TaskError::invalid(text),
                };
                Err(Refusal(error.with_field("body")))
            }
        }
    }
}
