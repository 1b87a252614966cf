//! Nodes with slots, components that they hold, links of a rate, jobs that come: everything that a placement policy decides
//! about, in virtual time. The policy is the one that ships; it sees what is expected, the world draws what happens.

use karman_sched::place::{Fleet, Job, Mode, Place, State};
use karman_sim::{Instant, Model, Schedule, Simulation, seconds};
use std::collections::{BTreeMap, VecDeque};

/// Everything that is to happen, the same for each policy.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// The nodes as they are at the start.
    pub(crate) fleet: Fleet,
    /// The jobs, by arrival.
    pub(crate) jobs: Vec<Job>,
    /// For each job and task how much longer it takes than expected, as a factor.
    pub(crate) factors: Vec<Vec<f64>>,
    /// Changes of a node's rate: when, which, to what.
    pub(crate) rates: Vec<(f64, usize, f64)>,
    /// After that nobody waits any more.
    pub(crate) end: f64,
}

/// Which jobs a policy is asked about when something has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    /// All.
    All,
    /// Those of the same home.
    Home,
    /// The job that it happened to.
    Own,
}

/// What became of a job.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Outcome {
    pub(crate) arrived: f64,
    /// Nothing where it had not ended at the end.
    pub(crate) finished: Option<f64>,
    pub(crate) deadline: Option<f64>,
}

impl Outcome {
    pub(crate) fn in_time(&self) -> bool {
        self.finished
            .is_some_and(|at| self.deadline.is_none_or(|deadline| at <= deadline))
    }
}

/// What a policy made of a trace.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct Result {
    /// By job.
    pub(crate) outcomes: Vec<Outcome>,
    /// Tasks that began warm, as one more instance, cold.
    pub(crate) modes: [u64; 3],
    /// Tasks that ran in another cluster than their job's home.
    pub(crate) away: u64,
    /// Seconds of slots that tasks held.
    pub(crate) busy: f64,
    /// How often the policy was asked.
    pub(crate) asked: u64,
}

/// Runs a trace under a policy.
pub(crate) fn run(trace: &Trace, policy: Box<dyn Place>, scope: Scope) -> Result {
    let world = World::new(trace, policy, scope);
    let period = world.policy.period();
    let mut simulation = Simulation::new(world);
    let schedule = simulation.schedule();
    for (place, job) in trace.jobs.iter().enumerate() {
        schedule.at(Instant::from_secs_f64(job.arrived), Event::Arrival(place));
    }
    for (place, (at, ..)) in trace.rates.iter().enumerate() {
        schedule.at(Instant::from_secs_f64(*at), Event::Rate(place));
    }
    if period.is_some() {
        schedule.at(Instant::START, Event::Wake);
    }
    simulation.run_until(Instant::from_secs_f64(trace.end));
    simulation.into_model().result
}

enum Event {
    Arrival(usize),
    Rate(usize),
    /// All input of a task is at its node.
    Arrived {
        job: usize,
        task: usize,
    },
    Ended {
        job: usize,
        task: usize,
    },
    Wake,
}

struct World<'a> {
    trace: &'a Trace,
    policy: Box<dyn Place>,
    scope: Scope,
    /// The nodes as they are: `free_at` is when a slot is expected to be free.
    fleet: Fleet,
    /// The nodes as the policy sees them: with what waits there.
    seen: Fleet,
    /// Slots with a task.
    taken: Vec<Vec<bool>>,
    /// Tasks that are on the way to a node or wait there.
    committed: Vec<Vec<(usize, usize)>>,
    /// Tasks that wait at a node with all their input.
    queues: Vec<VecDeque<(usize, usize)>>,
    /// Jobs that have not ended, and where each is.
    active: Vec<Job>,
    place_of: BTreeMap<u64, usize>,
    /// For each job and task the slot that it holds.
    slots: Vec<Vec<usize>>,
    result: Result,
}

impl<'a> World<'a> {
    fn new(trace: &'a Trace, policy: Box<dyn Place>, scope: Scope) -> Self {
        let outcome = |job: &Job| Outcome {
            arrived: job.arrived,
            finished: None,
            deadline: job.deadline,
        };
        Self {
            trace,
            policy,
            scope,
            fleet: trace.fleet.clone(),
            seen: trace.fleet.clone(),
            taken: trace
                .fleet
                .nodes
                .iter()
                .map(|node| vec![false; node.slots.len()])
                .collect(),
            committed: vec![Vec::new(); trace.fleet.nodes.len()],
            queues: vec![VecDeque::new(); trace.fleet.nodes.len()],
            active: Vec::new(),
            place_of: BTreeMap::new(),
            slots: trace.jobs.iter().map(|job| vec![0; job.tasks.len()]).collect(),
            result: Result {
                outcomes: trace.jobs.iter().map(outcome).collect(),
                ..Result::default()
            },
        }
    }

    fn job(&mut self, job: usize) -> &mut Job {
        let place = self.place_of[&(job as u64)];
        &mut self.active[place]
    }

    /// Asks the policy about what has changed for a job, or wakes it.
    fn ask(&mut self, cause: Option<usize>, schedule: &mut Schedule<Event>) {
        let now = schedule.now().as_secs_f64();
        self.look(now);
        let home = |job: &Job| self.fleet.nodes[job.origin].cluster;
        let open = |job: &&Job| job.tasks.iter().any(|task| task.state == State::Waiting);
        let decisions = match (self.scope, cause) {
            (_, None) => self.policy.wake(now, &self.active, &self.seen),
            (Scope::All, _) => self.policy.place(now, &self.active, &self.seen),
            (Scope::Own, Some(cause)) => match self.place_of.get(&(cause as u64)) {
                Some(&place) => self.policy.place(now, &self.active[place..=place], &self.seen),
                None => Vec::new(),
            },
            (Scope::Home, Some(cause)) => {
                let here = home(&self.trace.jobs[cause]);
                let jobs = self.active.iter().filter(|job| home(job) == here).filter(open);
                let jobs: Vec<Job> = jobs.cloned().collect();
                self.policy.place(now, &jobs, &self.seen)
            }
        };
        self.result.asked += 1;
        for decision in decisions {
            if let Some(chosen) = decision.chosen {
                let job = usize::try_from(decision.job).unwrap_or(usize::MAX);
                self.send(job, decision.task, chosen.node, chosen.finish, schedule);
            }
        }
    }

    /// What the policy sees: each node with what runs there, waits there and is on the way there.
    fn look(&mut self, now: f64) {
        for (node, there) in self.fleet.nodes.iter().enumerate() {
            let seen = &mut self.seen.nodes[node];
            seen.rate = there.rate;
            seen.resident.clone_from(&there.resident);
            seen.slots.clone_from(&there.slots);
            for (slot, taken) in seen.slots.iter_mut().zip(&self.taken[node]) {
                // What runs longer than expected will not end this very moment.
                slot.free_at = match taken {
                    true => slot.free_at.max(now + 0.1),
                    false => slot.free_at.min(now),
                };
            }
            for &(job, task) in &self.committed[node] {
                let of = &self.trace.jobs[job].tasks[task];
                let first = (0..seen.slots.len())
                    .min_by(|&a, &b| seen.slots[a].free_at.total_cmp(&seen.slots[b].free_at));
                if let Some(slot) = first {
                    let begin = seen.slots[slot].free_at.max(now);
                    let until = begin + of.work / there.speed;
                    seen.start(&self.fleet.components, of.component, slot, now, until);
                }
            }
        }
    }

    /// A task goes to a node, and what it takes in sets out for it.
    fn send(&mut self, job: usize, task: usize, node: usize, finish: f64, schedule: &mut Schedule<Event>) {
        let now = schedule.now().as_secs_f64();
        let of = self.job(job);
        if of.tasks[task].state != State::Waiting || !of.is_ready(task) {
            return;
        }
        of.tasks[task].state = State::Placed { node, finish };
        let of = &self.active[self.place_of[&(job as u64)]];
        let mut arrivals = of.tasks[task].inputs.iter().map(|input| {
            let from = input.from.map_or(Some(of.origin), |from| {
                of.tasks[from].state.output().map(|(node, _)| node)
            });
            self.fleet.arrival(from?, node, input.bytes, now)
        });
        let arrived = arrivals.try_fold(now, |latest, at| Some(f64::max(latest, at?)));
        self.committed[node].push((job, task));
        if let Some(at) = arrived {
            schedule.at(Instant::from_secs_f64(at), Event::Arrived { job, task });
        }
    }

    /// Starts what waits at a node on its free slots: on a warm instance if one is free.
    fn start(&mut self, node: usize, schedule: &mut Schedule<Event>) {
        let now = schedule.now().as_secs_f64();
        while let Some(&(job, task)) = self.queues[node].front() {
            let of = &self.trace.jobs[job].tasks[task];
            let there = &self.fleet.nodes[node];
            let free = (0..there.slots.len()).filter(|&slot| !self.taken[node][slot]);
            let warm = free
                .clone()
                .find(|&slot| there.slots[slot].warm == Some(of.component));
            // An instance that somebody else may want goes last.
            let slot = warm.or_else(|| free.min_by_key(|&slot| there.slots[slot].warm.is_some()));
            let Some(slot) = slot else { return };
            self.queues[node].pop_front();
            self.committed[node].retain(|waiting| *waiting != (job, task));
            let mode = match (warm.is_some(), there.holds(of.component)) {
                (true, _) => Mode::Warm,
                (false, true) => Mode::ScaleOut,
                (false, false) => Mode::Cold,
            };
            let startup = self.fleet.startup(of.component, node, mode);
            let expected = startup + of.work / there.speed;
            let takes = startup + of.work / there.speed * self.trace.factors[job][task];
            let finish = now + expected;
            let component = of.component;
            self.fleet.nodes[node].start(&self.trace.fleet.components, component, slot, now, finish);
            self.taken[node][slot] = true;
            self.slots[job][task] = slot;
            self.job(job).tasks[task].state = State::Running { node, finish };
            self.result.modes[mode as usize] += 1;
            self.result.busy += takes;
            let home = self.fleet.nodes[self.trace.jobs[job].origin].cluster;
            self.result.away += u64::from(self.fleet.nodes[node].cluster != home);
            schedule.after(seconds(takes), Event::Ended { job, task });
        }
    }

    fn ended(&mut self, job: usize, task: usize, schedule: &mut Schedule<Event>) {
        let now = schedule.now().as_secs_f64();
        let slot = self.slots[job][task];
        let of = self.job(job);
        let Some((node, _)) = of.tasks[task].state.output() else {
            return;
        };
        of.tasks[task].state = State::Done { node, at: now };
        let is_done = of
            .tasks
            .iter()
            .all(|task| matches!(task.state, State::Done { .. }));
        self.taken[node][slot] = false;
        self.fleet.nodes[node].slots[slot].free_at = now;
        if is_done {
            self.result.outcomes[job].finished = Some(now);
            self.forget(job);
        }
        self.start(node, schedule);
        self.ask(Some(job), schedule);
    }

    fn forget(&mut self, job: usize) {
        if let Some(place) = self.place_of.remove(&(job as u64)) {
            self.active.swap_remove(place);
            if let Some(moved) = self.active.get(place) {
                self.place_of.insert(moved.id, place);
            }
        }
    }
}

impl Model for World<'_> {
    type Event = Event;

    fn handle(&mut self, event: Event, schedule: &mut Schedule<Event>) {
        match event {
            Event::Arrival(job) => {
                self.place_of.insert(job as u64, self.active.len());
                self.active.push(self.trace.jobs[job].clone());
                self.ask(Some(job), schedule);
            }
            Event::Rate(change) => {
                let (_, node, rate) = self.trace.rates[change];
                self.fleet.nodes[node].rate = rate;
            }
            Event::Arrived { job, task } => {
                let output = self.job(job).tasks[task].state.output();
                if let Some((node, _)) = output {
                    self.queues[node].push_back((job, task));
                    self.start(node, schedule);
                }
            }
            Event::Ended { job, task } => self.ended(job, task, schedule),
            Event::Wake => {
                self.ask(None, schedule);
                if let Some(period) = self.policy.period() {
                    schedule.after(seconds(period), Event::Wake);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
