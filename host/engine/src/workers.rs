//! Threads for calls that take long: apart from those of the network, which such calls would hold up.

use crate::epoch::Runs;
use std::panic::catch_unwind;
use std::sync::{Arc, OnceLock};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// The engine's own threads, where calls go on that outlive their first tick. They are started for the first of these: most
/// programs that call a plugin need none.
pub(crate) struct Workers {
    count: Option<usize>,
    runs: Arc<Runs>,
    runtime: OnceLock<Option<Runtime>>,
}

impl Workers {
    /// This many; as many as there are cores where nothing is said. Guests are counted in `runs`, wherever they run.
    pub(crate) const fn new(count: Option<usize>, runs: Arc<Runs>) -> Self {
        Self {
            count,
            runs,
            runtime: OnceLock::new(),
        }
    }

    /// Where guests are counted while they run: here, and where they came.
    pub(crate) const fn runs(&self) -> &Arc<Runs> {
        &self.runs
    }

    /// Runs this on the workers; where the system gives no more threads, on those of the caller.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // tokio panics where it gets no thread at all.
        let count = self.count;
        let start = || catch_unwind(move || start(count)).unwrap_or(None);
        match self.runtime.get_or_init(start) {
            Some(runtime) => runtime.spawn(future),
            None => tokio::spawn(future),
        }
    }
}

fn start(count: Option<usize>) -> Option<Runtime> {
    let cores = || std::thread::available_parallelism().map_or(2, usize::from);
    Builder::new_multi_thread()
        .worker_threads(count.unwrap_or_else(cores))
        .thread_name("karman-guest")
        // A long call gives way once per epoch tick; without these, its worker would look for other work and for I/O only
        // every few dozen ticks.
        .global_queue_interval(1)
        .event_interval(1)
        .enable_all()
        .build()
        .inspect_err(|error| tracing::warn!(%error, "no threads for long calls: they stay where they came"))
        .ok()
}

impl Drop for Workers {
    fn drop(&mut self) {
        // The last handle may go away on one of the workers, where waiting for them is not possible.
        if let Some(Some(runtime)) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn threads_are_started_for_the_first_who_needs_them() {
        let workers = Workers::new(Some(1), Arc::default());
        assert!(workers.runtime.get().is_none());
        let there = workers.spawn(async { std::thread::current().name().map(str::to_owned) });
        assert_eq!(there.await.unwrap().as_deref(), Some("karman-guest"));
    }

    #[tokio::test]
    async fn without_threads_calls_go_on_where_they_came() {
        // tokio panics at no threads, as it does where the system gives none.
        let workers = Workers::new(Some(0), Arc::default());
        let here = std::thread::current().id();
        let there = workers.spawn(async { std::thread::current().id() });
        assert_eq!(there.await.unwrap(), here);
        assert!(workers.runtime.get().is_some_and(Option::is_none));
    }
}
