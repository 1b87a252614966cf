//! A run that begins with a model of its driver's node, and the ONNX file that it ends as.

use super::record::Record;
use super::wire::{self, Frames};
use crate::services::{infer_error, store_error};
use karman_engine::learn::Array;
use karman_fed::Run;
use karman_infer::{ModelLimits, Weight, weights, with_weights};
use karman_store::Store;
use karman_types::TaskError;

/// The weights of the model that a run begins with; nothing where a client begins it.
///
/// # Errors
/// `unavailable` when this node has no such model, `invalid` when it has nothing to learn; what the disk refuses.
pub(super) fn first_frames(
    store: &Store,
    run: &Run,
    limits: &ModelLimits,
) -> Result<Option<Frames>, TaskError> {
    let Some(name) = &run.model else {
        return Ok(None);
    };
    let known = weights(&file(store, name)?, limits).map_err(infer_error)?;
    if known.is_empty() {
        let says = format!("the model `{name}` has no weights that are learnt");
        return Err(TaskError::invalid(says).with_field("model"));
    }
    let arrays: Vec<Array> = known
        .into_iter()
        .map(|weight| Array {
            name: weight.name,
            shape: weight.shape,
            values: weight.values,
        })
        .collect();
    wire::frames_of(&arrays).map(Some)
}

/// The model that a run began with, with the weights that it has made so far, as an ONNX file.
///
/// # Errors
/// `invalid` when there is no such run, or it did not begin with a model; `unavailable` when it has not begun; what does not fit
/// any more where the node has another model of that name by now.
pub fn stored_onnx(store: &Store, run: &str, limits: &ModelLimits) -> Result<Vec<u8>, TaskError> {
    let record = Record::read(store, run)?.ok_or_else(|| super::record::unknown(run))?;
    let name = record.run.model.as_ref().ok_or_else(|| {
        TaskError::invalid(format!(
            "`{run}` did not begin with a model, so there is no ONNX file of it"
        ))
        .with_field("model")
        .with_hint("`karman fed export` without --onnx writes its arrays as safetensors")
    })?;
    let made = record.model()?;
    let mut rest = &made.numbers[..];
    let mut learnt = Vec::new();
    for array in made.layout.arrays() {
        let count = array.shape.elements().unwrap_or(u64::MAX) as usize;
        let (values, more) = rest
            .split_at_checked(count)
            .ok_or_else(|| TaskError::internal("a model is shorter than its layout"))?;
        rest = more;
        learnt.push(Weight {
            name: array.name.clone(),
            shape: array.shape.dims().to_vec(),
            values: values.to_vec(),
        });
    }
    with_weights(&file(store, name)?, &learnt, limits).map_err(infer_error)
}

fn file(store: &Store, name: &str) -> Result<bytes::Bytes, TaskError> {
    let model = store.models().get(name).map_err(store_error)?;
    let model = model.ok_or_else(|| {
        TaskError::unavailable(format!("this node has no model `{name}`"))
            .with_field("model")
            .with_hint(format!("karman model add {name} FILE.onnx"))
    })?;
    store.blobs().read(&model.digest).map_err(store_error)
}
