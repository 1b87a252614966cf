use super::history::beginning;
use super::{
    Action, AttemptId, Call, Event, Outcome, Phase, Record, RunId, RunState, StepState, Ticket, What,
};
use karman_types::{NodeId, TaskError, TaskId, Workflow};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The pause after a record could not be saved.
const SAVE_AGAIN: Duration = Duration::from_secs(1);

/// One run of a workflow, until it has ended.
///
/// Feed it what happens ([`Event`]) and do what it says ([`Action`]); when [`Machine::next_timeout`] has come, feed it
/// [`Event::Tick`]. Times are since some start of the coordinator's choice, and never go back. The same events at the same times
/// give the same actions, and all of it can be serialised as a checkpoint for a replay; what has to survive a crash is the
/// [`Record`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Machine {
    pub(super) workflow: Arc<Workflow>,
    pub(super) record: Record,
    pub(super) now: Duration,
    /// At this time, the run was this old.
    since: (Duration, Duration),
    /// When an attempt has run too long, or a pause is over.
    pub(super) timers: BTreeMap<RunId, Duration>,
    begun: bool,
    /// Whether the record differs from the one that was last asked to be saved.
    changed: bool,
    tickets: u64,
    saving: Option<Ticket>,
    save_again: Option<Duration>,
    /// What may be done once the write under way is durable, and what once the one after it is.
    pub(super) behind_this: Vec<Action>,
    pub(super) behind_next: Vec<Action>,
    /// Attempts that ran when the record was taken up: others may have begun them.
    pub(super) taken_up: Vec<AttemptId>,
    /// Runs whose outputs no durable record has, and how many of them the one has that is being saved.
    pub(super) new_outputs: Vec<RunId>,
    pub(super) new_in_save: usize,
    /// Whether the run goes on without being saved.
    pub(super) is_unkept: bool,
}

/// A record that belongs to another workflow.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the record has {recorded} tasks, and the workflow `{workflow}` has {tasks}: it belongs to another one"
)]
pub struct ResumeError {
    /// The workflow that was given.
    pub workflow: String,
    /// Its tasks.
    pub tasks: usize,
    /// The tasks of the record.
    pub recorded: usize,
}

impl Machine {
    /// The most bytes of a run's output as JSON: the record holds all of them. What is larger belongs in a bucket.
    pub const MAX_OUTPUT: usize = 1 << 20;

    /// A run that starts now. [`Event::Tick`] is due at once.
    pub fn new(id: TaskId, workflow: Arc<Workflow>, input: Value, now: Duration) -> Self {
        let record = Record::new(id, &workflow, input);
        Self {
            workflow,
            record,
            now,
            since: (now, Duration::ZERO),
            timers: BTreeMap::new(),
            begun: false,
            changed: true,
            tickets: 0,
            saving: None,
            save_again: None,
            behind_this: Vec::new(),
            behind_next: Vec::new(),
            taken_up: Vec::new(),
            new_outputs: Vec::new(),
            new_in_save: 0,
            is_unkept: false,
        }
    }

    /// Carries a run on from what was last saved of it, `elapsed` after its start. Where the clock cannot tell how long ago that
    /// was, zero will do: the run is at least as old as its record says. [`Event::Tick`] is due at once.
    ///
    /// # Errors
    /// When the record has other tasks than the workflow.
    pub fn resume(
        workflow: Arc<Workflow>,
        record: Record,
        elapsed: Duration,
        now: Duration,
    ) -> Result<Self, ResumeError> {
        if record.steps.len() != workflow.tasks().len() {
            return Err(ResumeError {
                workflow: workflow.name().into(),
                tasks: workflow.tasks().len(),
                recorded: record.steps.len(),
            });
        }
        let mut machine = Self::new(record.id, workflow, Value::Null, now);
        machine.since = (now, elapsed.max(record.elapsed));
        machine.record = record;
        machine.changed = false;
        Ok(machine)
    }

    /// What a coordinator would carry on from, as it is now; not necessarily what was saved.
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// Takes in what happened, and returns what is to be done, in order.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        if !self.begun {
            self.begun = true;
            self.pick_up();
        }
        let mut out = Vec::new();
        match event {
            Event::Answered { attempt, result } if attempt.of.undo => self.undo_answered(attempt, result),
            Event::Answered { attempt, result } => self.answered(attempt, result),
            Event::Garbled { attempt, error } if attempt.of.undo => self.undo_answered(attempt, Err(error)),
            Event::Garbled { attempt, error } => self.garbled(attempt, error),
            Event::Stopped { attempt } if attempt.of.undo => {
                self.undo_answered(attempt, Err(TaskError::cancelled("it was stopped")));
            }
            Event::Stopped { attempt } => self.stopped(attempt),
            Event::Placed { attempt, node, why } => self.placed(attempt.of, node, &why),
            Event::Cancel => self.fail(None, TaskError::cancelled("the workflow was withdrawn")),
            Event::Outlived { error } => self.fail(None, error),
            Event::Saved { ticket } if self.saving == Some(ticket) => {
                self.saving = None;
                self.save_again = None;
                self.new_outputs.drain(..self.new_in_save);
                self.new_in_save = 0;
                out.append(&mut self.behind_this);
            }
            Event::Unsaved { ticket } if self.saving == Some(ticket) => {
                self.saving = None;
                self.save_again = Some(self.now + SAVE_AGAIN);
            }
            Event::TooLong { ticket, error } if self.saving == Some(ticket) => {
                self.saving = None;
                self.too_long(error);
            }
            Event::Saved { .. } | Event::Unsaved { .. } | Event::TooLong { .. } | Event::Tick => {}
        }
        self.check_times();
        self.advance();
        self.save(&mut out);
        out
    }

    /// When [`Event::Tick`] is due, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Duration> {
        if !self.begun {
            return Some(self.now);
        }
        let running = matches!(self.record.phase, Phase::Running);
        let deadlines = self.deadlines().map(|(at, _)| at).filter(|_| running);
        let timers = self.timers.values().copied();
        timers.chain(deadlines).chain(self.save_again).min()
    }

    /// How long ago it started.
    pub(super) fn elapsed(&self) -> Duration {
        self.since.1 + self.now.saturating_sub(self.since.0)
    }

    fn at(&self, limit: Duration) -> Duration {
        self.since.0 + limit.saturating_sub(self.since.1)
    }

    /// When the whole, and tasks that have not ended, must have ended.
    fn deadlines(&self) -> impl Iterator<Item = (Duration, Option<usize>)> {
        let whole = self.workflow.deadline().map(|limit| (self.at(limit), None));
        let tasks = self.workflow.tasks().iter().zip(&self.record.steps).enumerate();
        let tasks = tasks.filter_map(|(place, (task, step))| {
            let open = matches!(step.state, StepState::Waiting | StepState::Running);
            let limit = task.deadline.filter(|_| open)?;
            Some((self.at(limit), Some(place)))
        });
        whole.into_iter().chain(tasks)
    }

    /// Whatever was under way when the record was written.
    fn pick_up(&mut self) {
        let runs: Vec<_> = self
            .record
            .runs()
            .map(|(id, run)| (id, run.state.clone()))
            .collect();
        for (id, state) in runs {
            match state {
                RunState::Running => {
                    self.taken_up.push(self.attempt(id));
                    self.start(id);
                }
                RunState::Stopping(_) => self.stop(id),
                RunState::Pausing => _ = self.timers.insert(id, self.now),
                RunState::Waiting | RunState::Done(_) | RunState::Failed(_) => {}
            }
        }
        self.pick_up_undoing();
        if let Phase::Ended(outcome) = &self.record.phase {
            let outcome = outcome.clone();
            self.behind_next.push(Action::End { outcome });
        }
    }

    fn check_times(&mut self) {
        if matches!(self.record.phase, Phase::Running) {
            let over = self.deadlines().find(|(at, _)| *at <= self.now);
            if let Some((_, task)) = over {
                self.fail(task, self.late(task));
            }
        }
        let due = self.timers.iter().filter(|(_, at)| **at <= self.now);
        let due: Vec<RunId> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.timers.remove(&id);
            match id.undo {
                true => self.undo_timer(id),
                false => self.run_timer(id),
            }
        }
        if self.save_again.is_some_and(|at| at <= self.now) {
            self.save_again = None;
            self.changed = true;
        }
    }

    /// Asks for the record to be saved if it has changed, and lets through what waits for nothing.
    fn save(&mut self, out: &mut Vec<Action>) {
        if self.saving.is_some() || self.save_again.is_some() {
            return;
        }
        if !self.changed || self.is_unkept {
            out.append(&mut self.behind_this);
            out.append(&mut self.behind_next);
            return;
        }
        self.changed = false;
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.saving = Some(ticket);
        self.new_in_save = self.new_outputs.len();
        self.record.elapsed = self.elapsed();
        self.behind_this.append(&mut self.behind_next);
        let record = Box::new(self.record.clone());
        out.push(Action::Save { ticket, record });
    }

    /// The record is another one now; what follows from that waits until it is durable.
    pub(super) const fn change(&mut self) -> &mut Record {
        self.changed = true;
        &mut self.record
    }

    /// Has this told once something else is durable: nothing follows from it.
    fn placed(&mut self, of: RunId, node: Option<NodeId>, why: &str) {
        let after = self.elapsed();
        let what = What::Placed {
            task: of.task,
            item: of.item,
            node,
            why: beginning(why),
        };
        self.record.history.add(after, what);
    }

    /// Has this told to those that follow the run, once it is durable.
    pub(super) fn tell(&mut self, what: What) {
        let after = self.elapsed();
        self.change().history.add(after, what);
    }

    pub(super) fn attempt(&self, of: RunId) -> AttemptId {
        let number = match (&self.record.phase, of.undo) {
            (Phase::Undoing(undoing), true) => undoing.attempt,
            _ => self.record.steps[of.task].runs[of.item].attempt,
        };
        AttemptId { of, number }
    }

    /// The same for every attempt at a run, and for no other one.
    pub(super) fn key(&self, of: RunId) -> Arc<str> {
        let task = &self.workflow.tasks()[of.task];
        let mut key = format!("{}/{}", self.record.id, task.name);
        if task.each.is_some() {
            key += &format!("/{}", of.item);
        }
        if of.undo {
            key += "/undo";
        }
        key.into()
    }

    /// The attempt that the record names, as it is to be started: for who has to stop one that somebody else has started.
    pub fn call(&self, of: RunId) -> Call {
        let task = &self.workflow.tasks()[of.task];
        let limits = [task.timeout, self.left(of.task).filter(|_| !of.undo)];
        let run = match (&task.undo, of.undo) {
            (Some(undo), true) => undo.as_str(),
            _ => task.run.as_str(),
        };
        Call {
            attempt: self.attempt(of),
            run: run.into(),
            key: self.key(of),
            input: if of.undo {
                self.undo_input(of)
            } else {
                self.run_input(of)
            },
            with: task.with.clone(),
            within: limits.into_iter().flatten().min(),
        }
    }

    /// Starts the attempt that the record names.
    pub(super) fn start(&mut self, of: RunId) {
        let timeout = match of.undo {
            true => Some(self.undo_timeout(of)),
            false => self.workflow.tasks()[of.task].timeout,
        };
        if let Some(timeout) = timeout {
            self.timers.insert(of, self.now + timeout);
        }
        let call = Box::new(self.call(of));
        self.behind_next.push(Action::Start { call });
    }

    pub(super) fn stop(&mut self, of: RunId) {
        self.timers.remove(&of);
        let (attempt, key) = (self.attempt(of), self.key(of));
        self.behind_next.push(Action::Stop { attempt, key });
    }

    pub(super) fn end(&mut self, outcome: Outcome) {
        self.timers.clear();
        self.behind_next.push(Action::End {
            outcome: outcome.clone(),
        });
        self.change().phase = Phase::Ended(outcome);
    }

    /// The time that a task has.
    fn left(&self, task: usize) -> Option<Duration> {
        let limits = [self.workflow.deadline(), self.workflow.tasks()[task].deadline];
        let limit = limits.into_iter().flatten().min()?;
        Some(limit.saturating_sub(self.elapsed()))
    }
}
