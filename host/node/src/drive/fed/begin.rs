//! What a run begins with, or goes on from: a description that can be followed, and its coordinator.

use super::strategy;
use super::wire::{self, Frames};
use karman_engine::Plugin;
use karman_fed::{Array, Checkpoint, Coordinator, Layout, Processor, Run};
use karman_types::TaskError;
use std::sync::Arc;

/// What a run is given by whoever drives it.
#[derive(Default)]
pub(super) struct Start {
    /// The model to begin with; nothing where a client begins it.
    pub(super) first: Option<Frames>,
    /// The plugin that is its strategy, where its description names one.
    pub(super) brings: Option<Arc<Plugin>>,
}

/// Whether a node, or this process, can drive a run by this description.
///
/// # Errors
/// `invalid` with the field that is missing or wrong.
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
    match run.strategy.plugin() {
        Some(named) if named.plugin.is_empty() => wrong(
            "strategy.plugin",
            "the description does not say which plugin is its strategy: `[strategy]` with `plugin = \"…\"`",
        ),
        _ => Ok(()),
    }
}

/// The coordinator of a run that begins with this model. `brings` is the plugin that its description names as its strategy, if it does.
///
/// # Errors
/// `invalid`, of `model`, for arrays that are no model; those of [`strategy::built`].
pub(super) fn begun(
    run: Run,
    model: &Frames,
    brings: Option<&Arc<Plugin>>,
) -> Result<Coordinator, TaskError> {
    let invalid = |error: &dyn std::fmt::Display| TaskError::invalid(error.to_string()).with_field("model");
    let arrays = wire::arrays(model)?;
    let shapes = arrays.iter().map(|array| {
        Ok(Array {
            name: array.name.clone(),
            shape: wire::shape_of(array)?,
        })
    });
    let layout = Layout::new(shapes.collect::<Result<_, TaskError>>()?).map_err(|error| invalid(&error))?;
    layout.check_names().map_err(|error| invalid(&error))?;
    let numbers = arrays.into_iter().flat_map(|array| array.values).collect();
    let strategy = strategy::built(&run, &layout, brings)?;
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
/// A checkpoint that cannot be gone on from; those of [`strategy::built`].
pub(super) fn resumed(
    checkpoint: Checkpoint,
    brings: Option<&Arc<Plugin>>,
) -> Result<Coordinator, TaskError> {
    let run = checkpoint.run();
    let strategy = strategy::built(run, checkpoint.layout(), brings)?;
    let selection = run.selection.build();
    Coordinator::resume(checkpoint, strategy, selection, Arc::new(Processor))
        .map_err(|error| TaskError::internal(error.to_string()))
}
