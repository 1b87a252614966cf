//! Compensation: the effects of a workflow that failed are taken back one by one, the last first.

use super::history::brief;
use super::settle::{is_of_the_stop, may_retry, pause};
use super::{AttemptId, Machine, NotUndone, Outcome, Phase, RunId, RunState, Undoing, What};
use karman_types::{TaskError, Workflow, format_duration};
use serde_json::{Value, json};
use std::time::Duration;

impl Machine {
    fn undoing(&mut self) -> Option<&mut Undoing> {
        match &mut self.change().phase {
            Phase::Undoing(undoing) => Some(undoing),
            _ => None,
        }
    }

    /// Undoes the next effect when nothing runs any more, and ends the workflow when none is left.
    pub(super) fn undo_next(&mut self) {
        let Phase::Undoing(undoing) = &self.record.phase else {
            return;
        };
        let stopping = undoing.left.is_none() && self.record.runs().any(|(_, run)| run.state.is_live());
        if stopping || undoing.attempt > 0 {
            return;
        }
        let left = undoing.left.unwrap_or(self.record.effects.len());
        let can_be_undone = |run: &RunId| self.workflow.tasks()[run.task].undo.is_some();
        let next = self.record.effects[..left].iter().rposition(can_be_undone);
        match next {
            Some(last) => {
                let of = self.undo_of(last);
                if let Some(undoing) = self.undoing() {
                    undoing.left = Some(last + 1);
                }
                self.try_undo(of);
            }
            None => {
                let Undoing { why, not_undone, .. } = undoing.clone();
                self.end(Outcome::Failed { why, not_undone });
            }
        }
    }

    fn undo_of(&self, effect: usize) -> RunId {
        RunId {
            undo: true,
            ..self.record.effects[effect]
        }
    }

    fn try_undo(&mut self, of: RunId) {
        if let Some(undoing) = self.undoing() {
            undoing.attempt += 1;
            undoing.running = true;
        }
        self.start(of);
    }

    /// What undoes a run gets what went into it and what came out, or null where nobody knows.
    pub(super) fn undo_input(&self, of: RunId) -> Value {
        let output = match &self.record.steps[of.task].runs[of.item].state {
            RunState::Done(output) => output.clone(),
            _ => Value::Null,
        };
        json!({ "input": self.run_input(of), "output": output })
    }

    /// How long an attempt at undoing a run may take. There is always an end to that: who does it may never come again.
    pub(super) fn undo_timeout(&self, of: RunId) -> Duration {
        let timeout = self.workflow.tasks()[of.task].timeout;
        timeout.unwrap_or(Workflow::UNDO_TIMEOUT)
    }

    /// Why an effect is not undone that took too long to be. Whether it is all the same, nobody knows.
    pub(super) fn undone_too_late(&self, of: RunId) -> TaskError {
        let task = &self.workflow.tasks()[of.task];
        let (name, by) = (&task.name, task.undo.as_deref().unwrap_or_default());
        let within = format_duration(self.undo_timeout(of));
        let says = format!("`{by}`, which undoes `{name}`, did not answer within {within}");
        TaskError::deadline(says).with_field("timeout").with_hint(format!(
            "see that a node in reach offers `{by}`; `timeout` of [task.{name}] says how long one attempt may take"
        ))
    }

    pub(super) fn undo_answered(&mut self, attempt: AttemptId, result: Result<Value, TaskError>) {
        let Some((of, undoing)) = self.record.being_undone() else {
            return;
        };
        if attempt.of != of || attempt.number != undoing.attempt || !undoing.running {
            return;
        }
        let result = match result {
            Err(error) if undoing.stopping && is_of_the_stop(error.kind) => Err(self.undone_too_late(of)),
            result => result,
        };
        self.timers.remove(&of);
        let task = &self.workflow.tasks()[of.task];
        let again = match &result {
            Err(error) if may_retry(task, attempt.number, error) => Some(pause(task, attempt.number)),
            _ => None,
        };
        if let Some(pause) = again {
            self.timers.insert(of, self.now + pause);
        }
        let name = task.name.clone();
        let Some(undoing) = self.undoing() else {
            return;
        };
        (undoing.running, undoing.stopping) = (false, false);
        if again.is_some() {
            return;
        }
        undoing.attempt = 0;
        undoing.left = undoing.left.map(|left| left - 1);
        let RunId { task, item, .. } = of;
        let what = match result {
            Ok(_) => {
                undoing.undone.push(RunId { undo: false, ..of });
                What::Undone { task, item }
            }
            Err(error) => {
                let why = brief(&error);
                undoing.not_undone.push(NotUndone {
                    task: name,
                    item,
                    error,
                });
                What::NotUndone {
                    task,
                    item,
                    error: why,
                }
            }
        };
        self.tell(what);
    }

    /// The time of an attempt at undoing, or the pause after one, is over.
    pub(super) fn undo_timer(&mut self, of: RunId) {
        match self.record.being_undone() {
            Some((now, undoing)) if now == of && undoing.running => self.give_up_undoing(of),
            Some((now, _)) if now == of => self.try_undo(of),
            _ => {}
        }
    }

    /// Has an attempt at undoing stopped. Until that is answered, nothing else is undone: it may have its effect yet.
    fn give_up_undoing(&mut self, of: RunId) {
        if let Some(undoing) = self.undoing() {
            undoing.stopping = true;
        }
        self.stop(of);
    }

    pub(super) fn pick_up_undoing(&mut self) {
        match self.record.being_undone() {
            Some((of, undoing)) if undoing.stopping => self.stop(of),
            Some((of, undoing)) if undoing.running => self.start(of),
            Some((of, _)) => _ = self.timers.insert(of, self.now),
            None => {}
        }
    }
}
