//! Low-rank adapters that a client trains in place of the model: arrays after those of the model, which then stays as it is.

use super::wire::{Frames, Work};
use karman_engine::learn::Array;
use karman_tensor::encode::Encoded;
use karman_types::TaskError;

/// The end of the name of a factor whose first dimension is the rank.
const FIRST_FACTOR: &str = ".lora-a";

/// Whether the adapters of an order are of no larger rank than the operator of this node allows. The driver was told; it may come from
/// anyone all the same.
///
/// # Errors
/// `limit`, of `federated.adapter-rank`, when they are of a larger one; `invalid` when they are no arrays.
pub(super) fn check(work: &Work, most: Option<u32>) -> Result<(), TaskError> {
    match (work, most) {
        (Work::Train { adapters, .. }, Some(most)) => check_frames(adapters, most),
        _ => Ok(()),
    }
}

fn check_frames(adapters: &Frames, most: u32) -> Result<(), TaskError> {
    for (name, frame) in adapters.iter().filter(|(name, _)| name.ends_with(FIRST_FACTOR)) {
        let name = name.escape_debug();
        let encoded = Encoded::from_bytes(frame)
            .map_err(|error| TaskError::invalid(format!("`{name}`: {error}")).with_field("model"))?;
        let rank = encoded.shape().dims().first().copied().unwrap_or(0);
        if rank > most {
            let says = format!("`{name}` is of rank {rank}; clients of this node train up to {most}");
            return Err(TaskError::limit(says)
                .with_field("federated.adapter-rank")
                .with_hint("its operator sets it in node.toml"));
        }
    }
    Ok(())
}

/// Of what a training has changed, array by array, that of the adapters: they come after the arrays of the model.
///
/// # Errors
/// In words, when an array of the model has changed.
pub(super) fn alone(mut changes: Vec<Array>, of_model: usize) -> Result<Vec<Array>, String> {
    let adapters = changes.split_off(of_model.min(changes.len()));
    let moved = |array: &&Array| array.values.iter().any(|change| *change != 0.0);
    match changes.iter().find(moved) {
        None => Ok(adapters),
        Some(array) => Err(format!(
            "`{}` with other numbers, but trains adapters: the model stays as it was given",
            array.name.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests;
