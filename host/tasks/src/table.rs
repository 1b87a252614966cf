use crate::attempt::Attempts;
use crate::{Commit, Guarantee, Instant, Saved, TaskRecord, Ticket, UnixMs};
use karman_types::{NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A task that this node holds.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Task {
    pub(crate) record: TaskRecord,
    pub(crate) phase: Phase,
    pub(crate) attempts: Attempts,
    /// Who waits for the acknowledgement, or for the answer of a direct task.
    pub(crate) asked: Vec<TaskId>,
    /// Whether its acceptance is durable.
    pub(crate) durable: bool,
    /// Whether it was withdrawn before that, or while its effect was on the way.
    pub(crate) withdrawn: bool,
    /// When the time left is over, in this run of the node.
    pub(crate) deadline: Option<Instant>,
    /// The write that it waits for. An earlier one matters no longer.
    pub(crate) saving: Option<(Ticket, Step)>,
    /// What did not work, and is done again.
    pub(crate) retry: Option<(Instant, Redo)>,
    /// How often in a row.
    pub(crate) retries: u32,
    /// Heirs that have refused it, and keepers that did not answer when it was handed to them.
    pub(crate) refused: Vec<NodeId>,
    wake: Option<Instant>,
}

/// Where a task stands. `Saving → Open → (Committing) → Ending → Ended`; a direct task goes from `Open` to `Gone`, one that could
/// not be kept from `Saving` over `Withdrawing`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Phase {
    /// Its acceptance is on the way to the disk or to the keepers.
    Saving,
    /// The keepers are asked for its ownership.
    Taking,
    /// It waits for an attempt, or has some.
    Open,
    /// An attempt has answered, and its batch is on the way to its home.
    Committing(Box<Commit>),
    /// Its outcome is on the way to the disk or to the keepers.
    Ending,
    /// Nobody knows whether the keepers have it, and nobody was told that they do: they are asked to forget it.
    Withdrawing,
    /// Nothing happens any more, but that it is forgotten.
    Ended { since: Instant },
    /// It is being handed over. `in_doubt` if the heir may have it.
    Moving { to: NodeId, in_doubt: bool },
    /// It leaves the table.
    Gone,
}

/// What a write is for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Step {
    Accept,
    Withdraw,
    Own,
    Dispatch,
    End,
    Move,
    Stay,
    Trim,
    Forget,
}

/// An operation that is retried after a pause.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) enum Redo {
    Save(Step),
    Commit,
    HandOver,
}

impl Task {
    pub(crate) fn new(record: TaskRecord, phase: Phase, attempts: Attempts) -> Self {
        Self {
            record,
            phase,
            attempts,
            asked: Vec::new(),
            durable: false,
            withdrawn: false,
            deadline: None,
            saving: None,
            retry: None,
            retries: 0,
            refused: Vec::new(),
            wake: None,
        }
    }

    pub(crate) fn id(&self) -> TaskId {
        self.record.task
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.record.guarantee == Guarantee::Direct
    }

    fn weight(&self) -> Held {
        let accepted = !self.is_direct();
        let open = !matches!(self.phase, Phase::Ended { .. });
        let remembered = matches!(self.record.state, Saved::Moved { .. } | Saved::Forgotten { .. });
        Held {
            open: open.into(),
            bytes: self.record.bytes(),
            results: (accepted && !remembered).into(),
            result_bytes: self.record.result_bytes(),
            keys: accepted.into(),
        }
    }

    /// Its place among the results that may be forgotten to make room, if it is one of them.
    fn waits(&self) -> Option<Waits> {
        let (Phase::Ended { since }, Saved::Ended { at, .. }) = (&self.phase, &self.record.state) else {
            return None;
        };
        let may_go = self.record.result_bytes() > 0 && !self.record.is_part();
        may_go.then_some((*since, *at, self.id()))
    }
}

/// Since when a result waits in this run of the node, when the task ended if that could be told, and the task.
type Waits = (Instant, Option<UnixMs>, TaskId);

/// The resources that a node's tasks hold: each number has its limit in [`crate::Limits`].
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Held {
    /// Tasks that have not ended.
    pub open: usize,
    /// Bytes of their requests.
    pub bytes: u64,
    /// Accepted tasks that have not ended, and results that have not been forgotten.
    pub results: usize,
    /// Bytes of the results that have not been forgotten.
    pub result_bytes: u64,
    /// Accepted tasks of any state.
    pub keys: usize,
}

/// The tasks of a node, what they weigh together, and when each wants to be looked at.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Table {
    tasks: BTreeMap<TaskId, Box<Task>>,
    timers: BTreeSet<(Instant, TaskId)>,
    /// Results that may be forgotten to make room, the one that has waited longest in front.
    waiting: BTreeSet<Waits>,
    held: Held,
}

impl Table {
    /// Takes a task out, to change it and put it back.
    pub(crate) fn take(&mut self, id: TaskId) -> Option<Box<Task>> {
        let task = self.tasks.remove(&id)?;
        let weight = task.weight();
        self.held.open -= weight.open;
        self.held.bytes -= weight.bytes;
        self.held.results -= weight.results;
        self.held.result_bytes -= weight.result_bytes;
        self.held.keys -= weight.keys;
        if let Some(wake) = task.wake {
            self.timers.remove(&(wake, id));
        }
        if let Some(waits) = task.waits() {
            self.waiting.remove(&waits);
        }
        Some(task)
    }

    pub(crate) fn put(&mut self, mut task: Box<Task>, wake: Option<Instant>) {
        let weight = task.weight();
        self.held.open += weight.open;
        self.held.bytes += weight.bytes;
        self.held.results += weight.results;
        self.held.result_bytes += weight.result_bytes;
        self.held.keys += weight.keys;
        task.wake = wake;
        if let Some(wake) = wake {
            self.timers.insert((wake, task.id()));
        }
        self.waiting.extend(task.waits());
        self.tasks.insert(task.id(), task);
    }

    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id).map(|task| &**task)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values().map(|task| &**task)
    }

    /// The ids of those tasks, oldest first.
    pub(crate) fn ids(&self, which: impl Fn(&Task) -> bool) -> Vec<TaskId> {
        self.iter().filter(|task| which(task)).map(Task::id).collect()
    }

    pub(crate) fn held(&self) -> Held {
        self.held
    }

    /// The task whose result has waited longest, of those that may be forgotten to make room.
    pub(crate) fn oldest_result(&self) -> Option<TaskId> {
        self.waiting.first().map(|(_, _, task)| *task)
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whose timers have run out.
    pub(crate) fn due(&self, now: Instant) -> Vec<TaskId> {
        let due = self.timers.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, id)| *id).collect()
    }
}
