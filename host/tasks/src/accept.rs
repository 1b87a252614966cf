use crate::attempt::Attempts;
use crate::limits::room;
use crate::machine::Machine;
use crate::record::{fingerprint, request_bytes};
use crate::table::{Phase, Redo, Step, Task};
use crate::{
    Action, Due, Epoch, Expiry, Guarantee, Handover, KeptError, KeyReused, LimitReached, Outcome, SaveError,
    Saved, Submission, SubmitError, TaskRecord, UnixMs,
};
use karman_types::{Digest, TaskError, TaskId, TaskRequest};

/// Fewer nodes have no majority that survives the loss of one.
const KEEPERS: u32 = 3;
/// Bytes of the key of an accepted task. It is remembered long after the task has ended, and nothing else bounds it.
const MOST_KEY: usize = 1 << 10;
/// Bytes of what an accepted task's request has beside its body: keepers count the body only.
const MOST_HEAD: usize = 16 << 10;

impl Machine {
    pub(crate) fn submit(&mut self, asked: TaskId, submission: Submission, fingerprint: Digest) {
        if let Err(error) = self.try_submit(asked, submission, fingerprint) {
            self.refuse(asked, error);
        }
    }

    fn try_submit(
        &mut self,
        asked: TaskId,
        submission: Submission,
        fingerprint: Digest,
    ) -> Result<(), SubmitError> {
        let known = match self.tasks.get(asked) {
            Some(_) => Some(asked),
            None => self.keys.find(submission.key.as_ref()),
        };
        if let Some(task) = known {
            return self.join(asked, task, fingerprint);
        }
        if self.drain.is_some() {
            return Err(SubmitError::Draining);
        }
        let guarantee = submission.guarantee;
        self.check_room(guarantee, request_bytes(&submission.request))?;
        if guarantee != Guarantee::Direct {
            check_lengths(submission.key.as_deref(), &submission.request)?;
            self.check_results(self.spare(submission.is_part()))?;
        }
        match guarantee {
            Guarantee::Kept if self.keepers < KEEPERS => {
                return Err(SubmitError::TooFewKeepers { have: self.keepers });
            }
            Guarantee::Kept if !self.majority => return Err(SubmitError::NotDurable(SaveError::NoMajority)),
            _ => {}
        }

        let mut task = self.new_task(asked, submission, fingerprint);
        if self.time(&task) == Expiry::Past {
            return Err(SubmitError::Expired);
        }
        self.keys.insert(task.record.key.as_ref(), asked);
        task.asked.push(asked);
        match guarantee {
            Guarantee::Direct => task.phase = Phase::Open,
            Guarantee::Local | Guarantee::Kept => self.save(&mut task, Step::Accept),
        }
        self.insert(task);
        Ok(())
    }

    /// The same was asked for before: there is one task, and it does not run again.
    fn join(&mut self, asked: TaskId, first: TaskId, fingerprint: Digest) -> Result<(), SubmitError> {
        let Some(task) = self.tasks.get(first) else {
            return Ok(());
        };
        if task.record.fingerprint != fingerprint {
            return Err(SubmitError::KeyReused(KeyReused(task.record.own_key())));
        }
        if task.durable {
            self.acknowledge(asked, first);
            return Ok(());
        }
        if !task.is_direct() && !matches!(task.phase, Phase::Saving | Phase::Taking) {
            // It was refused because nobody knew whether the keepers have it, and is being withdrawn.
            return Err(SubmitError::NotDurable(SaveError::NoMajority));
        }
        if !task.asked.contains(&asked) {
            room("callers", task.asked.len(), self.limits.callers)?;
            self.with(first, |_, task| task.asked.push(asked));
        }
        Ok(())
    }

    /// An accepted task comes from a node that drains.
    pub(crate) fn receive(&mut self, handover: Handover) {
        let id = handover.record.task;
        if let Err(error) = self.try_receive(handover) {
            self.refuse(id, error);
        }
    }

    fn try_receive(&mut self, handover: Handover) -> Result<(), SubmitError> {
        let Handover { mut record, within } = handover;
        let id = record.task;
        if !is_as_accepted(&record) {
            return Err(SubmitError::NoHandover);
        }
        record.check_lengths()?;
        if let Some(known) = self.tasks.get(id) {
            let another = known.record.fingerprint != record.fingerprint;
            if another || known.record.epoch >= record.epoch {
                return self.join(id, id, record.fingerprint);
            }
            // Nobody else can own a local task that this node has not given away.
            let given = matches!(known.record.state, Saved::Moving { .. } | Saved::Moved { .. });
            if known.record.guarantee == Guarantee::Local && !given {
                return Err(SubmitError::Owned);
            }
        }
        if self.drain.is_some() {
            return Err(SubmitError::Draining);
        }
        self.check_room(record.guarantee, record.bytes())?;
        // Work that was accepted, if elsewhere: results that nobody has fetched do not keep it waiting.
        self.check_results(record.result_bytes())?;
        // It may have been here before, and comes back with a newer epoch.
        self.with(id, |machine, task| machine.leave(task));
        let local = record.guarantee == Guarantee::Local;
        let (phase, step) = match local {
            true => (Phase::Saving, Step::Accept),
            false => (Phase::Taking, Step::Own),
        };
        self.keys.insert(record.key.as_ref(), id);
        // Whatever the other node says, no task lives longer.
        let lifetime = self.limits.lifetime;
        let latest = self.clock.wall(self.now).map(|wall| wall.after(lifetime));
        let bounded = |moment: UnixMs| latest.map_or(moment, |latest| moment.min(latest));
        record.due = Due {
            at: record.due.at.map(bounded),
            no_earlier_than: record.due.no_earlier_than.map(bounded),
        };
        let mut task = Task::new(record, phase, Attempts::default());
        // The time left has become less on the way, by nobody knows how much: it counts only where no absolute moment does.
        let within = match task.record.due {
            Due { at: Some(_), .. } => None,
            Due {
                no_earlier_than: Some(_),
                ..
            } => within,
            _ => Some(within.unwrap_or(lifetime)),
        };
        task.deadline = within.map(|within| self.now.after(within.min(lifetime)));
        task.asked.push(id);
        self.save(&mut task, step);
        self.insert(task);
        Ok(())
    }

    /// Kept tasks whose owner is gone. The next epoch goes to the node that is first in the log.
    pub(crate) fn orphaned(&mut self, records: Vec<TaskRecord>) {
        for mut record in records {
            let id = record.task;
            let newer = |task: &Task| task.record.epoch >= record.epoch;
            let full = self.check_room(Guarantee::Kept, record.bytes()).is_err()
                || self.check_results(record.result_bytes()).is_err();
            // What does not fit is left to another keeper, or to the next call.
            if self.drain.is_some() || full || self.tasks.get(id).is_some_and(newer) {
                continue;
            }
            self.with(id, |machine, task| machine.lose(task));
            record.epoch = record.epoch.next();
            self.keys.insert(record.key.as_ref(), id);
            let mut task = Task::new(record, Phase::Taking, Attempts::default());
            self.save(&mut task, Step::Own);
            self.insert(task);
        }
    }

    /// Its acceptance or its ownership is durable.
    pub(crate) fn accepted(&mut self, task: &mut Task) {
        task.durable = true;
        task.phase = match task.record.state {
            Saved::Open(_) => Phase::Open,
            _ => Phase::Ended { since: self.now },
        };
        task.attempts = Attempts::due(task.record.attempts, self.now);
        for asked in std::mem::take(&mut task.asked) {
            self.acknowledge(asked, task.id());
        }
        if task.withdrawn && task.phase == Phase::Open {
            self.end(task, Outcome::Cancelled);
        }
    }

    /// Its acceptance or its ownership is not durable, or nobody knows.
    pub(crate) fn not_accepted(&mut self, task: &mut Task, step: Step, error: SaveError) {
        let asked = std::mem::take(&mut task.asked);
        match error {
            // Accepted before, perhaps by another node: that one is durable.
            SaveError::Refused(KeptError::Same(first)) => {
                for asked in asked {
                    self.acknowledge(asked, first);
                }
                task.phase = Phase::Gone;
            }
            SaveError::Refused(error) => {
                let error = match error {
                    KeptError::KeyReused(error) => SubmitError::KeyReused(error),
                    KeptError::Limit(error) => SubmitError::Limit(error),
                    error @ KeptError::Denied(_) => SubmitError::NotDurable(SaveError::Refused(error)),
                    _ => SubmitError::Owned,
                };
                for asked in asked {
                    self.refuse(asked, error.clone());
                }
                task.phase = Phase::Gone;
            }
            // It may be the owner. The one before waits until that is known.
            _ if task.record.epoch > Epoch::FIRST => {
                task.asked = asked;
                self.retry_later(task, Redo::Save(step));
            }
            error => {
                for asked in asked {
                    self.refuse(asked, SubmitError::NotDurable(error.clone()));
                }
                match task.record.guarantee {
                    // It may come back after a restart, and is then one that nobody was promised.
                    Guarantee::Local => {
                        self.delete(task);
                        task.phase = Phase::Gone;
                    }
                    // The entry may be committed yet, and a task nobody waits for would be left at the keepers.
                    _ => {
                        task.phase = Phase::Withdrawing;
                        self.save(task, Step::Withdraw);
                    }
                }
            }
        }
    }

    pub(crate) fn cancel(&mut self, asked: TaskId) {
        let waits = |task: &Task| task.asked.contains(&asked);
        let id = match self.tasks.get(asked) {
            Some(_) => Some(asked),
            None => self.tasks.ids(waits).first().copied(),
        };
        let Some(id) = id else { return };
        self.with(id, |machine, task| {
            if task.is_direct() {
                let before = task.asked.len();
                task.asked.retain(|other| *other != asked);
                if task.asked.len() < before {
                    let result = Err(TaskError::cancelled("the task was withdrawn"));
                    machine.out.push(Action::Answer { asked, result });
                }
                if task.asked.is_empty() {
                    machine.end(task, Outcome::Cancelled);
                }
            } else if id == asked {
                match task.phase {
                    // Its run undoes it by what it gave, so that is waited for while its home judges it; not if it is withdrawn once more.
                    Phase::Committing(_) if task.record.is_part() && !task.withdrawn => task.withdrawn = true,
                    Phase::Open | Phase::Committing(_) => machine.end(task, Outcome::Cancelled),
                    Phase::Saving | Phase::Taking => task.withdrawn = true,
                    _ => {}
                }
            }
        });
    }

    fn new_task(&self, asked: TaskId, submission: Submission, fingerprint: Digest) -> Task {
        let (now, lifetime) = (self.now, self.limits.lifetime);
        let wall = self.clock.wall(now);
        let (mut within, mut expires) = (submission.within, submission.expires);
        if submission.guarantee != Guarantee::Direct {
            within = match (within, expires) {
                (None, Some(_)) => None,
                (within, _) => Some(within.map_or(lifetime, |within| within.min(lifetime))),
            };
            if let Some(wall) = wall {
                let latest = wall.after(within.unwrap_or(lifetime));
                expires = Some(expires.map_or(latest, |expires| expires.min(latest)));
            }
        }
        let in_doubt = submission.within.filter(|_| wall.is_none());
        let due = Due {
            at: expires,
            no_earlier_than: in_doubt.map(|within| self.clock.floor(now).after(within)),
        };
        let record = TaskRecord {
            task: asked,
            name: submission.name,
            guarantee: submission.guarantee,
            key: submission.key,
            effect: submission.effect,
            fingerprint,
            epoch: Epoch::FIRST,
            home: (submission.guarantee == Guarantee::Kept).then_some(self.node),
            attempts: 0,
            written: wall,
            due,
            hedge_after: submission.hedge_after,
            stays: submission.stays,
            state: Saved::Open(submission.request),
        };
        let mut task = Task::new(record, Phase::Saving, Attempts::due(0, now));
        task.deadline = within.map(|within| now.after(within));
        task
    }

    fn check_room(&self, guarantee: Guarantee, bytes: u64) -> Result<(), SubmitError> {
        let (held, limits) = (self.tasks.held(), &self.limits);
        room("queue", held.open, limits.queue)?;
        let free = limits.queue_bytes.0.saturating_sub(held.bytes);
        if bytes > free {
            room("queue-bytes", usize::MAX, limits.queue_bytes.as_usize())?;
        }
        if guarantee != Guarantee::Direct {
            room("results", held.results, limits.results)?;
            room("keys", held.keys, limits.keys)?;
        }
        Ok(())
    }

    /// Bytes of results that stay free where one more task is accepted, for those of what was accepted before. What is part of such a
    /// task needs none: its result is one of these.
    const fn spare(&self, is_part: bool) -> u64 {
        match is_part {
            true => 0,
            false => self.limits.results_bytes.0 / 4,
        }
    }

    /// Whether so many more bytes of results would have room.
    fn check_results(&self, bytes: u64) -> Result<(), LimitReached> {
        let most = self.limits.results_bytes;
        match self.tasks.held().result_bytes.saturating_add(bytes) > most.0 {
            true => room("results-bytes", usize::MAX, most.as_usize()),
            false => Ok(()),
        }
    }

    fn insert(&mut self, task: Task) {
        let id = task.id();
        self.tasks.put(Box::new(task), None);
        self.with(id, |_, _| ());
    }

    fn acknowledge(&mut self, asked: TaskId, task: TaskId) {
        self.stats.acknowledged += 1;
        self.out.push(Action::Acknowledge { asked, task });
    }

    fn refuse(&mut self, asked: TaskId, error: SubmitError) {
        self.stats.refused += 1;
        self.out.push(Action::Refuse { asked, error });
    }
}

/// What nothing else bounds of an accepted task.
fn check_lengths(key: Option<&str>, request: &TaskRequest) -> Result<(), SubmitError> {
    let lengths = [
        ("key", key.map_or(0, str::len), MOST_KEY),
        ("metadata", request.head_bytes(), MOST_HEAD),
    ];
    match lengths.into_iter().find(|(_, bytes, most)| bytes > most) {
        Some((field, bytes, most)) => Err(SubmitError::TooLong {
            field: field.into(),
            bytes: bytes as u64,
            most: most as u64,
        }),
        None => Ok(()),
    }
}

impl TaskRecord {
    /// Whether it is as short as an accepted task has to be, but for its body. What other nodes hand in may not be.
    ///
    /// # Errors
    /// [`SubmitError::TooLong`].
    pub fn check_lengths(&self) -> Result<(), SubmitError> {
        self.request()
            .map_or(Ok(()), |request| check_lengths(self.key.as_deref(), request))
    }
}

/// Whether a task that is handed over is one as a node accepts it: what it asks for is what its fingerprint says.
fn is_as_accepted(record: &TaskRecord) -> bool {
    let Saved::Open(request) = &record.state else {
        return false;
    };
    let guaranteed = match record.guarantee {
        Guarantee::Direct => false,
        // It reads and writes the buckets of its owner.
        Guarantee::Local => record.home.is_none(),
        Guarantee::Kept => true,
    };
    guaranteed && record.fingerprint == fingerprint(&record.name, record.guarantee, request)
}
