use crate::machine::Machine;
use crate::table::{Phase, Redo, Step, Task};
use crate::{Action, Guarantee, Handover, Outcome, Saved};
use karman_types::{NodeId, TaskError, TaskId, TaskRequest};
use serde::{Deserialize, Serialize};

/// A node that is about to stop.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Drain {
    heirs: Vec<NodeId>,
    keepers: Vec<NodeId>,
    next: usize,
    reported: bool,
}

/// What waits goes to the heirs.
///
/// A local task is on one disk only, so that the move is written down before the heir hears of it: from then on this node runs the
/// task only if the heir has refused it, and asks the same heir until it answers: if the time of the task is over by then, it is for
/// the heir to say so. A kept task needs no such care, because the heir takes the next epoch: each keeper among the heirs is asked
/// once, and what none of them has taken is theirs as soon as this node is gone.
impl Machine {
    pub(crate) fn drain(&mut self, heirs: Vec<NodeId>, keepers: Vec<NodeId>) {
        self.drain = Some(Drain {
            heirs,
            keepers,
            next: 0,
            reported: false,
        });
        for id in self.tasks.ids(|task| task.phase == Phase::Open) {
            self.with(id, |_, task| task.refused.clear());
        }
    }

    /// Nothing of this task runs, and nothing of it starts here any more.
    pub(crate) fn move_away(&mut self, task: &mut Task) {
        if task.is_direct() {
            let last = task.attempts.last_error.take();
            let error = last.unwrap_or_else(|| TaskError::unavailable("this node is draining"));
            return self.end(
                task,
                Outcome::Failed(error.with_hint("submit it to another node")),
            );
        }
        if stays(task) {
            return;
        }
        if task.retry.is_some() {
            return;
        }
        let Some(to) = self.drain.as_mut().and_then(|drain| drain.heir(task)) else {
            return;
        };
        task.attempts.next = Default::default();
        task.phase = Phase::Moving { to, in_doubt: false };
        match task.record.guarantee {
            Guarantee::Local => {
                let request = take_request(task);
                task.record.state = Saved::Moving { to, request };
                self.save(task, Step::Move);
            }
            _ => self.send_handover(task),
        }
    }

    pub(crate) fn send_handover(&mut self, task: &mut Task) {
        let Phase::Moving { to, .. } = task.phase else {
            return;
        };
        let mut record = task.record.clone();
        record.epoch = record.epoch.next();
        if let Saved::Moving { request, .. } = record.state {
            record.state = Saved::Open(request);
        }
        let within = self.time_left(task);
        let handover = Box::new(Handover { record, within });
        self.out.push(Action::HandOver { to, handover });
    }

    pub(crate) fn handed_over(&mut self, id: TaskId) {
        self.with(id, |machine, task| {
            let Phase::Moving { to, .. } = task.phase else {
                return;
            };
            if task.record.guarantee == Guarantee::Kept {
                machine.out.push(Action::Disowned { task: id });
                return machine.leave(task);
            }
            let at = machine.clock.wall(machine.now);
            task.record.state = Saved::Moved { to, at };
            task.phase = Phase::Ended { since: machine.now };
            task.retry = None;
            machine.save(task, Step::Trim);
        });
    }

    pub(crate) fn hand_over_failed(&mut self, id: TaskId, refused: bool) {
        self.with(id, |machine, task| {
            let Phase::Moving { to, in_doubt } = task.phase else {
                return;
            };
            machine.retry_later(task, Redo::HandOver);
            let local = task.record.guarantee == Guarantee::Local;
            if local && (in_doubt || !refused) {
                task.phase = Phase::Moving { to, in_doubt: true };
                return;
            }
            // To the next heir, after a pause. Nor is a keeper asked twice that has not answered: with no majority none of them would.
            task.refused.push(to);
            task.phase = Phase::Open;
            task.attempts.next = crate::attempt::Next::At(machine.now);
            if local {
                task.record.state = Saved::Open(take_request(task));
                machine.save(task, Step::Stay);
            }
        });
    }

    /// Says once that the node may stop.
    pub(crate) fn report_drained(&mut self) {
        let Some(drain) = self.drain.as_ref().filter(|drain| !drain.reported) else {
            return;
        };
        let alone = |task: &Task| drain.open_to(task).next().is_none();
        let at_rest = |task: &Task| match task.phase {
            Phase::Ended { .. } => true,
            // Without an heir that takes it, or if it is bound to this disk, it stays: on this disk, or with the keepers. With its
            // time in doubt it waits here for the clock.
            Phase::Open => {
                let still = task.attempts.live.is_empty() && task.saving.is_none();
                still && (alone(task) || stays(task) || self.time(task) == crate::Expiry::Unknown)
            }
            _ => false,
        };
        if self.tasks.iter().all(at_rest) {
            self.out.push(Action::Drained);
            if let Some(drain) = &mut self.drain {
                drain.reported = true;
            }
        }
    }
}

impl Drain {
    /// Each in turn of those that may yet take the task.
    fn heir(&mut self, task: &Task) -> Option<NodeId> {
        let heirs: Vec<NodeId> = self.open_to(task).collect();
        let turn = self.next % heirs.len().max(1);
        self.next = self.next.wrapping_add(1);
        heirs.get(turn).copied()
    }

    /// Heirs that may own the task, and have not been asked for it in vain.
    fn open_to(&self, task: &Task) -> impl Iterator<Item = NodeId> {
        let is_kept = task.record.guarantee == Guarantee::Kept;
        let may_own = move |heir: &NodeId| !is_kept || self.keepers.contains(heir);
        let heirs = self.heirs.iter().copied();
        heirs.filter(move |heir| may_own(heir) && !task.refused.contains(heir))
    }
}

/// Whether it waits on this disk for the next start.
fn stays(task: &Task) -> bool {
    task.record.stays && task.record.guarantee == Guarantee::Local
}

fn take_request(task: &mut Task) -> TaskRequest {
    match &mut task.record.state {
        Saved::Open(request) | Saved::Moving { request, .. } => std::mem::take(request),
        _ => TaskRequest::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Instant, Limits, Reading, Status, Submission};

    #[test]
    fn a_task_whose_last_attempt_is_let_go_waits_for_the_next_start() {
        let (task, node) = (TaskId::from_parts(0, 1), NodeId::of_key(b"here"));
        let limits = Limits {
            attempts: 1,
            ..Limits::default()
        };
        let time = Reading {
            trusted: true,
            ..Reading::default()
        };
        let mut machine = Machine::new(node, limits, Instant(0), time, 7);
        let submission = Submission {
            guarantee: Guarantee::Local,
            ..Submission::new("classify", TaskRequest::default())
        };
        let actions = machine.handle(Instant(0), Event::submit(task, submission));
        let [Action::Persist { ticket, .. }] = actions[..] else {
            panic!("{actions:?}")
        };
        machine.handle(Instant(1), Event::Saved { ticket });
        let providers = vec![node];
        let actions = machine.handle(Instant(2), Event::Offered { task, providers });
        let [Action::Start { ref call, .. }] = actions[..] else {
            panic!("{actions:?}")
        };
        let (attempt, heirs, keepers) = (call.attempt, Vec::new(), Vec::new());
        let drain = Event::Drain { heirs, keepers };
        assert_eq!(machine.handle(Instant(3), drain), []);
        assert_eq!(
            machine.handle(Instant(4), Event::Excused { attempt }),
            [Action::Drained]
        );
        assert_eq!(machine.status(task), Some(Status::Waiting));
    }
}
