//! What a run begins with, or goes on from: a description that can be followed, and its coordinator.

use super::wire::{self, Frames};
use karman_fed::{Array, Checkpoint, Coordinator, Layout, Processor, Run};
use karman_types::TaskError;
use std::sync::Arc;

/// Whether a node, or this process, can drive a run by this description.
///
/// # Errors
/// `invalid` with the field that is missing or wrong; `unavailable` for what is described but not there yet.
pub fn check_run(run: &Run) -> Result<(), TaskError> {
    let wrong = |field: &str, says: &str| Err(TaskError::invalid(says).with_field(field));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if run.name.is_empty() || run.name.len() > 64 || !run.name.chars().all(plain) {
        return wrong(
            "name",
            "a run's name has 1 to 64 letters, digits, `-`, `_` or `.`",
        );
    }
    if run.clients.plugin.is_empty() {
        return wrong(
            "clients.plugin",
            "the description does not say which plugin trains: `[clients]` with `plugin = \"…\"`",
        );
    }
    match run.strategy.build() {
        Some(_) => Ok(()),
        None => Err(no_plugins()),
    }
}

/// The coordinator of a run that begins with this model.
///
/// # Errors
/// `invalid`, of `model`, for arrays that are no model.
pub(super) fn begun(run: Run, model: &Frames) -> Result<Coordinator, TaskError> {
    let invalid = |error: &dyn std::fmt::Display| TaskError::invalid(error.to_string()).with_field("model");
    let arrays = wire::arrays(model)?;
    let shapes = arrays.iter().map(|array| {
        Ok(Array {
            name: array.name.clone(),
            shape: wire::shape_of(array)?,
        })
    });
    let layout = Layout::new(shapes.collect::<Result<_, TaskError>>()?).map_err(|error| invalid(&error))?;
    let numbers = arrays.into_iter().flat_map(|array| array.values).collect();
    let strategy = run.strategy.build().ok_or_else(no_plugins)?;
    let selection = run.selection.build();
    let mut entropy = [0; 32];
    getrandom::fill(&mut entropy).map_err(|error| TaskError::internal(error.to_string()))?;
    Coordinator::new(
        run,
        layout,
        numbers,
        strategy,
        selection,
        Arc::new(Processor),
        entropy,
    )
    .map_err(|error| invalid(&error))
}

/// A coordinator that goes on from a checkpoint.
///
/// # Errors
/// A checkpoint that cannot be gone on from.
pub(super) fn resumed(checkpoint: Checkpoint) -> Result<Coordinator, TaskError> {
    let run = checkpoint.run();
    let strategy = run.strategy.build().ok_or_else(no_plugins)?;
    let selection = run.selection.build();
    Coordinator::resume(checkpoint, strategy, selection, Arc::new(Processor))
        .map_err(|error| TaskError::internal(error.to_string()))
}

fn no_plugins() -> TaskError {
    TaskError::unavailable("no node runs a plugin as `strategy` yet").with_field("strategy")
}
