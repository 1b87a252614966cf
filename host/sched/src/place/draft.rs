use super::{Candidate, Fleet, Job, Mode, Node};
use std::collections::BTreeMap;

/// A plan in the making: the fleet as it would be after the placements so far.
#[derive(Clone, Debug)]
pub(super) struct Draft<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) jobs: &'a [Job],
    pub(super) now: f64,
    /// Nodes that differ from those of the fleet.
    changed: BTreeMap<usize, Node>,
    /// Where tasks go, by job and task, and when they are done.
    outputs: BTreeMap<(usize, usize), (usize, f64)>,
}

/// What is expected of a task at a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) mode: Mode,
    pub(super) slot: usize,
    /// When the slot is free.
    pub(super) free_at: f64,
    /// When all its input is there, too.
    pub(super) begin: f64,
    /// When all that it takes in is there, if that sets out now.
    pub(super) data_at: f64,
    pub(super) finish: f64,
}

impl Estimate {
    pub(super) const fn at(self, node: usize, score: f64) -> Candidate {
        Candidate {
            node,
            mode: self.mode,
            begin: self.begin,
            finish: self.finish,
            score,
        }
    }
}

/// A node and what is expected there, with what ranks it: less is better.
pub(super) type Way<R> = (R, usize, Estimate);

/// The best of these, the first of those that are alike, and the runner-up.
pub(super) fn two_best<R: PartialOrd>(ways: impl Iterator<Item = Way<R>>) -> [Option<Way<R>>; 2] {
    let (mut best, mut second) = (None, None);
    for way in ways {
        let beats = |other: &Option<Way<R>>| other.as_ref().is_none_or(|other| way.0 < other.0);
        if beats(&best) {
            second = best.replace(way);
        } else if beats(&second) {
            second = Some(way);
        }
    }
    [best, second]
}

impl<'a> Draft<'a> {
    pub(super) const fn new(fleet: &'a Fleet, jobs: &'a [Job], now: f64) -> Self {
        Self {
            fleet,
            jobs,
            now,
            changed: BTreeMap::new(),
            outputs: BTreeMap::new(),
        }
    }

    pub(super) fn node(&self, node: usize) -> &Node {
        // Nothing is changed while the first task is looked at, which is most of the time.
        match self.changed.is_empty() {
            true => &self.fleet.nodes[node],
            false => self.changed.get(&node).unwrap_or(&self.fleet.nodes[node]),
        }
    }

    /// Whether a node has a slot that nothing holds now.
    pub(super) fn is_free(&self, node: usize) -> bool {
        self.node(node).slots.iter().any(|slot| slot.free_at <= self.now)
    }

    /// The node where the output of a task is, and when.
    pub(super) fn output(&self, job: usize, task: usize) -> Option<(usize, f64)> {
        let planned = self.outputs.get(&(job, task)).copied();
        planned.or_else(|| self.jobs[job].tasks[task].state.output())
    }

    /// When all that a task takes in is at a node, not before now. Inputs that nobody knows of yet are left out.
    pub(super) fn data_at(&self, job: usize, task: usize, node: usize) -> Option<f64> {
        let of = &self.jobs[job];
        let mut at = self.now;
        for input in &of.tasks[task].inputs {
            let lies = match input.from {
                None => Some((of.origin, of.arrived)),
                Some(from) => self.output(job, from),
            };
            if let Some((from, since)) = lies {
                // Nobody sends it before somebody says so.
                at = at.max(self.fleet.arrival(from, node, input.bytes, since.max(self.now))?);
            }
        }
        Some(at)
    }

    /// What is expected of a task at a node in the way that is done first; nothing where it cannot run.
    pub(super) fn estimate(&self, job: usize, task: usize, node: usize) -> Option<Estimate> {
        self.estimate_if(job, task, node, |_| true)
    }

    /// The same among some ways.
    pub(super) fn estimate_if(
        &self,
        job: usize,
        task: usize,
        node: usize,
        allowed: impl Fn(Mode) -> bool,
    ) -> Option<Estimate> {
        let data_at = self.data_at(job, task, node)?;
        let of = &self.jobs[job].tasks[task];
        let there = self.node(node);
        let too_large = self.fleet.components[of.component].bytes > there.memory;
        let mut best: Option<Estimate> = None;
        for (mode, slot) in there.ways(of.component).into_iter().flatten() {
            if !allowed(mode) || (mode == Mode::Cold && too_large) {
                continue;
            }
            let free_at = there.slots[slot].free_at;
            let begin = data_at.max(free_at);
            let finish = begin + self.fleet.startup(of.component, node, mode) + of.work / there.speed;
            if best.is_none_or(|best| finish < best.finish) {
                best = Some(Estimate {
                    mode,
                    slot,
                    free_at,
                    begin,
                    data_at,
                    finish,
                });
            }
        }
        best
    }

    /// Takes the placement into the plan. Returns the components that would give way.
    pub(super) fn book(&mut self, job: usize, task: usize, node: usize, estimate: &Estimate) -> Vec<usize> {
        let component = self.jobs[job].tasks[task].component;
        self.outputs.insert((job, task), (node, estimate.finish));
        let there = self
            .changed
            .entry(node)
            .or_insert_with(|| self.fleet.nodes[node].clone());
        let components = &self.fleet.components;
        there.start(
            components,
            component,
            estimate.slot,
            estimate.begin,
            estimate.finish,
        )
    }

    /// The mean speed and rate of the nodes.
    pub(super) fn means(&self) -> (f64, f64) {
        let nodes = &self.fleet.nodes;
        let mean = |of: fn(&Node) -> f64| nodes.iter().map(of).sum::<f64>() / nodes.len() as f64;
        (mean(|node| node.speed), mean(|node| node.rate))
    }

    /// Every task whose inputs are done and that has no node yet: job and task.
    pub(super) fn ready(&self) -> Vec<(usize, usize)> {
        let mut ready = Vec::new();
        for (job, of) in self.jobs.iter().enumerate() {
            let waiting = |task: &usize| of.tasks[*task].state == super::State::Waiting && of.is_ready(*task);
            ready.extend((0..of.tasks.len()).filter(waiting).map(|task| (job, task)));
        }
        ready
    }
}
