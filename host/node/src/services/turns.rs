//! The runs of one model, each in its turn: no more at once than its back-end runs, and short ones where they are asked for.

use super::pace::Pace;
use cpu_time::ThreadTime;
use karman_types::TaskError;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Runs that take less are done on the thread that asks: the way to another one and back takes about as long, and keeps two threads
/// busy. Longer ones would keep others on this thread waiting.
const QUICK: Duration = Duration::from_micros(150);
/// How much one run counts in the mean.
const WEIGHT: f64 = 0.1;

/// The turns of one model.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Semaphore,
    seen: Mutex<Option<Seen>>,
}

/// What its runs computed.
#[derive(Clone, Copy, Debug)]
struct Seen {
    mean: Duration,
    /// The longest inputs of those that were quick.
    bytes: usize,
}

impl Turns {
    /// For a model of which this many runs go on at once.
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            places: Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)),
            seen: Mutex::new(None),
        }
    }

    /// Runs a step on inputs of this length when it is its turn, and how long it took from then on.
    ///
    /// # Errors
    /// Those of the step.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        pace: &Pace,
        bytes: usize,
        step: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
    ) -> Result<(T, Duration), TaskError> {
        let _place = self.places.acquire().await.ok();
        if pace.slowdown() <= 1.0 && self.is_quick(bytes) {
            let started = Instant::now();
            let done = step()?;
            let took = started.elapsed();
            // Whether one that took longer has computed or waited for a core is left to the next, which is measured.
            match took < QUICK {
                true => self.saw(bytes, took),
                false => *self.seen.lock() = None,
            }
            return Ok((done, took));
        }
        // What it computes, not what it waits: a busy machine makes no run longer.
        let measured = move || {
            let computing = ThreadTime::now();
            let done = step()?;
            Ok((done, computing.elapsed()))
        };
        let ((done, computed), took) = pace.run(measured).await?;
        self.saw(bytes, computed);
        Ok((done, took))
    }

    fn is_quick(&self, bytes: usize) -> bool {
        let seen = *self.seen.lock();
        seen.is_some_and(|seen| seen.mean < QUICK && bytes <= seen.bytes)
    }

    fn saw(&self, bytes: usize, computed: Duration) {
        let mut seen = self.seen.lock();
        let before = seen.unwrap_or(Seen {
            mean: computed,
            bytes: 0,
        });
        // That it is rare makes a long run no shorter.
        let bytes = if computed < QUICK { bytes } else { 0 };
        let mean = before.mean.mul_f64(1.0 - WEIGHT) + computed.mul_f64(WEIGHT);
        *seen = Some(Seen {
            mean,
            bytes: before.bytes.max(bytes),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ComputeProfile;
    use std::thread::{ThreadId, current};

    async fn ran_on(turns: &Turns, bytes: usize) -> ThreadId {
        let pace = Pace::new(&ComputeProfile::default());
        turns.run(&pace, bytes, || Ok(current().id())).await.unwrap().0
    }

    #[tokio::test]
    async fn short_runs_stay_where_they_are_asked_for_and_others_do_not() {
        let turns = Turns::new(2);
        assert_ne!(ran_on(&turns, 10).await, current().id(), "nobody knows yet");
        *turns.seen.lock() = Some(Seen {
            mean: QUICK / 3,
            bytes: 10,
        });
        assert_eq!(ran_on(&turns, 10).await, current().id());
        assert_ne!(ran_on(&turns, 11).await, current().id(), "longer than any before");
        turns.saw(10, QUICK * 20);
        assert_ne!(ran_on(&turns, 10).await, current().id(), "one took long");
    }

    #[test]
    fn that_most_are_short_makes_a_long_run_no_shorter() {
        let turns = Turns::new(1);
        turns.saw(1000, QUICK * 5);
        for _ in 0..100 {
            turns.saw(10, QUICK / 3);
        }
        assert!(turns.is_quick(10) && !turns.is_quick(1000));
    }

    #[tokio::test]
    async fn no_more_run_at_once_than_there_are_places() {
        let turns = Turns::new(1);
        let held = turns.places.try_acquire().unwrap();
        let mut waits = Box::pin(ran_on(&turns, 1));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(held);
        waits.await;
    }
}
