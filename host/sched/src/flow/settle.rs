//! Answers, retries, failure.

use super::history::brief;
use super::{AttemptId, Failure, Machine, Phase, Run, RunId, RunState, StepState, Undoing, What};
use karman_types::{Backoff, ErrorKind, FlowTask, RecordError, Side, TaskError, Workflow, format_duration};
use serde_json::Value;
use std::time::Duration;

/// Whether a further attempt could end otherwise: the input and the rights stay the same.
const fn worth_a_retry(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Invalid | ErrorKind::Denied | ErrorKind::Cancelled
    )
}

fn is_too_long(output: &Value) -> bool {
    serde_json::to_vec(output).is_ok_and(|bytes| bytes.len() > Machine::MAX_OUTPUT)
}

/// A broken contract as the error of the task.
pub(super) fn kept(checked: Result<(), RecordError>) -> Result<(), TaskError> {
    checked.map_err(|broken| {
        let field = broken.field.clone();
        TaskError::invalid(broken.to_string()).with_field(field)
    })
}

/// Whether an attempt that ended so may have had its effect: nobody has seen its end.
const fn is_doubtful(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable
            | ErrorKind::Deadline
            | ErrorKind::Cancelled
            | ErrorKind::Internal
            | ErrorKind::Limit
    )
}

/// Whether an attempt that is stopped ends so because of that.
pub(super) const fn is_of_the_stop(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Cancelled | ErrorKind::Deadline)
}

/// The pause before the next attempt, when this many have failed.
pub(super) fn pause(task: &FlowTask, failed: u32) -> Duration {
    let pauses = Backoff {
        first: task.pause,
        longest: Workflow::LONGEST_PAUSE,
    };
    pauses.whole(failed)
}

/// Why a run ends that has not failed itself.
pub(super) fn with_the_whole() -> TaskError {
    TaskError::cancelled("the workflow has failed")
}

/// Whether a run gets another attempt after this error.
pub(super) fn may_retry(task: &FlowTask, failed: u32, error: &TaskError) -> bool {
    failed <= task.retries && worth_a_retry(error.kind)
}

impl Machine {
    pub(super) fn answered(&mut self, attempt: AttemptId, result: Result<Value, TaskError>) {
        if self.awaits(attempt).is_none() {
            return;
        }
        self.timers.remove(&attempt.of);
        match result {
            Ok(output) if is_too_long(&output) => {
                let error = TaskError::limit(format!("its output has over {} bytes", Self::MAX_OUTPUT))
                    .with_hint("put it into a bucket, and hand on its name");
                self.attempt_failed(attempt.of, error);
            }
            Ok(output) => match self.check_output(attempt.of, &output) {
                Ok(()) => self.done(attempt.of, output),
                Err(error) => self.has_run(attempt.of, error),
            },
            Err(error) => self.attempt_failed(attempt.of, self.because(attempt, error)),
        }
    }

    /// Why an attempt has ended with this error: of one that is being stopped, that it was withdrawn, or that its time is over, says less
    /// than why it is stopped.
    fn because(&self, attempt: AttemptId, error: TaskError) -> TaskError {
        match self.awaits(attempt) {
            Some(RunState::Stopping(why)) if is_of_the_stop(error.kind) => why.clone(),
            _ => error,
        }
    }

    pub(super) fn garbled(&mut self, attempt: AttemptId, error: TaskError) {
        if self.awaits(attempt).is_some() {
            self.timers.remove(&attempt.of);
            self.has_run(attempt.of, error);
        }
    }

    /// It has run, and failed even so: whatever it did is there.
    fn has_run(&mut self, of: RunId, error: TaskError) {
        self.change().steps[of.task].runs[of.item].doubtful = true;
        self.attempt_failed(of, error);
    }

    /// Whether what came out of a run keeps the contract of its task. Where it does not, another attempt may.
    fn check_output(&self, of: RunId, output: &Value) -> Result<(), TaskError> {
        let checked = self.workflow.tasks()[of.task]
            .outputs
            .check_json(Side::Output, output);
        kept(checked).map_err(|error| TaskError {
            kind: ErrorKind::Failed,
            ..error
        })
    }

    pub(super) fn stopped(&mut self, attempt: AttemptId) {
        let why = match self.awaits(attempt) {
            Some(RunState::Stopping(why)) => why.clone(),
            Some(_) => TaskError::cancelled("it was stopped"),
            None => return,
        };
        self.attempt_failed(attempt.of, why);
    }

    /// How the run stands, if this is its attempt and it may run.
    fn awaits(&self, attempt: AttemptId) -> Option<&RunState> {
        let AttemptId { of, number } = attempt;
        let run = self.record.steps.get(of.task)?.runs.get(of.item)?;
        (run.attempt == number && run.state.is_live()).then_some(&run.state)
    }

    /// The time of an attempt, or the pause after one, is over.
    pub(super) fn run_timer(&mut self, of: RunId) {
        match self.record.steps[of.task].runs[of.item].state {
            RunState::Running => {
                let FlowTask { name, timeout, .. } = &self.workflow.tasks()[of.task];
                let timeout = format_duration(timeout.unwrap_or_default());
                let error = TaskError::deadline(format!(
                    "`{name}` did not answer within its `timeout` ({timeout})"
                ))
                .with_field("timeout")
                .with_hint(format!("raise `timeout` of [task.{name}] in the workflow"));
                self.give_up(of, error);
            }
            RunState::Pausing => self.try_again(of),
            _ => {}
        }
    }

    /// Why the workflow fails whose `deadline`, or that of this task of it, has passed.
    pub(super) fn late(&self, task: Option<usize>) -> TaskError {
        let (what, time) = match task {
            Some(task) => ("task", self.workflow.tasks()[task].deadline),
            None => ("workflow", self.workflow.deadline()),
        };
        let time = format_duration(time.unwrap_or_default());
        let says = format!("the time of the {what} is over: its `deadline` ({time}) has passed");
        TaskError::deadline(says)
            .with_field("deadline")
            .with_hint("give it a later `deadline`, or faster tasks")
    }

    /// Has an attempt stopped. Until that is answered, it counts as running.
    fn give_up(&mut self, of: RunId, why: TaskError) {
        self.change().steps[of.task].runs[of.item].state = RunState::Stopping(why);
        self.stop(of);
    }

    fn done(&mut self, of: RunId, output: Value) {
        self.new_outputs.push(of);
        let record = self.change();
        record.effects.push(of);
        let step = &mut record.steps[of.task];
        step.runs[of.item].state = RunState::Done(output);
        let done = |run: &Run| matches!(run.state, RunState::Done(_));
        let all = step.runs.iter().all(done);
        if all {
            step.state = StepState::Done;
        }
        let (task, item) = (of.task, of.item);
        if self.workflow.tasks()[task].each.is_some() {
            self.tell(What::Item { task, item });
        }
        if all {
            self.tell(What::Done { task });
        }
    }

    fn attempt_failed(&mut self, of: RunId, error: TaskError) {
        let task = &self.workflow.tasks()[of.task];
        let attempt = self.record.steps[of.task].runs[of.item].attempt;
        let again = may_retry(task, attempt, &error).then(|| pause(task, attempt));
        let running = matches!(self.record.phase, Phase::Running);
        let run = &mut self.change().steps[of.task].runs[of.item];
        run.doubtful |= is_doubtful(error.kind);
        match again.filter(|_| running) {
            Some(pause) => {
                run.state = RunState::Pausing;
                self.timers.insert(of, self.now + pause);
                self.tell(What::Retried {
                    task: of.task,
                    item: of.item,
                    attempt,
                    error: brief(&error),
                });
            }
            None => {
                self.failed(of, error.clone());
                self.fail(Some(of.task), error);
            }
        }
    }

    /// The run has failed for good.
    pub(super) fn failed(&mut self, of: RunId, error: TaskError) {
        self.tell(What::Failed {
            task: of.task,
            item: of.item,
            error: brief(&error),
        });
        let record = self.change();
        let run = &mut record.steps[of.task].runs[of.item];
        run.state = RunState::Failed(error);
        if run.doubtful {
            record.effects.push(of);
        }
    }

    /// The workflow fails: whatever runs is stopped, and then undone. Only the first failure counts.
    pub(super) fn fail(&mut self, task: Option<usize>, error: TaskError) {
        if !matches!(self.record.phase, Phase::Running) {
            return;
        }
        self.tell(What::Undoing {
            task,
            error: brief(&error),
        });
        let task = task.map(|task| self.workflow.tasks()[task].name.clone());
        self.change().phase = Phase::Undoing(Undoing {
            why: Failure { task, error },
            left: None,
            attempt: 0,
            running: false,
            stopping: false,
            undone: Vec::new(),
            not_undone: Vec::new(),
        });
        let runs: Vec<_> = self
            .record
            .runs()
            .map(|(id, run)| (id, run.state.clone()))
            .collect();
        for (id, state) in runs {
            match state {
                RunState::Running => self.give_up(id, with_the_whole()),
                RunState::Pausing => {
                    self.timers.remove(&id);
                    self.failed(id, with_the_whole());
                }
                _ => {}
            }
        }
    }
}
