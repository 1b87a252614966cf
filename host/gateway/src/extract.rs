//! What handlers are given of a request's head, or why it is refused.

use crate::access::{Caller, Right};
use crate::refusal::Refusal;
use axum::Extension;
use axum::extract::FromRequestParts;
use http::request::Parts;
use karman_node::{read_path, read_query};
use karman_types::TaskError;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// What a path names.
pub(crate) struct InPath<T>(pub(crate) T);

impl<S, T> FromRequestParts<S> for InPath<T>
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
pub(crate) struct InQuery<T>(pub(crate) T);

impl<S, T> FromRequestParts<S> for InQuery<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        Ok(Self(read_query(parts, state).await?))
    }
}

/// That the caller may change who runs what, and who belongs to the mesh. That is for callers that can be told apart: with a token, even
/// where it is open to everybody. It stands before what else a handler takes, so that who may not is told nothing but that.
pub(crate) struct MayManage;

impl<S: Send + Sync> FromRequestParts<S> for MayManage {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let caller = Extension::<Arc<Caller>>::from_request_parts(parts, state).await;
        let Extension(caller) = caller.map_err(|rejection| TaskError::internal(rejection.body_text()))?;
        if !caller.is_anyone() {
            return caller.must(&Right::Manage).map(|()| Self);
        }
        let error = TaskError::denied("this takes a token, whatever is open").with_field("authorization");
        let hint = "`karman token issue NAME --right manage` on the gateway's machine makes one";
        Err(Refusal::unauthorized(error.with_hint(hint)))
    }
}
