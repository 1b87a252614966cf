//! The node's model, through `wasi:nn`.

use crate::exports::karman::task::handler::Error;
use crate::wasi::nn::errors::{Error as NnError, ErrorCode};
use crate::wasi::nn::graph::load_by_name;
use crate::wasi::nn::tensor::{Tensor, TensorType};

const CLASSES: usize = 10;

/// The probability of each digit, by the model of this name.
pub(crate) fn run(name: &str, picture: &[f32; 64]) -> Result<[f32; CLASSES], Error> {
    let explain = |error: NnError| explain(name, &error);
    let bytes: Vec<u8> = picture.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    let image = Tensor::new(&[1, 1, 8, 8], TensorType::Fp32, &bytes);
    let session = load_by_name(name)
        .and_then(|graph| graph.init_execution_context())
        .map_err(explain)?;
    let outputs = session.compute(vec![("image".into(), image)]).map_err(explain)?;
    let output = outputs.iter().find(|(name, _)| name == "probabilities");
    let odd = |what: &str| Error::Failed(format!("model `{name}` {what}; it does not classify digits"));
    let (_, tensor) = output.ok_or_else(|| odd("has no output `probabilities`"))?;
    let data = tensor.data();
    if tensor.ty() != TensorType::Fp32 || data.len() != CLASSES * 4 {
        return Err(odd("gives `probabilities` that are not 10 numbers of type f32"));
    }
    let mut probabilities = [0.0; CLASSES];
    for (number, bytes) in probabilities.iter_mut().zip(data.chunks_exact(4)) {
        *number = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    if probabilities.iter().any(|number| !number.is_finite()) {
        return Err(odd("gives a probability that is not a number"));
    }
    Ok(probabilities)
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
