//! The runs of one model, each in its turn: no more at once than its back-end runs, and short ones where they are asked for.

use super::pace::{Pace, Undisturbed};
use super::thread::Thread;
use cpu_time::ThreadTime;
use karman_types::TaskError;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Runs that take less are done on the thread that asks: the way to another one and back takes about as long, and keeps two threads
/// busy. Longer ones would keep others on this thread waiting.
const QUICK: Duration = Duration::from_micros(150);
/// Runs that take less may keep the thread that asks, one at a time: what else it has to do waits no longer than that.
const BRIEF: Duration = Duration::from_millis(3);
/// Runs that take less may stay on the thread that asks, where another one goes on with what that was to do: nobody has to be woken for the
/// run. What follows on it is then done by threads that have to be.
const SHORT: Duration = Duration::from_millis(20);
/// So many in a row that took longer have not just waited for a core.
const MOST_LATE: u32 = 3;
/// Nor has one that took this long.
const LONG: Duration = Duration::from_millis(50);
/// How much one run counts in the mean.
const WEIGHT: f64 = 0.1;

/// Whether who asks for a run does anything else in the same task meanwhile. That would wait for a run that stays where it is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Meanwhile {
    Nothing,
    Something,
}

/// The turns of one model.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Arc<Semaphore>,
    /// Whether quick runs need no place. Where they did, those that wait for one would go on doing so as long as others come: each place
    /// that is given back belongs to the next of them, who is mostly on another thread and has to be woken there.
    quick_are_free: bool,
    seen: Mutex<Option<Seen>>,
    undisturbed: Arc<Undisturbed>,
}

/// What its runs computed.
#[derive(Clone, Copy, Debug)]
struct Seen {
    mean: Duration,
    /// The longest inputs of those that were quick.
    quick_bytes: usize,
    /// The longest inputs of those that were brief.
    brief_bytes: usize,
    /// How many of the last ones took longer than quick ones do.
    late: u32,
}

impl Turns {
    /// For a model of which this many runs go on at once, asked for by this many threads. Each of these is at one quick run at a time: where
    /// that leaves as many places for the others, quick runs need none.
    pub(crate) fn new(at_once: usize, threads: usize) -> Self {
        let quick_are_free = at_once / 2 >= threads;
        let places = if quick_are_free {
            at_once - threads
        } else {
            at_once
        };
        Self {
            places: Arc::new(Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS))),
            quick_are_free,
            seen: Mutex::new(None),
            undisturbed: Arc::default(),
        }
    }

    /// The same, of a model whose runs are known.
    pub(crate) fn knowing(self, undisturbed: Arc<Undisturbed>) -> Self {
        Self { undisturbed, ..self }
    }

    /// Runs a step on inputs of this length when it is its turn, and how long it took from then on.
    ///
    /// # Errors
    /// Those of the step.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        pace: &Pace,
        bytes: usize,
        meanwhile: Meanwhile,
        step: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
    ) -> Result<(T, Duration), TaskError> {
        let is_quick = pace.slowdown() <= 1.0 && self.is_quick(bytes);
        let place = match is_quick && self.quick_are_free {
            true => None,
            false => self.places.clone().acquire_owned().await.ok(),
        };
        if is_quick {
            let started = Instant::now();
            let done = step()?;
            let took = started.elapsed();
            self.ran_here(bytes, took);
            return Ok((done, took));
        }
        // What it computes, not what it waits: a busy machine makes no run longer. Its place goes with it: a run goes on when who asked for it
        // does not wait any more.
        let thread = match meanwhile {
            Meanwhile::Nothing => self.thread_for(bytes),
            Meanwhile::Something => Thread::Another,
        };
        let measured = move || {
            let computing = ThreadTime::now();
            let done = step()?;
            Ok((done, computing.elapsed(), place))
        };
        let of_these = (&*self.undisturbed, bytes);
        let ((done, computed, _place), took) = pace.run(thread, of_these, measured).await?;
        self.saw(bytes, computed);
        Ok((done, took))
    }

    fn is_quick(&self, bytes: usize) -> bool {
        let seen = *self.seen.lock();
        seen.is_some_and(|seen| seen.mean < QUICK && bytes <= seen.quick_bytes)
    }

    fn thread_for(&self, bytes: usize) -> Thread {
        match *self.seen.lock() {
            Some(seen) if seen.mean < BRIEF && bytes <= seen.brief_bytes => Thread::AskingBriefly,
            Some(seen) if seen.mean < SHORT => Thread::Asking,
            _ => Thread::Another,
        }
    }

    /// What took longer has computed or waited for a core: after some of them the next is measured.
    fn ran_here(&self, bytes: usize, took: Duration) {
        if took < QUICK {
            return self.saw(bytes, took);
        }
        let mut seen = self.seen.lock();
        *seen = seen
            .map(|seen| Seen {
                late: seen.late + 1,
                ..seen
            })
            .filter(|seen| seen.late < MOST_LATE && took < LONG);
    }

    fn saw(&self, bytes: usize, computed: Duration) {
        let mut seen = self.seen.lock();
        let before = seen.unwrap_or(Seen {
            mean: computed,
            quick_bytes: 0,
            brief_bytes: 0,
            late: 0,
        });
        // That it is rare makes a long run no shorter.
        let longest = |before: usize, less| {
            if computed < less {
                before.max(bytes)
            } else {
                before
            }
        };
        *seen = Some(Seen {
            mean: before.mean.mul_f64(1.0 - WEIGHT) + computed.mul_f64(WEIGHT),
            quick_bytes: longest(before.quick_bytes, QUICK),
            brief_bytes: longest(before.brief_bytes, BRIEF),
            late: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ComputeProfile;
    use parking_lot::Condvar;
    use std::sync::Barrier;
    use std::thread::{ThreadId, current};

    async fn ran_on(turns: &Turns, bytes: usize) -> ThreadId {
        let pace = Pace::new(&ComputeProfile::default());
        let run = turns.run(&pace, bytes, Meanwhile::Something, || Ok(current().id()));
        run.await.unwrap().0
    }

    #[tokio::test]
    async fn short_runs_stay_where_they_are_asked_for_and_others_do_not() {
        let turns = Turns::new(2, 2);
        assert_ne!(ran_on(&turns, 10).await, current().id(), "nobody knows yet");
        *turns.seen.lock() = Some(Seen {
            mean: QUICK / 3,
            quick_bytes: 10,
            brief_bytes: 10,
            late: 0,
        });
        assert_eq!(ran_on(&turns, 10).await, current().id());
        assert_ne!(ran_on(&turns, 11).await, current().id(), "longer than any before");
        turns.saw(10, QUICK * 20);
        assert_ne!(ran_on(&turns, 10).await, current().id(), "one took long");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_short_run_stays_where_nothing_waits_for_it_and_the_others_go_on() {
        let pace = Arc::new(Pace::new(&ComputeProfile::default()));
        for (takes, meanwhile, stays) in [
            (BRIEF / 2, Meanwhile::Nothing, true),
            (SHORT / 2, Meanwhile::Nothing, true),
            (SHORT / 2, Meanwhile::Something, false),
            (SHORT * 2, Meanwhile::Nothing, false),
        ] {
            let pace = pace.clone();
            let asks = tokio::spawn(async move {
                let turns = Turns::new(1, 1);
                turns.saw(10, takes);
                let (here, (tell, told)) = (current().id(), std::sync::mpsc::channel());
                // There is one thread for tasks: that another task has run says that it did not stay away from them.
                let ran = turns.run(&pace, 10, meanwhile, move || {
                    tokio::spawn(async move { tell.send(()) });
                    let goes_on = told.recv_timeout(Duration::from_secs(60));
                    goes_on.map_err(|error| TaskError::internal(error.to_string()))?;
                    Ok(current().id())
                });
                ran.await.unwrap().0 == here
            });
            assert_eq!(asks.await.unwrap(), stays, "{takes:?} {meanwhile:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_brief_runs_at_once_one_keeps_its_thread_and_the_others_go_on() {
        let pace = Arc::new(Pace::new(&ComputeProfile::default()));
        // There are two threads for tasks: that another task has run says that not both were kept from it.
        let (began, goes_on) = (
            Arc::new(Barrier::new(2)),
            Arc::new((Mutex::new(false), Condvar::new())),
        );
        let runs = [(); 2].map(|()| {
            let (pace, began, goes_on) = (pace.clone(), began.clone(), goes_on.clone());
            tokio::spawn(async move {
                let turns = Turns::new(1, 2);
                turns.saw(10, BRIEF / 2);
                let run = turns.run(&pace, 10, Meanwhile::Nothing, move || {
                    began.wait();
                    let other = goes_on.clone();
                    tokio::spawn(async move {
                        *other.0.lock() = true;
                        other.1.notify_all();
                    });
                    let mut has_run = goes_on.0.lock();
                    let until = |has_run: &mut bool| !*has_run;
                    goes_on
                        .1
                        .wait_while_for(&mut has_run, until, Duration::from_secs(60));
                    Ok(*has_run)
                });
                run.await.unwrap().0
            })
        });
        for run in runs {
            assert!(run.await.unwrap());
        }
    }

    #[test]
    fn that_most_are_short_makes_a_long_run_no_shorter() {
        let turns = Turns::new(1, 1);
        turns.saw(1000, QUICK * 5);
        for _ in 0..100 {
            turns.saw(10, QUICK / 3);
        }
        assert!(turns.is_quick(10) && !turns.is_quick(1000));
        assert_eq!(turns.thread_for(1000), Thread::AskingBriefly);
        assert_eq!(turns.thread_for(1001), Thread::Asking);
    }

    #[test]
    fn one_that_waited_for_a_core_is_no_long_run_and_several_in_a_row_are() {
        let turns = Turns::new(2, 1);
        turns.saw(10, QUICK / 3);
        for took in [QUICK * 2, QUICK * 9, QUICK / 3, QUICK * 2, QUICK * 3] {
            turns.ran_here(10, took);
            assert!(turns.is_quick(10), "{took:?}");
        }
        turns.ran_here(10, QUICK * 2);
        assert!(!turns.is_quick(10), "the third in a row");
        turns.saw(10, QUICK / 3);
        turns.ran_here(10, LONG);
        assert!(!turns.is_quick(10), "nobody waits so long for a core");
    }

    #[tokio::test]
    async fn quick_runs_wait_for_no_place_where_there_are_enough() {
        for (at_once, waits) in [(1, true), (2, false)] {
            let turns = Turns::new(at_once, 1);
            turns.saw(10, QUICK / 3);
            let _held = turns.places.try_acquire().unwrap();
            assert!(turns.places.try_acquire().is_err(), "that was the only one");
            let mut run = Box::pin(ran_on(&turns, 10));
            assert_eq!(futures::poll!(&mut run).is_pending(), waits);
        }
    }

    #[tokio::test]
    async fn a_run_keeps_its_place_when_nobody_waits_for_it_any_more() {
        for slowdown in [1.0, 2.0] {
            let profile = ComputeProfile {
                slowdown,
                ..ComputeProfile::default()
            };
            let (turns, pace) = (Turns::new(1, 1), Pace::new(&profile));
            let (began, begins) = std::sync::mpsc::channel();
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let mut run = Box::pin(turns.run(&pace, 1, Meanwhile::Something, move || {
                let _ = began.send(());
                let _ = ends.recv();
                Ok(())
            }));
            assert!(futures::poll!(&mut run).is_pending());
            begins.recv().unwrap();
            drop(run);
            let mut next = Box::pin(turns.run(&pace, 1, Meanwhile::Nothing, || Ok(())));
            assert!(futures::poll!(&mut next).is_pending());
            assert!(turns.places.try_acquire().is_err(), "the first still runs");
            drop(end);
            next.await.unwrap();
        }
    }

    #[tokio::test]
    async fn no_more_run_at_once_than_there_are_places() {
        let turns = Turns::new(1, 1);
        let held = turns.places.try_acquire().unwrap();
        let mut waits = Box::pin(ran_on(&turns, 1));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(held);
        waits.await;
    }
}
