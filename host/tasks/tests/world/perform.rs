use super::{Message, PROVIDERS, World, provider};
use karman_tasks::{
    Action, Answer, Batch, Begin, Call, Commit, Effect, Entry, Event, Guarantee, Operation, Read, SaveError,
    Ticket, UnixMs, Verdict, judge,
};
use karman_types::{NodeId, TaskError, TaskResponse};
use std::sync::Arc;

impl World {
    /// What a node does for its machine.
    pub(super) fn perform(&mut self, n: usize, action: Action) {
        let life = self.nodes[n].life;
        let event = |event| Message::Event(n, Some(life), Box::new(event));
        match action {
            Action::Persist { ticket, write } => {
                self.nodes[n].writes.push_back((ticket, write));
                let delay = self.rng.u64(1..30);
                self.post(delay, Message::Fsync(n, life));
            }
            Action::Propose { ticket, entry } => {
                let lost = Self::unsaved(n, life, ticket, SaveError::NoMajority);
                self.send(Message::Propose(n, life, ticket, Box::new(entry)), Some(lost));
            }
            Action::Acknowledge { task, .. } => {
                let local = self.nodes[n].disk.contains_key(&task);
                self.checks
                    .acknowledged(task, local || self.kept.get(task).is_some());
            }
            Action::Answer { asked, .. } => self.checks.answered(asked),
            Action::Place { task, .. } => {
                let mut providers: Vec<_> = (0..PROVIDERS).map(provider).collect();
                self.rng.shuffle(&mut providers);
                if self.faulty {
                    providers.truncate(self.rng.usize(..=PROVIDERS));
                }
                let delay = self.rng.u64(1..20);
                self.post(delay, event(Event::Offered { task, providers }));
            }
            Action::Start { provider, call } => {
                self.checks.started(&call, self.now);
                let lost = event(Event::AttemptLost {
                    attempt: call.attempt,
                });
                self.send(Message::Start(n, index(provider), call), Some(lost));
            }
            Action::Stop { provider, attempt } => {
                self.providers[index(provider)].1.finish(attempt);
            }
            Action::Commit(commit) => {
                let lost = event(Event::CommitLost {
                    attempt: commit.attempt,
                });
                self.send(Message::Commit(n, life, commit), Some(lost));
            }
            Action::HandOver { to, handover } => {
                let task = handover.record.task;
                let lost = event(Event::HandOverFailed { task, refused: false });
                let heir = self.nodes.iter().position(|node| node.id == to).expect("a node");
                self.checks.handed_over(task);
                let request = Message::HandOver(n, life, heir, handover);
                // A stream doubles nothing, but a caller may give up before the request arrives.
                let (delay, late) = (self.rng.u64(1..50), self.rng.u64(1..3_000));
                match self.rng.u8(..10) {
                    0 if self.faulty => self.post(delay, lost),
                    1 if self.faulty => {
                        self.post(delay, lost);
                        self.post(late, request);
                    }
                    _ => self.post(delay, request),
                }
            }
            Action::Refuse { .. }
            | Action::Ended { .. }
            | Action::Displaced { .. }
            | Action::Disowned { .. }
            | Action::Drained => {}
        }
    }

    pub(super) fn deliver(&mut self, message: Message) {
        match message {
            Message::Event(n, life, event) => {
                if life.is_none_or(|life| life == self.nodes[n].life) {
                    self.event(n, *event);
                }
            }
            Message::Restart(n) => self.restart(n),
            Message::Fsync(n, life) => self.fsync(n, life),
            Message::Propose(n, life, ticket, entry) => self.commit_entry(n, life, ticket, *entry),
            Message::Start(n, p, call) => self.start(n, p, *call),
            Message::Finish(n, p, attempt, answer) => {
                if self.providers[p].1.finish(attempt) || self.rng.bool() {
                    let event = Event::Answered { attempt, answer };
                    self.send(Message::Event(n, None, Box::new(event)), None);
                }
            }
            Message::Commit(n, life, commit) => self.commit(n, life, &commit),
            Message::HandOver(n, life, heir, handover) => self.hand_over(n, life, heir, handover),
        }
    }

    /// The oldest write reaches the disk.
    fn fsync(&mut self, n: usize, life: u64) {
        if life != self.nodes[n].life {
            return;
        }
        if let Some((ticket, write)) = self.nodes[n].writes.pop_front() {
            if self.faulty && self.rng.u8(..30) == 0 {
                if self.rng.bool() {
                    self.write(n, write);
                }
                let error = SaveError::Disk("no space".into());
                return self.event(n, Event::Unsaved { ticket, error });
            }
            self.write(n, write);
            self.event(n, Event::Saved { ticket });
        }
    }

    fn commit_entry(&mut self, n: usize, life: u64, ticket: Ticket, entry: Entry) {
        if !self.majority {
            return self.post(50, Self::unsaved(n, life, ticket, SaveError::NoMajority));
        }
        let reply = match self.kept.apply(entry.clone()) {
            Ok(effect) => {
                self.checks.logged(&entry);
                if let Effect::Ended(task) = effect {
                    let outcome = self
                        .kept
                        .get(task)
                        .and_then(|kept| kept.record.outcome())
                        .cloned();
                    self.checks.recorded(task, outcome.as_ref());
                }
                for keeper in 0..super::NODES {
                    let delay = self.rng.u64(1..200);
                    let event = Event::Kept(effect.clone());
                    self.post(delay, Message::Event(keeper, None, Box::new(event)));
                }
                Message::Event(n, Some(life), Box::new(Event::Saved { ticket }))
            }
            Err(error) => Self::unsaved(n, life, ticket, SaveError::Refused(error)),
        };
        self.send(reply, Some(Self::unsaved(n, life, ticket, SaveError::NoMajority)));
    }

    fn start(&mut self, n: usize, p: usize, call: Call) {
        let attempt = call.attempt;
        let event = |event| Message::Event(n, None, Box::new(event));
        if !self.providers[p].0 {
            return self.post(100, event(Event::AttemptLost { attempt }));
        }
        match self.providers[p].1.begin(&call) {
            Ok(Begin::Running) => {}
            Ok(Begin::Run) => {
                let time = self.rng.u64(5..500);
                if self.faulty && self.rng.u8(..20) == 0 {
                    self.providers[p].1.finish(attempt);
                    return self.post(time, event(Event::Excused { attempt }));
                }
                if self.faulty && self.rng.u8(..20) == 0 {
                    self.providers[p].1.finish(attempt);
                    return self.post(time, event(Event::Crowded { attempt }));
                }
                let answer = self.work(&call);
                self.post(time, Message::Finish(n, p, attempt, answer));
                // Nobody waits for ever, not even for an answer that was lost.
                self.post(4_000, event(Event::AttemptLost { attempt }));
            }
            Err(error) => {
                let answer = Err(error.into());
                self.post(5, event(Event::Answered { attempt, answer }));
            }
        }
    }

    /// The task counts something.
    fn work(&mut self, call: &Call) -> Result<Box<Answer>, TaskError> {
        let luck = if self.faulty {
            self.rng.u8(..20)
        } else {
            self.rng.u8(4..20)
        };
        match luck {
            0 => return Err(TaskError::unavailable("no link")),
            1 => return Err(TaskError::internal("a defect")),
            2 => return Err(TaskError::failed("bad luck")),
            3 => return Err(TaskError::deadline("too late")),
            _ => {}
        }
        let key: Arc<str> = format!("counter {}", self.rng.u8(..3)).into();
        let version = self.home.versions.get(&key).copied().unwrap_or(0);
        let bucket: Arc<str> = "counters".into();
        let batch = (luck < 16).then(|| Batch {
            home: NodeId::of_key(b"home"),
            reads: vec![Read {
                bucket: bucket.clone(),
                key: key.clone(),
                version,
            }],
            operations: vec![Operation::Set {
                bucket,
                key,
                value: call.key.to_string().into(),
            }],
        });
        let response = TaskResponse {
            body: format!("{:?}", call.attempt).into(),
            ..TaskResponse::default()
        };
        Ok(Box::new(Answer { response, batch }))
    }

    fn commit(&mut self, n: usize, life: u64, commit: &Commit) {
        let wall = Some(UnixMs(super::DAWN + self.now));
        let versions = &self.home.versions;
        let version = |_: &str, key: &str| versions.get(key).copied().unwrap_or(0);
        let judged = judge(commit, self.home.seen.get(&commit.key), wall, version);
        let verdict = judged.map(|judged| {
            self.checks.judged(commit, &judged.verdict);
            if let Some(seen) = judged.remember {
                self.home.seen.insert(commit.key.clone(), seen);
            }
            if judged.verdict == Verdict::Applied {
                for operation in &commit.batch.operations {
                    if let Operation::Set { key, .. } = operation {
                        *self.home.versions.entry(key.clone()).or_default() += 1;
                    }
                }
            }
            judged.verdict
        });
        let attempt = commit.attempt;
        let reply = Message::Event(n, Some(life), Box::new(Event::Committed { attempt, verdict }));
        let lost = Message::Event(n, Some(life), Box::new(Event::CommitLost { attempt }));
        self.send(reply, Some(lost));
    }

    fn hand_over(&mut self, n: usize, life: u64, heir: usize, handover: Box<karman_tasks::Handover>) {
        let (task, local) = (
            handover.record.task,
            handover.record.guarantee == Guarantee::Local,
        );
        let epoch = handover.record.epoch;
        let time = karman_tasks::Instant(self.now - self.nodes[heir].born);
        let Some(machine) = &mut self.nodes[heir].machine else {
            let failed = Event::HandOverFailed { task, refused: false };
            return self.post(100, Message::Event(n, Some(life), Box::new(failed)));
        };
        let actions = machine.handle(time, Event::Receive(handover));
        let refused = actions
            .iter()
            .any(|action| matches!(action, Action::Refuse { asked, .. } if *asked == task));
        for action in actions {
            self.perform(heir, action);
        }
        // In place of a reply, the node that hands over asks again what has become of it.
        let node = &self.nodes[heir];
        let on_disk = node.disk.get(&task).is_some_and(|record| record.epoch >= epoch);
        let in_log = self.kept.get(task).is_some_and(|kept| kept.record.epoch >= epoch);
        let event = match () {
            () if refused => Event::HandOverFailed { task, refused: true },
            () if on_disk && local || in_log && !local => Event::HandedOver { task },
            () => Event::HandOverFailed { task, refused: false },
        };
        // It comes once or not at all, and who does not hear it knows that.
        let lost = Event::HandOverFailed { task, refused: false };
        let heard = match self.faulty && self.rng.u8(..7) == 0 {
            true => lost,
            false => event,
        };
        let delay = self.rng.u64(1..50);
        self.post(delay, Message::Event(n, Some(life), Box::new(heard)));
    }
}

fn index(node: NodeId) -> usize {
    (0..PROVIDERS).find(|n| provider(*n) == node).expect("a provider")
}
