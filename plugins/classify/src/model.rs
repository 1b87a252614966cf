//! The node's model, as it is asked for digits.

use crate::exports::karman::task::handler::Error;
use crate::nn;
use crate::wasi::nn::tensor::{Tensor, TensorType};

const CLASSES: usize = 10;

/// The probability of each digit, by the model of this name.
pub(crate) fn run(name: &str, picture: &[f32; 64]) -> Result<[f32; CLASSES], Error> {
    let bytes: Vec<u8> = picture.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    let image = Tensor::new(&[1, 1, 8, 8], TensorType::Fp32, &bytes);
    let (ty, length) = (TensorType::Fp32, CLASSES * 4);
    let data = nn::compute(
        name,
        ("image", image),
        "probabilities",
        ty,
        length,
        "classify digits",
    )?;
    let mut probabilities = [0.0; CLASSES];
    for (number, bytes) in probabilities.iter_mut().zip(data.as_chunks().0) {
        *number = f32::from_le_bytes(*bytes);
    }
    match probabilities.iter().all(|number| number.is_finite()) {
        true => Ok(probabilities),
        false => Err(Error::Failed(format!(
            "model `{name}` gives a probability that is not a number; it does not classify digits"
        ))),
    }
}
