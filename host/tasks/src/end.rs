use crate::machine::Machine;
use crate::record::length;
use crate::table::{Phase, Step, Task};
use crate::{Action, Answer, Epoch, Guarantee, Instant, Outcome, Saved};
use karman_types::{TaskError, TaskId};
use std::time::Duration;

/// How long a task that can come no more is known after its result is gone: a message of it may still come twice.
const COMES_NO_MORE: Duration = Duration::from_secs(600);

/// From the outcome until nothing is known of the task.
impl Machine {
    /// The task has this outcome. Nothing changes it any more, but that the keepers know of another.
    pub(crate) fn end(&mut self, task: &mut Task, outcome: Outcome) {
        self.stop_all(task);
        task.retry = None;
        task.retries = 0;
        self.stats.expired += u64::from(outcome == Outcome::Expired);
        if task.is_direct() {
            for asked in std::mem::take(&mut task.asked) {
                let result = outcome.clone().into_result();
                self.out.push(Action::Answer { asked, result });
            }
            task.phase = Phase::Gone;
            return;
        }
        task.record.state = Saved::Ended {
            outcome,
            at: self.clock.wall(self.now),
        };
        task.phase = Phase::Ending;
        self.save(task, Step::End);
    }

    /// The outcome is durable.
    pub(crate) fn ended(&mut self, task: &mut Task) {
        task.phase = Phase::Ended { since: self.now };
        // A task that was never acknowledged has nobody who would fetch its result.
        match task.durable {
            true => self.out.push(Action::Ended { task: task.id() }),
            false => self.trim(task),
        }
    }

    pub(crate) fn fetched(&mut self, id: TaskId) {
        self.with(id, |machine, task| {
            if matches!(task.phase, Phase::Ended { .. }) && task.record.outcome().is_some() {
                machine.trim(task);
            }
        });
    }

    /// The answer of an attempt, if its result can wait here at all. It is judged before its batch is committed: a task that fails for
    /// this has had no effect.
    ///
    /// # Errors
    /// `limit` when it is longer than all results together may be; what the attempt has failed with.
    pub(crate) fn fits(&self, task: &Task, answer: Result<Answer, TaskError>) -> Result<Answer, TaskError> {
        let answer = answer?;
        let (bytes, most) = (length(&answer.response), self.limits.results_bytes);
        // How long one of a kept task may be the keepers say.
        if task.record.guarantee != Guarantee::Local || bytes <= most.0 {
            return Ok(answer);
        }
        let name = &task.record.name;
        Err(TaskError::limit(format!(
            "`{name}` answered {bytes} bytes, and all results may have {most}"
        ))
        .with_field("results-bytes")
        .with_hint("answer less, or raise `results-bytes` under [tasks] in node.toml"))
    }

    /// Forgets results where there are too many bytes of them: those that have waited longest.
    pub(crate) fn make_room(&mut self) {
        while self.tasks.held().result_bytes > self.limits.results_bytes.0
            && let Some(task) = self.tasks.oldest_result()
        {
            self.with(task, |machine, task| machine.trim(task));
            self.out.push(Action::Displaced { task });
        }
    }

    pub(crate) fn advance_ended(&mut self, task: &mut Task, since: Instant) {
        if task.saving.is_some() || task.retry.is_some() || self.forget_at(task, since) > self.now {
            return;
        }
        match task.record.state {
            Saved::Ended { .. } => self.trim(task),
            _ => self.save(task, Step::Forget),
        }
    }

    /// When the result is forgotten, or else the key. Counted from the end of the task where that can be told, and from the
    /// latest start of the node where it cannot: rather too late than too early.
    pub(crate) fn forget_at(&self, task: &Task, since: Instant) -> Instant {
        let (at, retention) = match task.record.state {
            Saved::Ended { at, .. } => (at, self.limits.result_retention),
            Saved::Forgotten { .. } if comes_no_more(task) => (None, COMES_NO_MORE),
            Saved::Moved { at, .. } | Saved::Forgotten { at } => (at, self.limits.key_retention),
            _ => (None, self.limits.key_retention),
        };
        let latest = since.after(retention);
        match (at, self.clock.wall(self.now)) {
            (Some(at), Some(_)) => latest.min(self.clock.instant_of(self.now, at.after(retention))),
            _ => latest,
        }
    }

    /// Another node has it.
    pub(crate) fn lose(&mut self, task: &mut Task) {
        self.leave(task);
        self.stats.stale += 1;
        self.out.push(Action::Disowned { task: task.id() });
    }

    /// This node has nothing to do with it any more.
    pub(crate) fn leave(&mut self, task: &mut Task) {
        self.stop_all(task);
        task.phase = Phase::Gone;
    }

    fn trim(&mut self, task: &mut Task) {
        if let Saved::Ended { at, .. } = task.record.state {
            task.record.state = Saved::Forgotten { at };
            task.phase = Phase::Ended { since: self.now };
            self.save(task, Step::Trim);
        }
    }
}

/// Whether nobody asks for this task again: it has no key, and is from no node that may ask whether it has arrived.
fn comes_no_more(task: &Task) -> bool {
    let handed_over = task.record.guarantee == Guarantee::Local && task.record.epoch > Epoch::FIRST;
    task.record.key.is_none() && !handed_over
}
