//! What plugins reach outside the engine: the traits that the engine states, over this node's store, models and tasks.

mod batches;
mod buckets;
mod compute;
mod effects;
mod gpu_models;
mod loaded;
mod models;
mod pace;
mod settings;
mod thread;
mod turns;

pub(crate) use batches::BatchCounts;
pub(crate) use buckets::StoreBuckets;
pub(crate) use compute::NodeCompute;
pub use compute::{GpuUse, check_gpu};
pub(crate) use effects::{Carried, Effects, Origin};
pub(crate) use gpu_models::WithGpu;
pub use gpu_models::{Unfit, check_for_gpu, no_gpu_for, unfit_for_gpu};
pub(crate) use loaded::Loaded;
pub(crate) use models::Found;
pub use models::{ModelSource, NodeModels};
pub(crate) use settings::NodeSettings;
pub(crate) use turns::Meanwhile;

use karman_store::DISK;
use karman_types::TaskError;
use tracing::Instrument;

/// Whether a disk is to blame. That passes: what was accepted goes on then.
pub(crate) fn is_of_disk(error: &TaskError) -> bool {
    error.field.as_deref() == Some(DISK)
}

/// Why a node that stops does nothing more.
pub(crate) fn shutting_down() -> TaskError {
    TaskError::unavailable("the node is shutting down")
}

/// Runs a blocking step where it may block. Dropping the future stops waiting for it.
pub(crate) async fn blocking<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
) -> Result<T, TaskError> {
    tokio::task::spawn_blocking(step)
        .await
        .unwrap_or_else(|error| Err(TaskError::internal(format!("a step of the host failed: {error}"))))
}

/// Bytes that are read, hashed or written sooner than it takes to have that done elsewhere.
const SHORT: usize = 64 << 10;

/// Works on so many bytes: on another thread where they are many, for those of the connections have many connections each.
pub(crate) async fn apart<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
) -> Result<T, TaskError> {
    match bytes <= SHORT {
        true => work(),
        false => blocking(work).await,
    }
}

/// Does something that is not to be left half done: it goes on when nobody waits for it any more.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, TaskError>> + Send + 'static,
) -> Result<T, TaskError> {
    tokio::spawn(work.in_current_span())
        .await
        .unwrap_or_else(|error| Err(TaskError::internal(format!("it broke off: {error}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[tokio::test]
    async fn only_much_is_worked_on_elsewhere() {
        let here = thread::current().id();
        let on = || Ok(thread::current().id());
        assert_eq!(apart(SHORT, on).await.unwrap(), here);
        assert_ne!(apart(SHORT + 1, on).await.unwrap(), here);
    }
}
