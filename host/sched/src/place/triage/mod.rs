//! As many jobs in time as can be: which of them are worth it (`aside`), and which node each task needs at least (`choice`).

mod aside;
mod best;
mod choice;

use super::draft::Draft;
use super::{Decision, Fleet, Job, Node, Place, Reason, State};
use aside::set_aside;
use best::Best;
use choice::{Nodes, left_over};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Places tasks so that as many jobs as possible make their deadlines.
///
/// Three things cost deadlines where nodes are scarce, and each has its answer here. A job that will be late all the same takes room from
/// others: once a period, the jobs whose work does not fit are set aside, those with the most work first (Moore 1968), and get what is left.
/// A job with time to spare takes a fast node from one that has none: a task goes to the node that is cheapest for it, and a second for which
/// it holds a slot, also while its input is on the way, is the dearer the faster the node is and the more of the fleet is busy. And who waits
/// at a busy node cannot be overtaken: a task goes to a node only when that is free by the time its input is there, and until then waits, the
/// earliest deadline first.
#[derive(Clone, Debug, Default)]
pub struct Triage {
    settings: TriageSettings,
    aside: BTreeSet<u64>,
}

/// The constants of [`Triage`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct TriageSettings {
    /// Seconds after which jobs are set aside anew, and tasks that wait looked at again. Default 1.
    pub period: f64,
    /// The share of the speed of all nodes that is counted on for tasks that wait, until their jobs must have begun: the rest is held by
    /// what runs. Default 0.2.
    pub capacity: f64,
    /// Nodes below this share of the fastest node's speed do not count for it. Default 0.5.
    pub slowest: f64,
    /// Tasks of jobs that are set aside begin where more than this share of these nodes is free. Default 0.1.
    pub reserve: f64,
    /// How much of a job's time to spare the tasks after one may take, as a share. Default 0.5.
    pub spread: f64,
    /// How much longer than expected a task and those after it may take, as a share: half of it where nothing else is left. Default 0.3.
    pub care: f64,
    /// How much dearer fast nodes are in a busy fleet: the power of their speed. Default 2.
    pub price: f64,
    /// How much dearer a node of another cluster than the job's is: links between clusters are narrow, and others use them. Default 3.
    pub away: f64,
}

impl Default for TriageSettings {
    fn default() -> Self {
        Self {
            period: 1.0,
            capacity: 0.2,
            slowest: 0.5,
            reserve: 0.1,
            spread: 0.5,
            care: 0.3,
            price: 2.0,
            away: 3.0,
        }
    }
}

impl TriageSettings {
    /// Whether a node counts for what the fleet can do.
    fn counts(&self, node: &Node, fastest: f64) -> bool {
        node.speed >= self.slowest * fastest
    }
}

/// What is hoped of a job: that it is in time, that it is where there is room, nothing.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Hope {
    Kept,
    Aside,
    Lost,
}

impl Triage {
    /// With these constants.
    pub const fn new(settings: TriageSettings) -> Self {
        Self {
            settings,
            aside: BTreeSet::new(),
        }
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Vec<Decision> {
        let nodes = Nodes::of(draft, &self.settings);
        let mut decisions = Vec::new();
        for (hope, job, best) in self.order(draft, nodes.fastest()) {
            let of = &draft.jobs[job];
            let ready = |task: &usize| of.tasks[*task].state == State::Waiting && of.is_ready(*task);
            for task in (0..of.tasks.len()).filter(ready) {
                let found = match hope {
                    Hope::Aside if !nodes.has_room(draft) => None,
                    Hope::Kept | Hope::Aside => nodes.in_time(draft, job, task, &best),
                    Hope::Lost => left_over(draft, job, task),
                };
                let (chosen, runner_up) = found.unzip();
                let reason = match (hope, chosen) {
                    (Hope::Lost, _) => Reason::Lost,
                    (_, Some(chosen)) => Reason::InTime {
                        slack: best.slack(of, task, chosen.finish),
                    },
                    (Hope::Aside, None) => Reason::SetAside,
                    (Hope::Kept, None) => Reason::NoneInTime,
                };
                decisions.push(Decision {
                    job: of.id,
                    task,
                    chosen,
                    runner_up: runner_up.flatten(),
                    reason,
                });
            }
        }
        decisions
    }

    /// Jobs with a task that waits, in the order in which nodes are chosen for them.
    fn order(&self, draft: &Draft<'_>, fastest: f64) -> Vec<(Hope, usize, Best)> {
        let waits = |job: &Job| job.tasks.iter().any(|task| task.state == State::Waiting);
        let jobs = draft.jobs.iter().enumerate().filter(|(_, job)| waits(job));
        let with_hope = jobs.map(|(place, job)| {
            let best = Best::of(draft, place, fastest);
            let hope = match self.aside.contains(&job.id) {
                _ if best.is_late(job) => Hope::Lost,
                true => Hope::Aside,
                false => Hope::Kept,
            };
            (hope, place, best)
        });
        let mut order: Vec<_> = with_hope.collect();
        let deadline = |job: usize| draft.jobs[job].deadline.unwrap_or(f64::INFINITY);
        order.sort_by(|(a_hope, a, _), (b_hope, b, _)| {
            let deadlines = deadline(*a).total_cmp(&deadline(*b));
            let ids = draft.jobs[*a].id.cmp(&draft.jobs[*b].id);
            a_hope.cmp(b_hope).then(deadlines).then(ids)
        });
        order
    }
}

impl Place for Triage {
    fn name(&self) -> &str {
        "triage"
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        self.decide(&mut Draft::new(fleet, jobs, now))
    }

    fn wake(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        let mut draft = Draft::new(fleet, jobs, now);
        self.aside = set_aside(&draft, &self.settings);
        self.decide(&mut draft)
    }

    fn period(&self) -> Option<f64> {
        Some(self.settings.period)
    }
}

#[cfg(test)]
mod tests;
