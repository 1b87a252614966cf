//! One question to one of the node's models, through `wasi:nn`. Plugins that ask models take this file in by its path.

use crate::exports::karman::task::handler::Error;
use crate::wasi::nn::errors::{Error as NnError, ErrorCode};
use crate::wasi::nn::graph::load_by_name;
use crate::wasi::nn::tensor::{Tensor, TensorType};

/// What the model of this name gives as `output` for one input: so many bytes of this type. One that gives anything else is not a
/// model that `does` this.
pub(crate) fn compute(
    model: &str,
    (input, tensor): (&str, Tensor),
    output: &str,
    ty: TensorType,
    bytes: usize,
    does: &str,
) -> Result<Vec<u8>, Error> {
    let explain = |error: NnError| explain(model, &error);
    let session = load_by_name(model)
        .and_then(|graph| graph.init_execution_context())
        .map_err(explain)?;
    let outputs = session.compute(vec![(input.into(), tensor)]).map_err(explain)?;
    let odd = |what: String| Error::Failed(format!("model `{model}` {what}; it does not {does}"));
    let given = outputs.iter().find(|(name, _)| name == output);
    let (_, given) = given.ok_or_else(|| odd(format!("has no output `{output}`")))?;
    let data = given.data();
    match given.ty() == ty && data.len() == bytes {
        true => Ok(data),
        false => Err(odd(format!(
            "gives `{output}` that is not {bytes} bytes of type {ty:?}"
        ))),
    }
}

fn explain(model: &str, error: &NnError) -> Error {
    let message = format!("model `{model}`: {}", error.data());
    match error.code() {
        ErrorCode::NotFound => Error::Unavailable(message),
        ErrorCode::Security => Error::Denied(message),
        ErrorCode::Timeout => Error::Deadline(message),
        ErrorCode::TooLarge => Error::Limit(message),
        _ => Error::Failed(message),
    }
}
