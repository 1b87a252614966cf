//! What a run lets go of that is too long to be kept.

use super::settle::with_the_whole;
use super::{Action, AttemptId, Machine, Outcome, Phase, RunId, RunState};
use karman_types::TaskError;
use serde_json::Value;
use std::mem::take;

impl Machine {
    /// Whether it is saved no more, because all that was left to be kept is too long. It goes on to its end all the same.
    pub const fn is_unkept(&self) -> bool {
        self.is_unkept
    }

    /// The record is longer than whoever keeps it takes. The run fails, in the task with the longest of the outputs that no durable
    /// record has. These are let go of, and so is what no undoing takes; where there is nothing of that, the run goes on unkept.
    pub(super) fn too_long(&mut self, error: TaskError) {
        self.change();
        self.new_in_save = 0;
        let new = take(&mut self.new_outputs);
        let had_ended = self.take_back_the_end();
        self.never_begin();
        let longest = new.iter().max_by_key(|of| self.length(**of));
        self.fail(longest.map(|of| of.task), error);
        let dropped = new.into_iter().filter(|of| self.forget(*of)).count();
        let shed = self.shed();
        self.is_unkept = !had_ended && dropped == 0 && !shed;
        self.call_anew();
    }

    /// An output that cannot be kept is no end. Whether there was one.
    fn take_back_the_end(&mut self) -> bool {
        let done = matches!(self.record.phase, Phase::Ended(Outcome::Done(_)));
        if done {
            self.record.phase = Phase::Running;
            for held in [&mut self.behind_this, &mut self.behind_next] {
                held.retain(|action| !matches!(action, Action::End { .. }));
            }
        }
        done
    }

    /// What was to begin once this is saved does not begin: it may take what is let go of, and nobody can have begun it.
    fn never_begin(&mut self) {
        let held = self.behind_this.iter().chain(&self.behind_next);
        let never = held.filter_map(|action| match action {
            Action::Start { call } if !call.attempt.of.undo => Some(call.attempt),
            _ => None,
        });
        let never: Vec<AttemptId> = never.filter(|attempt| !self.taken_up.contains(attempt)).collect();
        let stays = |action: &Action| match action {
            Action::Start { call } => !never.contains(&call.attempt),
            Action::Stop { attempt, .. } => !never.contains(attempt),
            Action::Save { .. } | Action::End { .. } => true,
        };
        self.behind_this.retain(stays);
        self.behind_next.retain(stays);
        for AttemptId { of, .. } in never {
            self.timers.remove(&of);
            self.failed(of, with_the_whole());
        }
    }

    /// Bytes of the output of a run.
    fn length(&self, of: RunId) -> usize {
        match &self.record.steps[of.task].runs[of.item].state {
            RunState::Done(output) => output.to_string().len(),
            _ => 0,
        }
    }

    /// Lets go of the output of a run. Whether there was one.
    fn forget(&mut self, of: RunId) -> bool {
        match &mut self.record.steps[of.task].runs[of.item].state {
            RunState::Done(output) => !take(output).is_null(),
            _ => false,
        }
    }

    /// Lets go of outputs, and of the input of the whole, that nothing takes any more which runs or is to be undone. Whether there were
    /// any.
    fn shed(&mut self) -> bool {
        let to_undo = self.record.to_undo(&self.workflow);
        let runs = self.record.runs();
        let live = runs.filter(|(_, run)| run.state.is_live()).map(|(of, _)| of);
        let mut feeds = vec![false; self.workflow.tasks().len()];
        let mut needs_input = false;
        for of in live.chain(to_undo.iter().copied()) {
            let into = self.workflow.edges_into(of.task);
            needs_input |= into.is_empty();
            for edge in into {
                feeds[self.workflow.edges()[*edge].from] = true;
            }
        }
        let runs = self.record.runs().map(|(of, _)| of);
        let needless: Vec<RunId> = runs
            .filter(|of| !feeds[of.task] && !to_undo.contains(of))
            .collect();
        let outputs = needless.into_iter().filter(|of| self.forget(*of)).count();
        let input = match needs_input {
            true => Value::Null,
            false => take(&mut self.record.input),
        };
        outputs > 0 || !input.is_null()
    }

    /// What is to undo something once this is saved gets what is left of it, as it would from another coordinator.
    fn call_anew(&mut self) {
        let held = [take(&mut self.behind_this), take(&mut self.behind_next)];
        let anew = |action| match action {
            Action::Start { call } if call.attempt.of.undo => {
                let call = Box::new(self.call(call.attempt.of));
                Action::Start { call }
            }
            other => other,
        };
        [self.behind_this, self.behind_next] = held.map(|actions| actions.into_iter().map(&anew).collect());
    }
}
