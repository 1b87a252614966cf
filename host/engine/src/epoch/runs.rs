//! When guests run, so that the clock may rest while none does.
//!
//! A guest runs only while its future is polled: one that waits for input, and one that is kept warm, need no clock.

use parking_lot::{Condvar, Mutex};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Counts the polls of guests, and holds the clock while there is none.
///
/// No guest runs while the clock rests, by the order of things: a guest counts itself, then looks whether the clock rests; the
/// clock says that it rests, then looks at the count. All of it is sequentially consistent, so one of the two sees the other.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    begun: AtomicUsize,
    ended: AtomicUsize,
    resting: AtomicBool,
    /// Held by the clock from when it says that it rests until it waits, so that nothing wakes it in between.
    falling_asleep: Mutex<()>,
    woken: Condvar,
}

impl Runs {
    /// Wakes the clock if it rests, and keeps it going until what this gives is dropped. Costs two additions while the clock goes.
    pub(crate) fn begin(&self) -> Running<'_> {
        self.count();
        Running(self)
    }

    /// Counts every poll of this future as a run.
    pub(crate) fn counted<F>(self: &Arc<Self>, future: F) -> Counted<F> {
        Counted {
            future,
            runs: self.clone(),
        }
    }

    /// How many have begun so far, if all of them have ended.
    pub(crate) fn all_ended(&self) -> Option<usize> {
        // In this order: what begins and ends in between makes the two differ, and what runs is not overlooked.
        let ended = self.ended.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        (begun == ended).then_some(begun)
    }

    /// Blocks until the next one begins, unless one has since there were this many.
    pub(super) fn rest(&self, begun: usize) {
        let mut falling_asleep = self.falling_asleep.lock();
        self.resting.store(true, Ordering::SeqCst);
        if self.begun.load(Ordering::SeqCst) != begun {
            self.resting.store(false, Ordering::SeqCst);
        }
        while self.resting.load(Ordering::SeqCst) {
            self.woken.wait(&mut falling_asleep);
        }
    }

    /// Wakes the clock, which rests no more: as for a run without end.
    pub(super) fn never_rest(&self) {
        self.count();
    }

    fn count(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        if self.resting.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let _asleep = self.falling_asleep.lock();
        self.resting.store(false, Ordering::SeqCst);
        self.woken.notify_one();
    }

    #[cfg(test)]
    pub(super) fn clock_rests(&self) -> bool {
        self.resting.load(Ordering::SeqCst)
    }
}

/// A guest that runs, until this is dropped.
#[must_use = "the clock may rest as soon as this is dropped"]
pub(crate) struct Running<'a>(&'a Runs);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future in which a guest runs.
pub(crate) struct Counted<F> {
    future: F,
    runs: Arc<Runs>,
}

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _running = this.runs.begin();
        Pin::new(&mut this.future).poll(context)
    }
}

/// For how long no guest has run.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    begun: Option<usize>,
    ticks: u32,
}

impl Quiet {
    /// For how many ticks there has been none, looked at once each: `begun` says how many had begun if none of them runs.
    pub(super) fn tick(&mut self, begun: Option<usize>) -> u32 {
        self.ticks = match begun.is_some() && begun == self.begun {
            true => self.ticks.saturating_add(1),
            false => 0,
        };
        self.begun = begun;
        self.ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_is_since_the_last_one_that_began_or_still_ran() {
        let mut quiet = Quiet::default();
        let looks = [
            Some(0),
            Some(0),
            Some(0),
            None,
            None,
            Some(1),
            Some(1),
            Some(2),
            Some(2),
            Some(2),
        ];
        assert_eq!(
            looks.map(|begun| quiet.tick(begun)),
            [0, 1, 2, 0, 0, 0, 1, 0, 1, 2]
        );
    }

    #[test]
    fn a_run_is_there_until_it_is_dropped_and_is_seen_afterwards() {
        let runs = Runs::default();
        assert_eq!(runs.all_ended(), Some(0));
        let (first, second) = (runs.begin(), runs.begin());
        drop(first);
        assert_eq!(runs.all_ended(), None);
        drop(second);
        assert_eq!(runs.all_ended(), Some(2));
    }

    #[test]
    fn nobody_rests_who_has_missed_a_run() {
        let runs = Runs::default();
        drop(runs.begin());
        // Blocks for ever if it rests all the same.
        runs.rest(0);
        assert!(!runs.clock_rests());
    }
}
