//! Which thread a run of a model takes: the one that asks for it, or another.

use super::blocking;
use karman_types::TaskError;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::{block_in_place, yield_now};

/// One run at a time keeps its thread from what else that has to do.
static ALONE: Semaphore = Semaphore::const_new(1);

/// The thread of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Thread {
    /// Another than the one that asks.
    Another,
    /// The one that asks; another one takes over what else that has to do.
    Asking,
    /// The one that asks, which keeps what else it has to do: after the run nobody has to be woken to go on. Where no other thread is left for
    /// what may not wait, as [`Asking`](Self::Asking).
    AskingBriefly,
}

impl Thread {
    /// Runs a blocking step on it.
    ///
    /// # Errors
    /// Those of the step.
    pub(super) async fn run<T: Send + 'static>(
        self,
        step: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let threads = threads_that_replace_each_other();
        if self == Self::AskingBriefly
            && threads > 1
            && let Ok(_alone) = ALONE.try_acquire()
        {
            // What came before, over the network as well, has its turn first.
            yield_now().await;
            return step();
        }
        match self {
            Self::Asking | Self::AskingBriefly if threads > 0 => block_in_place(step),
            _ => blocking(step).await,
        }
    }
}

fn threads_that_replace_each_other() -> usize {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            runtime.metrics().num_workers()
        }
        _ => 0,
    }
}
