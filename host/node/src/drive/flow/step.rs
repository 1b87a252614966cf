//! One attempt at one task of a workflow.

use super::choose;
use super::json;
use super::place::UnderWay;
use super::progress::ENTRY;
use super::served::Served;
use crate::drive::tasks::Tasks;
use futures::FutureExt;
use karman_sched::flow::{AttemptId, Call, Event};
use karman_tasks::{Event as TaskEvent, Guarantee, Saved, Submission};
use karman_types::{ErrorKind, TaskError, TaskId, TaskRequest, TaskResponse, Workflow};
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// How long one question waits for the end of a task.
const ONE_WAIT: Duration = Duration::from_secs(60);
/// How often a task that is to stop is withdrawn, until it has ended: its owner may be out of reach, or be lost meanwhile.
const WITHDRAW_AGAIN: Duration = Duration::from_secs(2);
/// What is said to be unavailable where it is a task, for good: nobody knows it, or its result any more.
const THE_TASK: &str = "task";
/// The pause before a task that could not be accepted is handed in again.
const PAUSE: Duration = Duration::from_millis(500);

/// An attempt that is to run.
pub(super) struct Step {
    pub(super) tasks: Tasks,
    pub(super) promise: Guarantee,
    /// The run that it belongs to.
    pub(super) served: Arc<Served>,
    pub(super) workflow: Arc<Workflow>,
    pub(super) call: Call,
    /// Becomes true when it is to stop.
    pub(super) stopped: watch::Receiver<bool>,
}

/// What came of an attempt, as far as anybody knows.
pub(super) enum Came {
    /// What it gave, or why it failed.
    Answer(Result<Value, TaskError>),
    /// It has run, and what it answered cannot be read.
    Garbled(TaskError),
    /// It was stopped, and nobody knows more.
    Nothing,
}

impl Came {
    /// Of what a task answered.
    pub(super) fn of(response: &TaskResponse) -> Self {
        match json::output(response) {
            Ok(output) => Self::Answer(Ok(output)),
            Err(error) => Self::Garbled(error),
        }
    }
}

impl From<TaskError> for Came {
    fn from(error: TaskError) -> Self {
        Self::Answer(Err(error))
    }
}

/// How it ended.
pub(super) struct Ended {
    pub(super) attempt: AttemptId,
    /// The accepted task that it was, where one was.
    pub(super) task: Option<TaskId>,
    /// Where it was placed, if a policy did that.
    placed: Option<Event>,
    came: Came,
}

impl Ended {
    /// What the machine is told, in this order.
    pub(super) fn events(self) -> Vec<Event> {
        let attempt = self.attempt;
        let ended = match self.came {
            Came::Answer(result) => Event::Answered { attempt, result },
            Came::Garbled(error) => Event::Garbled { attempt, error },
            Came::Nothing => Event::Stopped { attempt },
        };
        self.placed.into_iter().chain([ended]).collect()
    }
}

impl Step {
    /// Runs it to its end.
    pub(super) async fn run(mut self) -> Ended {
        let mut ended = Ended {
            attempt: self.call.attempt,
            task: None,
            placed: None,
            came: Came::Nothing,
        };
        let of = &self.workflow.tasks()[ended.attempt.of.task];
        let came = match of.capability.is_some() && !ended.attempt.of.undo {
            true => AssertUnwindSafe(self.chosen()).catch_unwind().await,
            false => AssertUnwindSafe(self.accepted(&mut ended)).catch_unwind().await,
        };
        ended.came = came.unwrap_or_else(|_| TaskError::internal("the attempt failed in the host").into());
        ended
    }

    /// On the node that is chosen for it. These are direct calls: it may run again if the coordinator is killed.
    async fn chosen(&mut self) -> Came {
        let chooser = match choose::chooser(self.tasks.inner(), &self.workflow).await {
            Ok(Some(chooser)) => chooser,
            Ok(None) => return Came::Nothing,
            Err(error) => return error.into(),
        };
        let outputs = &self.workflow.tasks()[self.call.attempt.of.task].outputs;
        let of = (&*self.served, &self.call);
        chooser
            .serve(self.tasks.inner(), of, outputs, &mut self.stopped)
            .await
    }

    /// As an accepted task under the key of this very attempt: if an earlier coordinator has handed it in, this is how that one ended.
    async fn accepted(&mut self, ended: &mut Ended) -> Came {
        let request = match json::request(&self.call.input, &self.call.with) {
            Ok(request) => request,
            Err(error) => return error.into(),
        };
        let key: Arc<str> = format!("{}#{}", self.call.key, self.call.attempt.number).into();
        let of = (self.served.run(), &*self.workflow, &self.call);
        let asked = (key.clone(), request.body.len() as u64);
        let under_way = UnderWay::of(self.tasks.inner(), of, asked);
        let came = self.answer((key, request), &mut ended.task).await;
        ended.placed = under_way.and_then(|under_way| under_way.told(&self.call));
        came
    }

    /// What came of it, once that is known.
    async fn answer(&mut self, asked: (Arc<str>, TaskRequest), task: &mut Option<TaskId>) -> Came {
        let handed_in = match self.hand_in(asked).await {
            Ok(Some(task)) => task,
            Ok(None) => return Came::Nothing,
            Err(error) => return error.into(),
        };
        *task = Some(handed_in);
        loop {
            let stops = *self.stopped.borrow();
            if stops && let Err(error) = self.withdraw(handed_in).await {
                tracing::debug!(%error, task = %handed_in, "a task of a workflow is not withdrawn yet");
            }
            let wait = match stops {
                true => WITHDRAW_AGAIN,
                false => ONE_WAIT,
            };
            let outcome = self.tasks.outcome(handed_in, wait);
            let outcome = tokio::select! {
                outcome = outcome => outcome,
                _ = self.stopped.changed(), if !stops => continue,
            };
            match outcome {
                Ok(Some(outcome)) => {
                    let response = outcome.into_result();
                    return response.map_or_else(Came::from, |response| Came::of(&response));
                }
                Ok(None) => {}
                Err(error) if may_be_told_later(&error) => {
                    tracing::debug!(%error, task = %handed_in, "how a task of a workflow ended is not known yet");
                    sleep(PAUSE).await;
                }
                Err(error) => return error.into(),
            }
        }
    }

    /// Withdraws the task, here or at the node that owns it, unless it has ended. The node that runs it hears of it from its owner.
    ///
    /// # Errors
    /// `unavailable` when no majority of the keepers answers, or the owner is not in reach.
    async fn withdraw(&self, task: TaskId) -> Result<(), TaskError> {
        let here = self.tasks.inner();
        if self.promise == Guarantee::Local || here.known(task).is_some() {
            here.feed(TaskEvent::Cancel { asked: task });
            return Ok(());
        }
        let keepers = self.tasks.keepers();
        match keepers.find(task, Duration::ZERO).await? {
            // It may end before this comes there: what it gave is to be taken then, by whoever undoes it.
            Some(kept) if matches!(kept.record.state, Saved::Open(_)) => {
                keepers.withdraw_at(kept.owner, task).await
            }
            _ => Ok(()),
        }
    }

    /// The accepted task; nothing when it was stopped before it was one. What passes by itself is waited for.
    async fn hand_in(
        &mut self,
        (key, request): (Arc<str>, TaskRequest),
    ) -> Result<Option<TaskId>, TaskError> {
        let Call {
            run,
            key: effect,
            within,
            ..
        } = &self.call;
        let begun = Instant::now();
        let stopped_before = *self.stopped.borrow();
        // It may be there from another coordinator: under its key it is found, and as its time is over it is not begun otherwise. One
        // that another node owns only the keepers find, to whom it is handed in with time enough, and withdrawn.
        let only_find = stopped_before && self.promise == Guarantee::Local;
        let within = within.filter(|_| !stopped_before);
        let left = || within.map(|within| within.saturating_sub(begun.elapsed()));
        loop {
            let submission = Submission {
                guarantee: self.promise,
                key: Some(key.clone()),
                effect: Some(effect.clone()),
                stays: true,
                within: match only_find {
                    true => Some(Duration::ZERO),
                    false => left(),
                },
                ..Submission::new(run.clone(), request.clone())
            };
            match self.tasks.submit(submission).await {
                Ok(task) => return Ok(Some(task)),
                Err(error) if error.kind == ErrorKind::Deadline && only_find => return Ok(None),
                Err(error) if !passes(&error) || left().is_some_and(|left| left.is_zero()) => {
                    return Err(error);
                }
                Err(error) => tracing::debug!(%error, run = &**run, "a task of a workflow waits"),
            }
            tokio::select! {
                () = sleep(PAUSE) => {}
                _ = self.stopped.changed(), if !stopped_before => return Ok(None),
            }
        }
    }
}

/// Whether somebody may still tell how a task ended: no majority of the keepers answers just now. It may be running, so nothing is to be
/// tried again or undone meanwhile.
fn may_be_told_later(error: &TaskError) -> bool {
    error.kind == ErrorKind::Unavailable && error.field.as_deref() != Some(THE_TASK)
}

/// Whether the refusal of a task passes by itself: a majority of the keepers is away, the node is full. What is too long for the keepers
/// stays so.
fn passes(error: &TaskError) -> bool {
    let is_too_long = error.field.as_deref() == Some(ENTRY);
    matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Limit) && !is_too_long
}

#[cfg(test)]
mod tests;
