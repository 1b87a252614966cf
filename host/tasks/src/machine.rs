use crate::attempt::{Attempts, Jitter};
use crate::dedupe::Keys;
use crate::drain::Drain;
use crate::table::{Held, Phase, Redo, Table, Task};
use crate::{
    Action, Clock, Due, Effect, Event, Expiry, Guarantee, Instant, Limits, Outcome, Reading, Saved,
    TaskRecord, Ticket,
};
use karman_types::{NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The tasks of one node, from their acceptance until they are forgotten.
///
/// Feed it what happens ([`Event`]) and do what it says ([`Action`]); when [`Machine::next_timeout`] has come, feed it
/// [`Event::Tick`]. The same events at the same times give the same actions. All of it can be serialised, as a checkpoint from
/// which recorded events replay; what has to survive a crash it asks for by [`Action::Persist`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Machine {
    pub(crate) node: NodeId,
    pub(crate) limits: Limits,
    pub(crate) now: Instant,
    pub(crate) clock: Clock,
    pub(crate) jitter: Jitter,
    /// Tells the attempts of this run from those of an earlier one.
    pub(crate) run: u64,
    pub(crate) tasks: Table,
    pub(crate) keys: Keys,
    /// Whom a write concerns.
    pub(crate) saves: BTreeMap<Ticket, TaskId>,
    pub(crate) tickets: u64,
    /// Attempts that run at each provider, or are about to.
    pub(crate) running: BTreeMap<NodeId, u32>,
    /// Tasks whose providers all had as much as they may have, by each of these.
    pub(crate) busy: BTreeMap<NodeId, BTreeSet<TaskId>>,
    /// Where a place has become free, as often as one has.
    pub(crate) freed: Vec<NodeId>,
    pub(crate) keepers: u32,
    pub(crate) majority: bool,
    pub(crate) drain: Option<Drain>,
    pub(crate) stats: Stats,
    pub(crate) out: Vec<Action>,
}

/// Counters since the start, for metrics.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Stats {
    /// Tasks acknowledged.
    pub acknowledged: u64,
    /// Submissions refused.
    pub refused: u64,
    /// Attempts started.
    pub started: u64,
    /// Answers of attempts that nobody waited for any more.
    pub late: u64,
    /// Commits that met a conflict.
    pub conflicts: u64,
    /// Effects of this node that were refused because another one owns the task.
    pub stale: u64,
    /// Tasks whose time was over.
    pub expired: u64,
}

/// The status of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Status<'a> {
    /// It is not accepted yet.
    Saving,
    /// The clock is not trusted since a restart, so that nobody can tell whether its time is over. It is held until then.
    DeadlineUnknown,
    /// It waits for a provider.
    Waiting,
    /// Attempts run at these nodes.
    Running(Vec<NodeId>),
    /// It has an outcome, which is not durable yet or whose effect is on the way.
    Ending,
    /// It has ended like this, durably.
    Ended(&'a Outcome),
    /// It has ended, and the result is gone: fetched, left lying for too long, or displaced by newer ones.
    Forgotten,
    /// This node owns it, or is about to.
    Moved(NodeId),
}

impl Machine {
    /// A node without tasks. The seed has to be another at each start: it decides all chance, and tells the attempts of this run
    /// from those of an earlier one.
    pub fn new(node: NodeId, limits: Limits, now: Instant, time: Reading, seed: u64) -> Self {
        let mut jitter = Jitter::new(seed);
        Self {
            node,
            limits,
            now,
            clock: Clock::new(now, time),
            run: jitter.draw(),
            jitter,
            tasks: Table::default(),
            keys: Keys::default(),
            saves: BTreeMap::new(),
            tickets: 0,
            running: BTreeMap::new(),
            busy: BTreeMap::new(),
            freed: Vec::new(),
            keepers: 0,
            majority: false,
            drain: None,
            stats: Stats::default(),
            out: Vec::new(),
        }
    }

    /// A node after a restart, with the records that it has written: accepted tasks go on, results and keys are still known.
    /// [`Event::Tick`] is due at once. Kept tasks come back through [`Event::Orphaned`], as records of a keeper; among these
    /// records they are passed over.
    pub fn recover(
        node: NodeId,
        limits: Limits,
        now: Instant,
        time: Reading,
        seed: u64,
        records: impl IntoIterator<Item = TaskRecord>,
    ) -> Self {
        let mut machine = Self::new(node, limits, now, time, seed);
        for record in records {
            if record.guarantee != Guarantee::Local {
                continue;
            }
            if let Some(written) = record.written {
                machine.clock.raise_floor(now, written);
            }
            machine.keys.insert(record.key.as_ref(), record.task);
            let mut task = Task::new(record, Phase::Open, Attempts::due(0, now));
            task.durable = true;
            task.phase = match task.record.state {
                Saved::Open(_) => Phase::Open,
                Saved::Moving { to, .. } => {
                    task.retry = Some((now, Redo::HandOver));
                    Phase::Moving { to, in_doubt: true }
                }
                _ => Phase::Ended { since: now },
            };
            let wake = machine.wake(&task);
            machine.tasks.put(Box::new(task), wake);
        }
        machine
    }

    /// Takes in what happened, and returns what is to be done, in order.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        self.now = self.now.max(now);
        match event {
            Event::Submit {
                asked,
                submission,
                fingerprint,
            } => self.submit(asked, *submission, fingerprint),
            Event::Cancel { asked } => self.cancel(asked),
            Event::Fetched { task } => self.fetched(task),
            Event::Offered { task, providers } => self.offered(task, &providers),
            Event::ProvidersChanged => self.providers_changed(),
            Event::Answered { attempt, answer } => self.answered(attempt, answer.map(|answer| *answer)),
            Event::AttemptLost { attempt } => self.attempt_lost(attempt),
            Event::Excused { attempt } => self.excused(attempt),
            Event::Crowded { attempt } => self.crowded(attempt),
            Event::ProviderLost { provider } => self.provider_lost(provider),
            Event::Committed { attempt, verdict } => self.committed(attempt, verdict),
            Event::CommitLost { attempt } => self.commit_lost(attempt),
            Event::Saved { ticket } => self.saved(ticket, Ok(())),
            Event::Unsaved { ticket, error } => self.saved(ticket, Err(error)),
            Event::Kept(effect) => self.kept(&effect),
            Event::Orphaned(records) => self.orphaned(records),
            Event::Keepers { total, majority } => (self.keepers, self.majority) = (total, majority),
            Event::Clock(reading) => self.clock_read(reading),
            Event::Drain { heirs, keepers } => self.drain(heirs, keepers),
            Event::Receive(handover) => self.receive(*handover),
            Event::HandedOver { task } => self.handed_over(task),
            Event::HandOverFailed { task, refused } => self.hand_over_failed(task, refused),
            Event::Tick => {
                for id in self.tasks.due(self.now) {
                    self.with(id, |_, _| ());
                }
            }
        }
        self.make_room();
        self.wake_busy();
        self.report_drained();
        std::mem::take(&mut self.out)
    }

    /// When [`Event::Tick`] is due, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.tasks.next_timer()
    }

    /// How far a task is; nothing when it is not known here.
    pub fn status(&self, task: TaskId) -> Option<Status<'_>> {
        let task = self.tasks.get(task)?;
        Some(match (&task.phase, &task.record.state) {
            (Phase::Ended { .. }, Saved::Ended { outcome, .. }) => Status::Ended(outcome),
            (Phase::Ended { .. }, Saved::Moved { to, .. }) => Status::Moved(*to),
            (Phase::Ended { .. }, _) => Status::Forgotten,
            (Phase::Saving | Phase::Taking, _) => Status::Saving,
            (Phase::Moving { to, .. }, _) => Status::Moved(*to),
            (Phase::Committing(_) | Phase::Ending | Phase::Withdrawing | Phase::Gone, _) => Status::Ending,
            (Phase::Open, _) if !task.attempts.live.is_empty() => {
                let live = task.attempts.live.iter();
                Status::Running(live.map(|live| live.provider).collect())
            }
            (Phase::Open, _) if self.time(task) == Expiry::Unknown => Status::DeadlineUnknown,
            (Phase::Open, _) => Status::Waiting,
        })
    }

    /// Every task that it holds, the oldest first.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskRecord> {
        self.tasks.iter().map(|task| &task.record)
    }

    /// What is written down of a task; nothing when it is not known here.
    pub fn record(&self, task: TaskId) -> Option<&TaskRecord> {
        self.tasks.get(task).map(|task| &task.record)
    }

    /// How much it holds.
    pub fn held(&self) -> Held {
        self.tasks.held()
    }

    /// Attempts of this node that run at a provider, or are about to.
    pub fn running_at(&self, provider: NodeId) -> u32 {
        self.running.get(&provider).copied().unwrap_or(0)
    }

    /// What happened since the start.
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Changes a task, does what is then due, and puts it back.
    pub(crate) fn with(&mut self, id: TaskId, change: impl FnOnce(&mut Self, &mut Task)) {
        let Some(mut task) = self.tasks.take(id) else {
            return;
        };
        change(self, &mut task);
        self.advance(&mut task);
        if task.phase == Phase::Gone {
            self.keys.remove(task.record.key.as_ref(), id);
        } else {
            let wake = self.wake(&task);
            self.tasks.put(task, wake);
        }
    }

    /// Does what is due.
    fn advance(&mut self, task: &mut Task) {
        if let Some((at, redo)) = task.retry
            && at <= self.now
        {
            task.retry = None;
            match redo {
                Redo::Save(step) => self.save(task, step),
                Redo::HandOver => self.send_handover(task),
                Redo::Commit => {
                    if let Phase::Committing(commit) = &task.phase {
                        self.out.push(Action::Commit(commit.clone()));
                    }
                }
            }
        }
        match task.phase {
            Phase::Open => self.advance_open(task),
            Phase::Committing(_) if self.time(task) == Expiry::Past => self.end(task, Outcome::Expired),
            Phase::Ended { since } => self.advance_ended(task, since),
            _ => {}
        }
    }

    /// When there may be something to do for it.
    fn wake(&self, task: &Task) -> Option<Instant> {
        let expiry = || {
            [task.deadline, self.due_instant(task)]
                .into_iter()
                .flatten()
                .min()
        };
        let then = match task.phase {
            Phase::Open => [expiry(), self.next_attempt(task)].into_iter().flatten().min(),
            Phase::Committing(_) => expiry(),
            Phase::Ended { since } if task.saving.is_none() && task.retry.is_none() => {
                Some(self.forget_at(task, since))
            }
            _ => None,
        };
        let retry = task.retry.map(|(at, _)| at);
        [then, retry].into_iter().flatten().min()
    }

    /// Whether its time is over. Within one run of the node the time left decides, whatever the wall clock shows, unless an
    /// absolute moment has certainly passed.
    pub(crate) fn time(&self, task: &Task) -> Expiry {
        let due = match task.record.due.moment(task.deadline.is_some()) {
            Some(moment) => self.clock.judge(self.now, moment),
            None => Expiry::Ahead,
        };
        match (task.deadline, due) {
            (Some(deadline), _) if deadline <= self.now => Expiry::Past,
            (Some(_), Expiry::Unknown) => Expiry::Ahead,
            (_, due) => due,
        }
    }

    /// When its absolute expiry comes, or is certain to have passed.
    pub(crate) fn due_instant(&self, task: &Task) -> Option<Instant> {
        let moment = task.record.due.moment(task.deadline.is_some())?;
        Some(self.clock.instant_of(self.now, moment))
    }

    fn clock_read(&mut self, reading: Reading) {
        // Set a little further each time, it would run away from what the tasks were last looked at by.
        if self.clock.expects(self.now, reading) {
            return;
        }
        self.clock.set(self.now, reading);
        let wall = self.clock.wall(self.now);
        for id in self.tasks.ids(|task| !matches!(task.phase, Phase::Ended { .. })) {
            self.with(id, |machine, task| {
                // From now on the time left is a moment, which a restart does not forget.
                let ends = task.deadline.zip(wall).filter(|_| !task.is_direct());
                let ends = ends.map(|(deadline, wall)| wall.after(deadline.since(machine.now)));
                let at = [task.record.due.at, ends].into_iter().flatten().min();
                if ends.is_some() && at != task.record.due.at {
                    let no_earlier_than = None;
                    task.record.due = Due { at, no_earlier_than };
                    machine.rewrite(task);
                }
            });
        }
        for id in self.tasks.ids(|task| matches!(task.phase, Phase::Ended { .. })) {
            self.with(id, |_, _| ());
        }
    }

    fn kept(&mut self, effect: &Effect) {
        if let Effect::Owned { task, node, epoch } = *effect
            && node != self.node
        {
            self.with(task, |machine, task| {
                if task.record.epoch < epoch {
                    machine.lose(task);
                }
            });
        }
    }
}
