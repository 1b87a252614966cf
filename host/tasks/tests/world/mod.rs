//! Several nodes, their disks, the keepers' log, providers and the home of some buckets, in virtual time: messages are lost, doubled
//! and reordered, nodes crash and come back, writes are cut off, providers fail. What must always hold is checked at every step.

mod check;
mod perform;

use check::Checks;
use karman_tasks::{
    Commit, Entry, Event, Guarantee, Handover, Instant, KeptState, Limits, Machine, Provider, Reading,
    SaveError, Seen, Submission, TaskRecord, Ticket, UnixMs, Write,
};
use karman_types::{ByteSize, NodeId, TaskId, TaskRequest};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The true time of day when the world begins.
const DAWN: u64 = 1_700_000_000_000;
pub(crate) const NODES: usize = 3;
const PROVIDERS: usize = 3;

pub(crate) struct World {
    rng: fastrand::Rng,
    /// Milliseconds since the world began.
    pub(crate) now: u64,
    /// Whether anything goes wrong.
    pub(crate) faulty: bool,
    nodes: Vec<Node>,
    providers: Vec<(bool, Provider)>,
    pub(crate) kept: KeptState,
    majority: bool,
    home: Home,
    messages: BTreeMap<(u64, u64), Message>,
    sequence: u64,
    tasks: u128,
    pub(crate) checks: Checks,
}

struct Node {
    id: NodeId,
    machine: Option<Machine>,
    /// Counts the starts, so that what was meant for an earlier life does not reach a later one.
    life: u64,
    born: u64,
    disk: BTreeMap<TaskId, TaskRecord>,
    writes: VecDeque<(Ticket, Write)>,
}

/// The versions of a few counters, and the keys that were seen.
#[derive(Default)]
struct Home {
    versions: BTreeMap<Arc<str>, u64>,
    seen: BTreeMap<Arc<str>, Seen>,
}

#[derive(Clone)]
enum Message {
    /// For this life of a node, or for any.
    Event(usize, Option<u64>, Box<Event>),
    Fsync(usize, u64),
    Propose(usize, u64, Ticket, Box<Entry>),
    Start(usize, usize, Box<karman_tasks::Call>),
    Finish(
        usize,
        usize,
        karman_tasks::AttemptId,
        Result<Box<karman_tasks::Answer>, karman_types::TaskError>,
    ),
    Commit(usize, u64, Box<Commit>),
    HandOver(usize, u64, usize, Box<Handover>),
    Restart(usize),
}

pub(crate) fn limits() -> Limits {
    Limits {
        queue: 8,
        queue_bytes: ByteSize(64),
        results: 40,
        results_bytes: ByteSize(2_000),
        keys: 60,
        callers: 2,
        attempts: 3,
        running_per_provider: 2,
        longest_pause: Duration::from_secs(1),
        ..Limits::default()
    }
}

fn provider(n: usize) -> NodeId {
    NodeId::of_key(format!("provider {n}").as_bytes())
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: fastrand::Rng::with_seed(seed),
            now: 0,
            faulty: true,
            nodes: Vec::new(),
            providers: vec![(true, Provider::new(4, 1_000)); PROVIDERS],
            kept: KeptState::new(1_000),
            majority: true,
            home: Home::default(),
            messages: BTreeMap::new(),
            sequence: 0,
            tasks: 0,
            checks: Checks::default(),
        };
        for n in 0..NODES {
            world.nodes.push(Node {
                id: NodeId::of_key(format!("node {n}").as_bytes()),
                machine: None,
                life: 0,
                born: 0,
                disk: BTreeMap::new(),
                writes: VecDeque::new(),
            });
            world.restart(n);
        }
        world
    }

    /// Lets this much time pass.
    pub(crate) fn run(&mut self, millis: u64) {
        let end = self.now + millis;
        loop {
            let timers = (0..NODES).filter_map(|n| Some((self.timer(n)?, n)));
            let timer = timers.min();
            let message = self.messages.first_key_value().map(|(at, _)| *at);
            match (timer, message) {
                (Some((at, n)), message) if at <= end && message.is_none_or(|(next, _)| at < next) => {
                    self.now = self.now.max(at);
                    self.event(n, Event::Tick);
                    assert!(
                        self.timer(n).is_none_or(|next| next > self.now),
                        "a timer that stays due"
                    );
                }
                (_, Some(key @ (at, _))) if at <= end => {
                    self.now = self.now.max(at);
                    let message = self.messages.remove(&key).expect("it is there");
                    self.deliver(message);
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// A caller comes to a node.
    pub(crate) fn submit(&mut self, n: usize) {
        self.tasks += 1;
        let asked = TaskId::from_parts(DAWN + self.now, self.tasks);
        let guarantee = [
            Guarantee::Direct,
            Guarantee::Local,
            Guarantee::Local,
            Guarantee::Kept,
            Guarantee::Kept,
        ];
        let time = |rng: &mut fastrand::Rng| rng.u64(1..8_000);
        let body = vec![self.rng.u8(..2); self.rng.usize(1..12)];
        let submission = Submission {
            guarantee: guarantee[self.rng.usize(..guarantee.len())],
            key: self
                .rng
                .bool()
                .then(|| format!("key {}", self.rng.u8(..12)).into()),
            within: self
                .rng
                .bool()
                .then(|| Duration::from_millis(time(&mut self.rng))),
            expires: (self.rng.u8(..3) == 0).then(|| UnixMs(DAWN + self.now + time(&mut self.rng))),
            hedge_after: self.rng.bool().then(|| Duration::from_millis(50)),
            ..Submission::new(
                "work",
                TaskRequest {
                    body: body.into(),
                    ..TaskRequest::default()
                },
            )
        };
        self.checks.submitted(asked, &submission, self.now, DAWN);
        self.event(n, Event::submit(asked, submission));
    }

    /// Something happens that nobody asked for.
    pub(crate) fn mishap(&mut self) {
        let n = self.rng.usize(..NODES);
        let p = self.rng.usize(..PROVIDERS);
        match self.rng.u8(..10) {
            0 | 1 => self.crash(n),
            2 => {
                self.providers[p].0 ^= true;
                let provider = provider(p);
                match self.providers[p].0 {
                    true => (0..NODES).for_each(|n| self.event(n, Event::ProvidersChanged)),
                    false => {
                        self.providers[p].1 = Provider::new(4, 1_000);
                        self.event(n, Event::ProviderLost { provider });
                    }
                }
            }
            3 => {
                self.majority ^= true;
                (0..NODES).for_each(|n| self.tell_keepers(n));
            }
            // Somebody believes that the owner is lost, rightly or not.
            4 | 5 => self.take_over(n),
            6 => {
                let heirs = self.nodes.iter().map(|node| node.id);
                let heirs: Vec<NodeId> = heirs.filter(|id| *id != self.nodes[n].id).collect();
                let keepers = heirs.clone();
                self.event(n, Event::Drain { heirs, keepers });
                let pause = self.rng.u64(1..5_000);
                self.post(pause, Message::Restart(n));
            }
            7 => {
                // Of those that came last, some have not ended yet.
                let mut known: Vec<_> = self.checks.known().collect();
                known.sort();
                let last = known.iter().rev().take(4).copied();
                if let Some(asked) = self.rng.choice(last.collect::<Vec<_>>()) {
                    self.checks.withdrawn(asked);
                    (0..NODES).for_each(|n| self.event(n, Event::Cancel { asked }));
                }
            }
            8 => self.event(n, Event::Clock(doubt())),
            _ => {
                let now = self.trusted();
                self.event(n, Event::Clock(now));
            }
        }
    }

    /// From now on nothing goes wrong any more.
    pub(crate) fn heal(&mut self) {
        self.faulty = false;
        self.majority = true;
        self.providers.iter_mut().for_each(|(alive, _)| *alive = true);
        for n in 0..NODES {
            self.restart(n);
            let now = self.trusted();
            self.event(n, Event::Clock(now));
        }
    }

    /// Nodes ask the keepers what is theirs.
    pub(crate) fn reconcile(&mut self) {
        for n in 0..NODES {
            let records = self.kept.owned_by(self.nodes[n].id);
            self.event(n, Event::Orphaned(records));
        }
    }

    fn timer(&self, n: usize) -> Option<u64> {
        let node = &self.nodes[n];
        Some(node.born + node.machine.as_ref()?.next_timeout()?.0)
    }

    fn trusted(&self) -> Reading {
        Reading {
            wall: UnixMs(DAWN + self.now),
            trusted: true,
            floor: UnixMs(0),
        }
    }

    fn tell_keepers(&mut self, n: usize) {
        let majority = self.majority;
        self.event(n, Event::Keepers { total: 3, majority });
    }

    fn take_over(&mut self, n: usize) {
        let other = self.nodes[self.rng.usize(..NODES)].id;
        let records = self.kept.owned_by(other);
        self.event(n, Event::Orphaned(records));
    }

    fn crash(&mut self, n: usize) {
        self.stop(n);
        let pause = self.rng.u64(1..4_000);
        self.post(pause, Message::Restart(n));
    }

    fn stop(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if node.machine.take().is_none() {
            return;
        }
        node.life += 1;
        // Any number of the writes under way have reached the disk.
        let kept = self.rng.usize(..=node.writes.len());
        let written: Vec<_> = node.writes.drain(..).take(kept).collect();
        for (_, write) in written {
            self.write(n, write);
        }
    }

    fn restart(&mut self, n: usize) {
        self.stop(n);
        let time = match self.rng.bool() || !self.faulty {
            true => self.trusted(),
            false => doubt(),
        };
        let seed = self.rng.u64(..);
        let node = &mut self.nodes[n];
        node.born = self.now;
        node.machine = Some(Machine::recover(
            node.id,
            limits(),
            Instant(0),
            time,
            seed,
            node.disk.values().cloned(),
        ));
        self.tell_keepers(n);
        let records = self.kept.owned_by(self.nodes[n].id);
        self.event(n, Event::Orphaned(records));
        if !time.trusted && self.rng.bool() {
            let pause = self.rng.u64(1..3_000);
            let then = Reading {
                wall: UnixMs(DAWN + self.now + pause),
                ..self.trusted()
            };
            let life = self.nodes[n].life;
            self.post(pause, Message::Event(n, Some(life), Box::new(Event::Clock(then))));
        }
    }

    fn event(&mut self, n: usize, event: Event) {
        let node = &mut self.nodes[n];
        let Some(machine) = &mut node.machine else {
            return;
        };
        let actions = machine.handle(Instant(self.now - node.born), event);
        self.checks.limits(machine, (0..PROVIDERS).map(provider));
        for action in actions {
            self.perform(n, action);
        }
    }

    fn write(&mut self, n: usize, write: Write) {
        match write {
            Write::Put(record) => {
                self.checks.recorded(record.task, record.outcome());
                self.nodes[n].disk.insert(record.task, *record);
            }
            Write::Delete(task) => drop(self.nodes[n].disk.remove(&task)),
        }
    }

    /// A message that arrives.
    fn post(&mut self, delay: u64, message: Message) {
        self.sequence += 1;
        self.messages.insert((self.now + delay, self.sequence), message);
    }

    /// A message that may be lost, doubled and overtaken. If it is lost, the sender learns this instead.
    fn send(&mut self, message: Message, lost: Option<Message>) {
        let delay = self.rng.u64(1..50);
        if !self.faulty {
            return self.post(delay, message);
        }
        let (late, later) = (self.rng.u64(1..3_000), self.rng.u64(1..500));
        let fate = self.rng.u8(..20);
        if fate < 2 {
            self.post(late, message.clone());
        }
        match fate {
            // Lost, or so it seems to the sender.
            1..4 => {
                if let Some(lost) = lost {
                    self.post(later, lost);
                }
            }
            4 => self.post(late, message),
            _ => self.post(delay, message),
        }
    }

    fn unsaved(n: usize, life: u64, ticket: Ticket, error: SaveError) -> Message {
        Message::Event(n, Some(life), Box::new(Event::Unsaved { ticket, error }))
    }
}

/// A board that has booted in the past, with a floor of yesterday.
fn doubt() -> Reading {
    Reading {
        wall: UnixMs(0),
        trusted: false,
        floor: UnixMs(DAWN - 86_400_000),
    }
}
