use crate::access::{Caller, Right};
use crate::refusal::Refusal;
use axum::Extension;
use axum::extract::FromRequestParts;
use http::request::Parts;
use karman_types::TaskError;
use std::sync::Arc;

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
