//! What strategies and selections keep from round to round, as bytes in a checkpoint.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A state that does not read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the state of `{of}` in the checkpoint does not read: {why}")]
pub struct StateError {
    /// Whose state.
    pub of: String,
    /// What is wrong with it.
    pub why: String,
}

/// Bytes of a state. Writing to memory does not fail for what strategies and selections are made of.
pub(crate) fn pack(state: &impl Serialize) -> Vec<u8> {
    cbor4ii::serde::to_vec(Vec::new(), state).unwrap_or_default()
}

pub(crate) fn unpack<T: DeserializeOwned>(of: &str, bytes: &[u8]) -> Result<T, StateError> {
    cbor4ii::serde::from_slice(bytes).map_err(|error| StateError {
        of: of.into(),
        why: error.to_string(),
    })
}

/// The state of most strategies: some arrays as long as the model, or empty before the first round.
#[derive(Deserialize, Serialize)]
struct Arrays(#[serde(with = "crate::floats::several")] Vec<Vec<f32>>);

pub(crate) fn pack_arrays<const N: usize>(arrays: [&Vec<f32>; N]) -> Vec<u8> {
    pack(&Arrays(arrays.into_iter().cloned().collect()))
}

pub(crate) fn unpack_arrays<const N: usize>(of: &str, bytes: &[u8]) -> Result<[Vec<f32>; N], StateError> {
    let Arrays(arrays) = unpack(of, bytes)?;
    arrays.try_into().map_err(|arrays: Vec<_>| StateError {
        of: of.into(),
        why: format!("it has {} arrays instead of {N}", arrays.len()),
    })
}
