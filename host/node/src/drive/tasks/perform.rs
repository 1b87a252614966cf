//! Does what the machine of accepted tasks wants. Nothing here waits or feeds the machine before its caller has let go of it.

use super::Inner;
use crate::drive::attempt;
use crate::drive::names::nobody_offers;
use crate::drive::providers::place;
use futures::FutureExt;
use karman_tasks::{Action, AttemptId, Call, Commit, Entry, Event, Handover, SaveError, Ticket};
use karman_types::{NodeId, TaskError, TaskId};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

impl Inner {
    pub(super) fn perform(self: &Arc<Self>, action: Action) {
        match action {
            Action::Persist { ticket, write } => self.disk.write(ticket, write),
            Action::Propose { ticket, entry } => self.propose(ticket, entry),
            Action::Acknowledge { asked, task } => self.tell(asked, Ok(task)),
            Action::Refuse { asked, error } => self.tell(asked, Err(error.into())),
            Action::Place { task, name, avoid } => self.place(task, name, avoid),
            Action::Start { provider, call } => self.start(provider, *call),
            Action::Stop { attempt, .. } => self.stop(&attempt),
            Action::Commit(commit) => self.commit(*commit),
            Action::HandOver { to, handover } => self.hand_over(to, *handover),
            // Who waits for one that has another owner asks the keepers from now on.
            Action::Ended { task } | Action::Disowned { task } => {
                self.whys.lock().remove(&task);
                self.away.ended(task, &self.threads);
                self.ended.tell(task);
            }
            Action::Displaced { task } => {
                tracing::warn!(
                    %task,
                    "a result is forgotten before its time: `results-bytes` leaves newer ones no room"
                );
            }
            Action::Drained => self.drained.notify_waiters(),
            // Direct tasks are not handed to the machine.
            Action::Answer { .. } => {
                tracing::error!(
                    ?action,
                    "the machine of tasks wants what this node never asked it for"
                );
            }
        }
    }

    fn propose(self: &Arc<Self>, ticket: Ticket, entry: Entry) {
        let unsaved = move |error| Event::Unsaved { ticket, error };
        self.spawn(unsaved(SaveError::NoMajority), move |tasks| async move {
            match tasks.keepers.propose(entry).await {
                Ok(()) => Event::Saved { ticket },
                Err(error) => unsaved(error),
            }
        });
    }

    fn tell(&self, asked: TaskId, outcome: Result<TaskId, TaskError>) {
        if let Some(tell) = self.asked.lock().remove(&asked) {
            let _ = tell.send(outcome);
        }
    }

    fn place(self: &Arc<Self>, task: TaskId, name: Arc<str>, avoid: Vec<NodeId>) {
        let nobody = Event::Offered {
            task,
            providers: Vec::new(),
        };
        self.spawn(nobody, move |tasks| async move {
            let providers = place(&tasks, task, &name, &avoid).await;
            match providers.is_empty() {
                true => tasks.note_why(task, nobody_offers(&tasks, &name)),
                false => drop(tasks.whys.lock().remove(&task)),
            }
            Event::Offered { task, providers }
        });
    }

    fn start(self: &Arc<Self>, provider: NodeId, call: Call) {
        let (attempt, tasks) = (call.attempt, self.clone());
        let mut running = self.running.lock();
        let run = self.threads.spawn(async move {
            let run = attempt::run(&tasks, provider, call);
            // A panic in the host is as good as a lost connection: the attempt may not stand as running for ever.
            let event = outcome(run, Event::AttemptLost { attempt }).await;
            tasks.running.lock().remove(&attempt);
            tasks.feed(event);
        });
        running.insert(attempt, run.abort_handle());
    }

    fn stop(&self, attempt: &AttemptId) {
        if let Some(run) = self.running.lock().remove(attempt) {
            run.abort();
        }
    }

    fn commit(self: &Arc<Self>, commit: Commit) {
        let attempt = commit.attempt;
        self.spawn(Event::CommitLost { attempt }, move |tasks| async move {
            match attempt::commit(&tasks, commit).await {
                Some(verdict) => Event::Committed { attempt, verdict },
                None => Event::CommitLost { attempt },
            }
        });
    }

    fn hand_over(self: &Arc<Self>, to: NodeId, handover: Handover) {
        let task = handover.record.task;
        let failed = move |refused| Event::HandOverFailed { task, refused };
        self.spawn(failed(false), move |tasks| async move {
            match attempt::hand_over(&tasks, to, handover).await {
                Some(true) => {
                    tasks.whys.lock().remove(&task);
                    tasks.away.ended(task, &tasks.threads);
                    Event::HandedOver { task }
                }
                refused => failed(refused.is_some()),
            }
        });
    }

    /// Does something that takes time, and feeds the machine what came of it, or that it was lost.
    fn spawn<F: Future<Output = Event> + Send + 'static>(
        self: &Arc<Self>,
        lost: Event,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) {
        let tasks = self.clone();
        self.threads.spawn(async move {
            let here = tasks.clone();
            let event = outcome(async move { work(here).await }, lost).await;
            tasks.feed(event);
        });
    }
}

/// What came of a step. Where it has panicked, which is a defect of the host, it is taken for lost: a task may not wait for ever for what
/// nobody tells.
async fn outcome(step: impl Future<Output = Event>, lost: Event) -> Event {
    let outcome = AssertUnwindSafe(step).catch_unwind().await;
    outcome.unwrap_or_else(|_| {
        tracing::error!(?lost, "a step of a task has failed in the host");
        lost
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{poll_fn, ready};
    use std::task::Poll;

    #[tokio::test]
    async fn a_step_that_panics_is_told_as_lost() {
        let task = TaskId::from_parts(1, 1);
        let lost = || Event::HandOverFailed { task, refused: false };
        let panics = poll_fn(|_| -> Poll<Event> { panic!("a defect") });
        assert_eq!(outcome(panics, lost()).await, lost());
        let over = Event::HandedOver { task };
        assert_eq!(outcome(ready(over.clone()), lost()).await, over);
    }
}
