use super::choose::Chooser;
use crate::drive::tasks::Inner;
use crate::services::blocking;
use karman_sched::select::Call;
use karman_types::{ErrorKind, Implementation, TaskId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A run under way, by those who choose for it: each counts it until this is dropped, and is then told what its calls took, if it has ended.
/// What goes on elsewhere, or later, is told of where it ends: a policy hears of each run once.
pub(super) struct Served {
    tasks: Arc<Inner>,
    run: TaskId,
    begun: Instant,
    /// How long before that it was asked for.
    waited: Duration,
    ended: AtomicBool,
    by: Mutex<Vec<(Arc<Chooser>, Vec<Call>)>>,
}

impl Served {
    /// A run of a workflow that was asked for so long ago.
    pub(super) fn of(tasks: &Arc<Inner>, run: TaskId, waited: Duration) -> Self {
        Self {
            tasks: tasks.clone(),
            run,
            begun: Instant::now(),
            waited,
            ended: AtomicBool::new(false),
            by: Mutex::default(),
        }
    }

    /// A request outside of any workflow: it has ended when this is dropped, one way or another.
    pub(super) fn request(tasks: &Arc<Inner>, run: TaskId) -> Self {
        let request = Self::of(tasks, run, Duration::ZERO);
        request.end();
        request
    }

    /// The run has ended.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The run.
    pub(super) const fn run(&self) -> TaskId {
        self.run
    }

    /// How long ago it was asked for.
    pub(super) fn latency(&self) -> Duration {
        self.waited + self.begun.elapsed()
    }

    /// This one chooses for it, too.
    pub(super) fn chosen_by(&self, chooser: &Arc<Chooser>) {
        let mut by = self.by.lock();
        if !by.iter().any(|(known, _)| Arc::ptr_eq(known, chooser)) {
            chooser.enter(self.run);
            by.push((chooser.clone(), Vec::new()));
        }
    }

    /// Money for all calls so far.
    pub(super) fn cost(&self) -> f64 {
        let by = self.by.lock();
        by.iter().flat_map(|(_, calls)| calls).map(|call| call.cost).sum()
    }

    /// A call begins that this one chose, of a task by a candidate.
    pub(super) fn begins<'a>(
        &'a self,
        chooser: &'a Arc<Chooser>,
        (task, candidate): (usize, usize),
        implementation: &Implementation,
    ) -> Calling<'a> {
        Calling {
            served: self,
            chooser,
            started: Instant::now(),
            call: Call {
                task,
                candidate,
                latency: Duration::ZERO,
                cost: implementation.profile.cost,
                energy: implementation.profile.energy,
                right: None,
            },
            error: None,
        }
    }

    /// A call that this one chose has ended.
    fn add(&self, chooser: &Arc<Chooser>, call: Call) {
        self.chosen_by(chooser);
        let mut by = self.by.lock();
        let of = by.iter_mut().find(|(known, _)| Arc::ptr_eq(known, chooser));
        if let Some((_, calls)) = of {
            calls.push(call);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let (run, latency, ended) = (self.run, self.latency(), *self.ended.get_mut());
        for (chooser, calls) in std::mem::take(self.by.get_mut()) {
            chooser.leave(run);
            if calls.is_empty() || !ended {
                continue;
            }
            let tasks = self.tasks.clone();
            if !chooser.is_brought() {
                chooser.report(&tasks, run, latency, calls);
                continue;
            }
            self.tasks.threads.spawn(async move {
                let turn = chooser.turn().await;
                let report = move || {
                    chooser.report(&tasks, run, latency, calls);
                    drop(turn);
                    Ok(())
                };
                if let Err(error) = blocking(report).await {
                    tracing::error!(%run, %error, "what became of a run is not taken in");
                }
            });
        }
    }
}

/// A call that is under way. It is one of those of its run once this is dropped, also when its caller has given it up.
pub(super) struct Calling<'a> {
    served: &'a Served,
    chooser: &'a Arc<Chooser>,
    started: Instant,
    call: Call,
    error: Option<ErrorKind>,
}

impl Calling<'_> {
    /// It has ended: with an answer, or an error of this kind.
    pub(super) fn ended(mut self, error: Option<ErrorKind>) {
        if let Some(kind) = error {
            self.chooser.failed((self.call.task, self.call.candidate), kind);
        }
        self.error = error;
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        let call = Call {
            latency: self.started.elapsed(),
            ..self.call
        };
        let call = match self.error {
            Some(kind) => failed(call, kind, self.chooser.limit()),
            None => call,
        };
        self.served.add(self.chooser, call);
    }
}

/// What a policy is told of a call that has failed like this, where a request may take so long.
fn failed(call: Call, kind: ErrorKind, limit: Option<Duration>) -> Call {
    match kind {
        // It was never made, so it took nothing.
        ErrorKind::Unavailable => Call {
            cost: 0.0,
            energy: None,
            ..call
        },
        ErrorKind::Failed => Call {
            right: Some(false),
            ..call.unanswered(limit)
        },
        // What passes by itself makes it late, and no worse for good.
        ErrorKind::Limit | ErrorKind::Internal => call.unanswered(limit),
        // It took all the time that there was, or is the mistake of who asked.
        ErrorKind::Deadline | ErrorKind::Invalid | ErrorKind::Denied | ErrorKind::Cancelled => call,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_no_quick_answer_and_what_was_not_called_costs_nothing() {
        let [took, limit] = [2, 50].map(Duration::from_millis);
        let call = Call {
            task: 0,
            candidate: 1,
            latency: took,
            cost: 0.5,
            energy: Some(2.0),
            right: None,
        };
        let told = |kind| {
            let call = failed(call, kind, Some(limit));
            (call.latency > limit, call.right, call.cost, call.energy)
        };
        let billed = (0.5, Some(2.0));
        for (kind, late, right, (cost, energy)) in [
            (ErrorKind::Failed, true, Some(false), billed),
            (ErrorKind::Internal, true, None, billed),
            (ErrorKind::Limit, true, None, billed),
            (ErrorKind::Deadline, false, None, billed),
            (ErrorKind::Invalid, false, None, billed),
            (ErrorKind::Unavailable, false, None, (0.0, None)),
        ] {
            assert_eq!(told(kind), (late, right, cost, energy), "{kind:?}");
        }
        // Without a limit nothing is late.
        assert_eq!(failed(call, ErrorKind::Internal, None).latency, took);
    }
}
