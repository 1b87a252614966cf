//! A slower processor than there is, for rehearsals.

use super::blocking;
use crate::config::ComputeProfile;
use cpu_time::ThreadTime;
use karman_types::TaskError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

/// Runs models at the pace of the node's compute profile. A share of a real processor would not do: it lets short work through
/// at full speed. So each run is followed by a wait, and the next one waits for that.
#[derive(Debug)]
pub(crate) struct Pace {
    slowdown: f64,
    processor: Arc<Semaphore>,
}

impl Pace {
    pub(crate) fn new(profile: &ComputeProfile) -> Self {
        Self {
            slowdown: profile.slowdown,
            processor: Arc::new(Semaphore::new(1)),
        }
    }

    /// How many times slower than this machine.
    pub(crate) const fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// Runs a blocking step, and how long it took: where it `stays`, on the thread that asks, if there are others to go on with what else
    /// that has to do.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        stays: bool,
        step: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
    ) -> Result<(T, Duration), TaskError> {
        let emulated = self.slowdown > 1.0;
        let processor = match emulated {
            true => self.processor.clone().acquire_owned().await.ok(),
            false => None,
        };
        let timed = move || {
            // A back-end with more threads than this one uses them beside it, so an emulated node has one.
            let (started, computing) = (Instant::now(), ThreadTime::now());
            let done = step()?;
            Ok((done, computing.elapsed(), started.elapsed(), processor))
        };
        // It has the processor until its wait is over, and where nobody waits for it any more until it is done.
        let (done, computed, mut took, _processor) = match stays && !emulated && has_other_threads() {
            true => block_in_place(timed)?,
            false => blocking(timed).await?,
        };
        if emulated {
            let wait = computed.mul_f64(self.slowdown - 1.0);
            tokio::time::sleep(wait).await;
            took += wait;
        }
        Ok((done, took))
    }
}

fn has_other_threads() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}
