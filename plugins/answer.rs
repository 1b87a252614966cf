//! Answers in JSON, and what is said of input that is none. Plugins take this file in by its path.

use crate::exports::karman::task::handler::{Error, Response};
use crate::karman::task::types::InvalidInput;
use serde::Serialize;

/// An answer in JSON.
pub(crate) fn json(answer: &impl Serialize) -> Result<Response, Error> {
    Ok(Response {
        content_type: "application/json".into(),
        metadata: Vec::new(),
        body: serde_json::to_vec(answer).map_err(|error| Error::Internal(error.to_string()))?,
    })
}

/// A field of the input that is refused, and why.
#[allow(dead_code, reason = "there are plugins that take any input")]
pub(crate) fn invalid(field: &str, message: String) -> Error {
    let field = Some(field.into());
    Error::Invalid(InvalidInput { message, field })
}
