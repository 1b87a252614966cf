//! A run from its start, or from where it was left, to its end.

use super::compliance::EndedRun;
use super::lifetime::{goes_on_for, outlived};
use super::order::FlowOrder;
use super::progress::{Ledger, Progress};
use super::served::Served;
use super::step::{Ended, Step};
use super::{Flows, Live};
use crate::contacts::wall_ms;
use crate::drive::tasks::{Inner, Tasks};
use karman_sched::flow::{Action, AttemptId, Event, Failure, Machine, NotUndone, Outcome, Record, Ticket};
use karman_tasks::{Answer, Call, Event as TaskEvent, Guarantee};
use karman_types::{ErrorKind, TaskError, TaskId, TaskResponse, Workflow};
use std::collections::{BTreeSet, HashMap};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Coordinates a run of a workflow until it has ended.
///
/// # Errors
/// How the run failed; `unavailable` when it is to go on elsewhere, or later.
pub(in crate::drive) async fn coordinate(tasks: &Arc<Inner>, call: Call) -> Result<Box<Answer>, TaskError> {
    let mut coordinator = Coordinator::take_up(tasks, &call).await?;
    let outcome = coordinator.go_on().await?;
    coordinator.served.end();
    coordinator.remember(&outcome);
    let response = match outcome {
        Outcome::Done(output) => TaskResponse {
            content_type: super::json::JSON.into(),
            metadata: Vec::new(),
            body: output.to_string().into(),
        },
        Outcome::Failed { why, not_undone } => return Err(coordinator.failure(why, &not_undone)),
    };
    let batch = None;
    Ok(Box::new(Answer { response, batch }))
}

/// The failure of a run as that of the task that it is. What another node could cure in a task is final in a run: it has been
/// tried again, and undone.
fn as_task_error(Failure { task, error }: Failure) -> TaskError {
    let message = match task {
        Some(task) => format!("`{task}` failed: {}", error.message),
        None => error.message.clone(),
    };
    let kind = match error.kind {
        ErrorKind::Unavailable | ErrorKind::Internal | ErrorKind::Deadline => ErrorKind::Failed,
        kind => kind,
    };
    TaskError {
        kind,
        message,
        ..error
    }
}

/// How far a run was undone, where that was too long to be kept.
fn undone_unkept(not_undone: &[NotUndone]) -> String {
    let left: BTreeSet<&str> = not_undone.iter().map(|left| left.task.as_str()).collect();
    let left: Vec<&str> = left.into_iter().collect();
    match left.is_empty() {
        true => "what it did is undone, of which there is no record".into(),
        false => format!(
            "what it did is undone but for `{}`, of which there is no record",
            left.join("`, `")
        ),
    }
}

/// What the coordinator hears of.
enum Heard {
    Step(Ended),
    Written(Ticket, Box<Record>, Result<bool, TaskError>),
    Withdrawn,
    Time,
    Outlived,
    Suspended,
}

struct Coordinator {
    tasks: Arc<Inner>,
    workflow: Arc<Workflow>,
    machine: Machine,
    /// When it first began.
    begun: Option<u64>,
    ledger: Ledger,
    started: Instant,
    /// When the run fails whatever its workflow says, unless it has.
    ends: Option<Instant>,
    /// What is under way; stopped when this is dropped.
    work: JoinSet<Heard>,
    /// To stop the attempts that run.
    stops: HashMap<AttemptId, watch::Sender<bool>>,
    /// Accepted tasks whose answers the machine has: forgotten once that is durable.
    answered: Vec<TaskId>,
    durable_next: Vec<TaskId>,
    served: Arc<Served>,
    live: Entered,
}

impl Coordinator {
    /// Begins the run, or takes it up where it was left.
    async fn take_up(tasks: &Arc<Inner>, call: &Call) -> Result<Self, TaskError> {
        let (run, ledger) = (call.attempt.task, Ledger::of(tasks, call));
        let left = ledger.read().await?;
        let live = Entered::new(tasks, run, left.clone());
        let now = tasks.wall().map(|wall| wall.0);
        let (workflow, machine, begun) = match left {
            Some(Progress {
                workflow,
                record,
                begun,
            }) => {
                // From its record it knows as well how long it had taken when that was written.
                let since = begun.zip(now).map(|(begun, now)| now.saturating_sub(begun));
                let elapsed = Duration::from_millis(since.unwrap_or_default());
                let machine = Machine::resume(workflow.clone(), record, elapsed, Duration::ZERO)
                    .map_err(|error| TaskError::internal(error.to_string()))?;
                (workflow, machine, begun)
            }
            None => {
                let order = FlowOrder::read(&call.request.body)?;
                let workflow = Arc::new(order.workflow);
                let machine = Machine::new(run, workflow.clone(), order.input, Duration::ZERO);
                (workflow, machine, now)
            }
        };
        let (started, lifetime) = (Instant::now(), tasks.runtime.config().tasks.lifetime);
        let goes_on = call.within.map(|left| goes_on_for(left, lifetime));
        Ok(Self {
            tasks: tasks.clone(),
            workflow,
            machine,
            begun,
            ledger,
            started,
            ends: goes_on.and_then(|time| started.checked_add(time)),
            work: JoinSet::new(),
            stops: HashMap::new(),
            answered: Vec::new(),
            durable_next: Vec::new(),
            served: Arc::new(Served::of(tasks, run, age(tasks, run))),
            live,
        })
    }

    async fn go_on(&mut self) -> Result<Outcome, TaskError> {
        let mut events = vec![Event::Tick];
        loop {
            for event in std::mem::take(&mut events) {
                if let Some(outcome) = self.handle(event) {
                    return Ok(outcome);
                }
            }
            let event = match self.hear().await {
                Heard::Written(ticket, record, Ok(true)) => {
                    let workflow = self.workflow.clone();
                    let progress = Progress {
                        workflow,
                        record: *record,
                        begun: self.begun,
                    };
                    self.live.durable(progress);
                    self.forget();
                    Event::Saved { ticket }
                }
                Heard::Written(ticket, _, Ok(false)) => Event::Unsaved { ticket },
                Heard::Written(ticket, _, Err(error)) if error.kind == ErrorKind::Limit => {
                    Event::TooLong { ticket, error }
                }
                Heard::Written(_, _, Err(error)) => return Err(error),
                Heard::Step(ended) => {
                    self.stops.remove(&ended.attempt);
                    self.answered.extend(ended.task);
                    events = ended.events();
                    continue;
                }
                Heard::Withdrawn => Event::Cancel,
                Heard::Time => Event::Tick,
                Heard::Outlived => {
                    self.ends = None;
                    let error = outlived(self.tasks.runtime.config().tasks.lifetime);
                    Event::Outlived { error }
                }
                Heard::Suspended => {
                    return Err(TaskError::unavailable("this node is draining"));
                }
            };
            events.push(event);
        }
    }

    /// Does what follows from an event; how the run ended, when it has.
    fn handle(&mut self, event: Event) -> Option<Outcome> {
        for action in self.machine.handle(self.started.elapsed(), event) {
            match action {
                Action::Save { ticket, record } => self.write_down(ticket, record),
                Action::Start { call } => self.step(*call, false),
                Action::Stop { attempt, .. } => self.stop(attempt),
                Action::End { outcome } => {
                    self.forget();
                    return Some(outcome);
                }
            }
        }
        None
    }

    async fn hear(&mut self) -> Heard {
        let due = self.machine.next_timeout().map(|due| self.started + due);
        let mut suspended = self.tasks.flows.suspended.subscribe();
        tokio::select! {
            Some(done) = self.work.join_next() => match done {
                Ok(heard) => heard,
                // Nothing of it is stopped before the coordinator is, and steps catch their panics.
                Err(error) => {
                    tracing::error!(%error, "work of a workflow is lost");
                    Heard::Suspended
                }
            },
            () = self.live.live.withdrawn.notified() => Heard::Withdrawn,
            Ok(_) = suspended.wait_for(|suspended| *suspended) => Heard::Suspended,
            () = until(due) => Heard::Time,
            () = until(self.ends) => Heard::Outlived,
        }
    }

    fn write_down(&mut self, ticket: Ticket, record: Box<Record>) {
        self.durable_next.append(&mut self.answered);
        let (ledger, workflow, begun) = (self.ledger.clone(), self.workflow.clone(), self.begun);
        self.work.spawn(async move {
            let progress = Progress {
                workflow,
                record: *record,
                begun,
            };
            let written = ledger.write(&progress).await;
            Heard::Written(ticket, Box::new(progress.record), written)
        });
    }

    /// Runs an attempt; only to stop it at once, where another coordinator may have started it.
    fn step(&mut self, call: karman_sched::flow::Call, stopped: bool) {
        let (stop, stops) = watch::channel(stopped);
        self.stops.insert(call.attempt, stop);
        let promise = match self.ledger.is_kept() {
            true => Guarantee::Kept,
            false => Guarantee::Local,
        };
        let step = Step {
            tasks: Tasks::of(&self.tasks),
            promise,
            served: self.served.clone(),
            workflow: self.workflow.clone(),
            call,
            stopped: stops,
        };
        self.work.spawn(async move { Heard::Step(step.run().await) });
    }

    fn stop(&mut self, attempt: AttemptId) {
        match self.stops.get(&attempt) {
            Some(stop) => _ = stop.send_replace(true),
            None => self.step(self.machine.call(attempt.of), true),
        }
    }

    /// How the run failed, as the failure of the task that it is.
    fn failure(&self, why: Failure, not_undone: &[NotUndone]) -> TaskError {
        let mut error = as_task_error(why);
        if self.machine.is_unkept() {
            error.message = format!("{}; {}", error.message, undone_unkept(not_undone));
        }
        let (run, left) = (self.live.run, not_undone.len());
        match self.machine.is_unkept() || left > 0 {
            true => tracing::warn!(%run, %error, left, "a run has failed, and is not undone as it should be"),
            false => tracing::info!(%run, %error, "a run has failed"),
        }
        error
    }

    /// Whether the run has kept what is wanted of its workflow. One that somebody withdrew says nothing of that.
    fn remember(&self, outcome: &Outcome) {
        let Some(slo) = self.workflow.slo() else { return };
        let failed = match outcome {
            Outcome::Done(_) => false,
            Outcome::Failed { why, .. } if why.error.kind == ErrorKind::Cancelled => return,
            Outcome::Failed { .. } => true,
        };
        let run = EndedRun {
            latency: self.served.latency(),
            cost: self.served.cost(),
            failed,
        };
        let of = (self.workflow.name(), slo);
        self.tasks.flows.compliance.ended(wall_ms(), of, &run);
    }

    /// The answers of these tasks are written down here.
    fn forget(&mut self) {
        for task in std::mem::take(&mut self.durable_next) {
            self.tasks.feed(TaskEvent::Fetched { task });
        }
    }
}

/// Waits for this moment, where there is one.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

/// How long ago a run was asked for, where the clock can be believed.
fn age(tasks: &Inner, run: TaskId) -> Duration {
    let wall = tasks.wall().map_or(0, |wall| wall.0);
    Duration::from_millis(wall.saturating_sub(run.unix_ms()))
}

/// A run among those that are coordinated here, until this is dropped.
struct Entered {
    tasks: Arc<Inner>,
    run: TaskId,
    live: Arc<Live>,
}

impl Entered {
    fn new(tasks: &Arc<Inner>, run: TaskId, left: Option<Progress>) -> Self {
        let live = Arc::new(Live {
            withdrawn: Notify::new(),
            durable: watch::Sender::new(left),
        });
        let Flows { live: all, .. } = &tasks.flows;
        all.lock().insert(run, live.clone());
        tasks.flows.taken_up.notify_waiters();
        Self {
            tasks: tasks.clone(),
            run,
            live,
        }
    }

    fn durable(&self, progress: Progress) {
        self.live.durable.send_replace(Some(progress));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut all = self.tasks.flows.live.lock();
        // The next attempt at the same run may have begun.
        if all
            .get(&self.run)
            .is_some_and(|live| Arc::ptr_eq(live, &self.live))
        {
            all.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_undone_of_a_run_without_a_record_is_named_once() {
        let left = |task: &str, item| NotUndone {
            task: task.into(),
            item,
            error: TaskError::failed("broken"),
        };
        assert!(!undone_unkept(&[]).contains("but for"));
        let told = undone_unkept(&[left("b", 0), left("a", 0), left("a", 1)]);
        assert!(told.contains("but for `a`, `b`,"), "{told}");
    }
}
