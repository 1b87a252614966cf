//! Several inputs as one, and the answer of each.

use crate::services::loaded::bytes_of;
use crate::services::{Loaded, Meanwhile, blocking};
use karman_engine::capability::nn::Tensors;
use karman_infer::{Joined, Named};
use karman_types::TaskError;
use std::time::Duration;

/// What is copied where it is asked for: longer copies would keep others on this thread waiting.
const MOST_COPIED: usize = 256 << 10;

/// Runs several requests at once: the answer of each, in order, and how long the run took. Where the back-end makes a plan for each size it
/// is padded to `size` with copies of the last.
///
/// # Errors
/// Those of the run, whichever of them is to blame.
pub(super) async fn run(
    loaded: &Loaded,
    mut requests: Vec<Named>,
    size: usize,
) -> Result<(Vec<Named>, Duration), TaskError> {
    if loaded.plans_each_size()
        && let Some(last) = requests.last().cloned()
    {
        requests.resize(size.max(requests.len()), last);
    }
    let joined = join(loaded, requests).await?;
    let inputs = joined.inputs().clone();
    let bytes = bytes_of(&inputs);
    let (outputs, took) = loaded.run_there(inputs, bytes, Meanwhile::Something).await?;
    Ok((apart(joined, outputs).await?, took))
}

/// Joins requests that fit together.
pub(super) async fn join(loaded: &Loaded, requests: Vec<Named>) -> Result<Joined, TaskError> {
    let (model, bytes) = (loaded.clone(), requests.iter().map(bytes_of).sum());
    let join = move || Joined::of(model.signature().0, &requests);
    let other = || TaskError::internal("requests to a model do not fit together");
    copied(bytes, join).await?.ok_or_else(other)
}

/// The answer of each.
pub(super) async fn apart(joined: Joined, outputs: Tensors) -> Result<Vec<Named>, TaskError> {
    let bytes = bytes_of(&outputs);
    copied(bytes, move || joined.apart(&outputs))
        .await?
        .map_err(TaskError::from)
}

async fn copied<T: Send + 'static>(
    bytes: usize,
    copy: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TaskError> {
    match bytes > MOST_COPIED {
        true => blocking(move || Ok(copy())).await,
        false => Ok(copy()),
    }
}
