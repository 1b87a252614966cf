//! A slower processor than there is, for rehearsals.

use super::blocking;
use crate::config::ComputeProfile;
use cpu_time::ThreadTime;
use karman_types::TaskError;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::{block_in_place, yield_now};
use tokio::time::sleep_until;

/// Lengths of inputs of which that is known: batches have a few.
const MOST_LENGTHS: usize = 64;

/// One run at a time keeps its thread from the others.
static KEEPS: Semaphore = Semaphore::const_new(1);

/// Where a run goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// On another thread than the one that asks.
    Elsewhere,
    /// On the thread that asks; another one takes over what else that has to do.
    Here,
    /// On the thread that asks, which keeps what else it has to do: after the run nobody has to be woken to go on with it. Where there are no
    /// other threads for what may not wait, or one is kept already, as [`Here`](Self::Here).
    HereBriefly,
}

/// What becomes of the thread that asks for a run.
enum Thread {
    GoesOn,
    IsReplaced,
    Waits(SemaphorePermit<'static>),
}

impl Place {
    fn thread(self) -> Thread {
        let threads = Handle::try_current().ok().filter(can_replace);
        let threads = threads.map_or(0, |runtime| runtime.metrics().num_workers());
        match self {
            Self::HereBriefly if threads > 1 => KEEPS.try_acquire().map_or(Thread::IsReplaced, Thread::Waits),
            Self::Here | Self::HereBriefly if threads > 0 => Thread::IsReplaced,
            _ => Thread::GoesOn,
        }
    }
}

fn can_replace(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread
}

/// Runs models at the pace of the node's compute profile. A share of a real processor would not do: it lets short work through
/// at full speed. So each run is followed by a wait, and the next one waits for that.
#[derive(Debug)]
pub(crate) struct Pace {
    slowdown: f64,
    processor: Arc<Semaphore>,
}

/// What the runs of one model compute on this machine when nothing disturbs them: the least of all so far on inputs of the same length. Of a
/// machine that others use, too, one run in a few takes half as long again, and for minutes all of them may take twice as long; times 24, that
/// would be a slower processor such as there is none.
#[derive(Debug, Default)]
pub(crate) struct Undisturbed {
    computed: Mutex<HashMap<usize, Duration>>,
}

impl Undisturbed {
    /// The same after another run.
    fn after(&self, bytes: usize, computed: Duration) -> Duration {
        let mut all = self.computed.lock();
        if all.len() >= MOST_LENGTHS && !all.contains_key(&bytes) {
            all.clear();
        }
        let least = all.entry(bytes).or_insert(computed);
        *least = computed.min(*least);
        *least
    }
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

    /// Runs a blocking step on inputs of this length at this place, and how long it took.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        place: Place,
        (undisturbed, bytes): (&Undisturbed, usize),
        step: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
    ) -> Result<(T, Duration), TaskError> {
        let emulated = self.slowdown > 1.0;
        let (processor, place) = match emulated {
            true => (
                self.processor.clone().acquire_owned().await.ok(),
                Place::Elsewhere,
            ),
            false => (None, place),
        };
        let timed = move || {
            // A back-end with more threads than this one uses them beside it, so an emulated node has one.
            let (started, computing) = (Instant::now(), ThreadTime::now());
            let done = step()?;
            Ok((done, computing.elapsed(), started, started.elapsed(), processor))
        };
        // It has the processor until its wait is over, and where nobody waits for it any more until it is done.
        let (done, computed, started, took, _processor) = match place.thread() {
            Thread::GoesOn => blocking(timed).await?,
            Thread::IsReplaced => block_in_place(timed)?,
            Thread::Waits(_alone) => {
                // What came before, over the network as well, has its turn first.
                yield_now().await;
                timed()?
            }
        };
        if !emulated {
            return Ok((done, took));
        }
        let whole = undisturbed.after(bytes, computed).mul_f64(self.slowdown);
        sleep_until((started + whole).into()).await;
        Ok((done, took.max(whole)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_disturbs_a_run_is_not_multiplied() {
        let (runs, ms) = (Undisturbed::default(), Duration::from_millis);
        assert_eq!(runs.after(10, ms(5)), ms(5));
        assert_eq!(runs.after(10, ms(3)), ms(3));
        for _ in 0..1000 {
            assert_eq!(runs.after(10, ms(6)), ms(3), "however long the machine is slower");
        }
        assert_eq!(runs.after(80, ms(20)), ms(20), "a batch takes longer");
        for bytes in 0..1000 {
            runs.after(bytes, ms(1));
        }
        assert!(runs.computed.lock().len() <= MOST_LENGTHS);
    }

    #[tokio::test]
    async fn a_run_takes_some_times_as_long_as_it_computes() {
        let profile = ComputeProfile {
            slowdown: 20.0,
            ..ComputeProfile::default()
        };
        let (pace, runs) = (Pace::new(&profile), Undisturbed::default());
        let computes = || {
            let computing = ThreadTime::now();
            while computing.elapsed() < Duration::from_millis(2) {}
            Ok(())
        };
        let started = Instant::now();
        let ((), took) = pace.run(Place::Elsewhere, (&runs, 1), computes).await.unwrap();
        assert!(took >= Duration::from_millis(40), "{took:?}");
        assert!(started.elapsed() >= took);
    }
}
