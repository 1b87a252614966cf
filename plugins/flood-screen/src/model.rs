//! The node's model, through `wasi:nn`.

use crate::exports::karman::task::handler::Error;
use crate::wasi::nn::errors::{Error as NnError, ErrorCode};
use crate::wasi::nn::graph::load_by_name;
use crate::wasi::nn::tensor::{Tensor, TensorType};

/// Where the model of this name sees water, a byte for each pixel of each tile.
pub(crate) fn run(name: &str, count: usize, side: usize, pixels: &[u8]) -> Result<Vec<u8>, Error> {
    let explain = |error: NnError| explain(name, &error);
    let image = Tensor::new(
        &[count as u32, 3, side as u32, side as u32],
        TensorType::U8,
        pixels,
    );
    let session = load_by_name(name)
        .and_then(|graph| graph.init_execution_context())
        .map_err(explain)?;
    let outputs = session.compute(vec![("image".into(), image)]).map_err(explain)?;
    let output = outputs.iter().find(|(name, _)| name == "water");
    let odd = |what: &str| Error::Failed(format!("model `{name}` {what}; it does not look for water"));
    let (_, tensor) = output.ok_or_else(|| odd("has no output `water`"))?;
    let water = tensor.data();
    match tensor.ty() == TensorType::U8 && water.len() == count * side * side {
        true => Ok(water),
        false => Err(odd("gives `water` that is not a byte for each pixel")),
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
