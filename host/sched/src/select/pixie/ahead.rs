//! What lies ahead of a batch: the calls that it still makes, and what they may take.

use super::super::Task;
use super::super::credit::Credit;
use super::super::estimate::Estimate;
use super::super::ledger::Ledger;
use super::super::plan::{Group, Mix, PlanError, RESOURCES, Resource, best_mix, nearest_mix, safest_mix};
use super::PixieSettings;
use karman_types::Slo;
use serde::{Deserialize, Serialize};

/// What is kept of a task.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct State {
    /// Of its calls, in milliseconds.
    pub(super) limit: Option<f64>,
    /// Of the next call: those of the plan, without whom that would overdraw a budget or who has no whole call left.
    pub(super) shares: Vec<f64>,
    /// Calls that the plan still gives each candidate; empty before there is a plan.
    pub(super) allotted: Vec<f64>,
    pub(super) estimates: Vec<Estimate>,
    pub(super) credit: Credit,
    /// Calls that run, by candidate.
    pub(super) running: Vec<u32>,
    /// Calls that were reported.
    pub(super) calls: u64,
    pub(super) unreachable: Vec<usize>,
    /// What its most sparing candidates take.
    pub(super) least: [f64; RESOURCES],
}

/// What lies ahead of a batch.
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    pub(super) groups: Vec<Group>,
    /// Budgets less what runs.
    left: [Option<f64>; RESOURCES],
    /// The same less the reserve.
    limits: [Option<f64>; RESOURCES],
    /// And less what is left for later.
    cautious: [Option<f64>; RESOURCES],
    /// What the most sparing candidates take.
    least: [f64; RESOURCES],
}

/// How the rest of a batch is shared out.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) mix: Mix,
    /// The budget that may not last.
    pub(super) short: Option<Resource>,
    /// The part of the reserves that it takes.
    pub(super) of_reserves: f64,
}

/// Requests for which the first guess of a task's visits stands.
const VISITS_WEIGHT: f64 = 50.0;

impl State {
    pub(super) fn new(task: &Task, slo: &Slo, settings: &PixieSettings) -> Self {
        let candidates = task.candidates.len();
        let estimate = |candidate| Estimate::new(task, slo, candidate, settings.false_alarms);
        Self {
            limit: task.latency_limit(slo),
            shares: vec![0.0; candidates],
            allotted: Vec::new(),
            estimates: (0..candidates).map(estimate).collect(),
            credit: Credit::new(candidates),
            running: vec![0; candidates],
            calls: 0,
            unreachable: Vec::new(),
            least: [0.0; RESOURCES],
        }
    }

    /// Whether it can be that of a task with so many candidates.
    pub(super) fn is_of(&self, candidates: usize) -> bool {
        let each = [self.shares.len(), self.estimates.len(), self.running.len()];
        each == [candidates; 3]
            && [0, candidates].contains(&self.allotted.len())
            && self.credit.is_of(candidates)
    }

    /// Shares out the next call by the plan among those to whom it still gives a whole one, among all where nobody has one left. Half a call
    /// by a dear candidate is one too many, and what that takes of a budget is missing for all that comes after it.
    pub(super) fn share_whole_calls(&mut self, plan: &[f64]) {
        let has_one = |candidate: usize| self.allotted.get(candidate).is_none_or(|calls| *calls >= 1.0);
        let nobody = !(0..plan.len()).any(has_one);
        for (candidate, (share, planned)) in self.shares.iter_mut().zip(plan).enumerate() {
            *share = if nobody || has_one(candidate) {
                *planned
            } else {
                0.0
            };
        }
    }

    /// How often a request calls the task: the first guess and what was seen.
    fn visits(&self, task: &Task, ledger: &Ledger) -> f64 {
        (task.visits * VISITS_WEIGHT + self.calls as f64) / (VISITS_WEIGHT + ledger.clock() as f64)
    }

    pub(super) fn reaches(&self, candidate: usize) -> bool {
        !self.unreachable.contains(&candidate)
    }

    pub(super) fn reachable(&self) -> impl Iterator<Item = (usize, &Estimate)> {
        let all = self.estimates.iter().enumerate();
        all.filter(|(candidate, _)| self.reaches(*candidate))
    }

    /// Shares of the reachable candidates as shares of all.
    pub(super) fn with_unreachable(&self, shares: Vec<f64>) -> Vec<f64> {
        let mut shares = shares.into_iter();
        let of = |candidate| {
            if self.reaches(candidate) {
                shares.next().unwrap_or(0.0)
            } else {
                0.0
            }
        };
        (0..self.estimates.len()).map(of).collect()
    }

    /// The variance of what so many calls take of a resource, where a request calls the task so often: by the most sparing candidates, and what
    /// these shares add to that.
    fn variance(&self, resource: Resource, (calls, visits): (f64, f64), shares: &[f64]) -> (f64, f64) {
        let least = self.least[resource as usize];
        let takes = |estimate: &Estimate| estimate.expected().takes[resource as usize];
        let by_candidate = || self.estimates.iter().map(takes).zip(shares);
        match resource {
            // A late call is one or none.
            Resource::Late => {
                let of_shares: f64 = by_candidate()
                    .map(|(late, share)| share * late * (1.0 - late))
                    .sum();
                (calls * least * (1.0 - least), calls * of_shares)
            }
            // Money goes by how often the task is called at all.
            Resource::Cost | Resource::Energy => {
                let by_chance = calls * (1.0 - visits).max(0.0);
                let planned: f64 = by_candidate().map(|(takes, share)| takes * share).sum();
                (by_chance * least.powi(2), by_chance * (planned - least).powi(2))
            }
        }
    }

    /// What a call takes at least of each resource.
    fn sparing(&self) -> [f64; RESOURCES] {
        let mut least = [f64::INFINITY; RESOURCES];
        for (_, estimate) in self.reachable() {
            for (least, takes) in least.iter_mut().zip(estimate.expected().takes) {
                *least = least.min(takes);
            }
        }
        least
    }

    /// The most accurate of the others.
    pub(super) fn next_best(&self, chosen: usize) -> Option<usize> {
        let others = self.reachable().filter(|(candidate, _)| *candidate != chosen);
        others
            .max_by(|(_, one), (_, other)| one.expected().value.total_cmp(&other.expected().value))
            .map(|(candidate, _)| candidate)
    }
}

impl Ahead {
    /// From what is left in the ledger, and what is known of the candidates in reach. `shares` are those of the plan so far.
    pub(super) fn of(
        tasks: &[Task],
        states: &mut [State],
        shares: &[Vec<f64>],
        ledger: &Ledger,
        settings: &PixieSettings,
    ) -> Self {
        let mut ahead = Self {
            groups: Vec::with_capacity(tasks.len()),
            left: ledger.left(),
            limits: [None; RESOURCES],
            cautious: [None; RESOURCES],
            least: [0.0; RESOURCES],
        };
        let (mut variance, mut of_plan) = ([0.0; RESOURCES], [0.0; RESOURCES]);
        for ((task, state), shares) in tasks.iter().zip(states).zip(shares) {
            let visits = state.visits(task, ledger);
            let running: u32 = state.running.iter().sum();
            let calls = (visits * ledger.remaining() as f64 - f64::from(running)).max(visits.min(1.0));
            let candidates = state
                .reachable()
                .map(|(_, estimate)| estimate.expected())
                .collect();
            state.least = state.sparing();
            for resource in Resource::ALL {
                let index = resource as usize;
                ahead.least[index] += calls * state.least[index];
                let (of_least, of_shares) = state.variance(resource, (calls, visits), shares);
                variance[index] += of_least;
                of_plan[index] += of_shares;
            }
            variance[Resource::Late as usize] += ahead.count_running(state);
            ahead.groups.push(Group { calls, candidates });
        }
        ahead.limits = ahead.left;
        for (limit, variance) in ahead.limits.iter_mut().zip(variance) {
            *limit = limit.map(|limit| limit - settings.reserve * variance.sqrt());
        }
        ahead.cautious = ahead.limits;
        for (cautious, of_plan) in ahead.cautious.iter_mut().zip(of_plan) {
            *cautious = cautious.map(|limit| limit - settings.caution * of_plan.sqrt());
        }
        ahead
    }

    /// Takes what runs off the limits; returns the variance of how much of it is late.
    fn count_running(&mut self, state: &State) -> f64 {
        let mut variance = 0.0;
        for (estimate, running) in state
            .estimates
            .iter()
            .zip(&state.running)
            .filter(|(_, running)| **running > 0)
        {
            let (takes, running) = (estimate.expected().takes, f64::from(*running));
            for (left, takes) in self.left.iter_mut().zip(takes) {
                *left = left.map(|left| left - running * takes);
            }
            let late = takes[Resource::Late as usize];
            variance += running * late * (1.0 - late);
        }
        variance
    }

    /// Calls to come.
    pub(super) fn calls(&self) -> f64 {
        self.groups.iter().map(|group| group.calls).sum()
    }

    /// The most accurate mix that leaves the reserves. Where there is none, or it gives fewer right answers than are needed, one that takes
    /// the same part of each reserve, if there is such a one.
    pub(super) fn plan(&self, right: f64) -> Result<Planned, PlanError> {
        let planned = |mix, short| Planned {
            of_reserves: self.part_of(&mix),
            mix,
            short,
        };
        let within = |limits| best_mix(&self.groups, limits);
        let with = |right| safest_mix(&self.groups, &self.cautious, &self.reserves(), right);
        // Nobody asks for more than is right already, or for any.
        let enough = if right > 0.0 {
            right + self.broken_call()
        } else {
            right
        };
        let safest = || with(enough).or_else(|_| with(right));
        match within(&self.cautious).or_else(|_| within(&self.limits)) {
            Ok(mix) if mix.value < enough => Ok(planned(safest().unwrap_or(mix), None)),
            Ok(mix) => Ok(planned(mix, None)),
            Err(PlanError::Infeasible) => safest()
                .or_else(|_| with(0.0))
                .or_else(|_| nearest_mix(&self.groups, &self.limits))
                .map(|mix| planned(mix, Some(self.shortest()))),
            Err(other) => Err(other),
        }
    }

    /// How many right answers a plan may promise that its whole calls do not give: those that one call by the best gives beyond one by the
    /// worst.
    fn broken_call(&self) -> f64 {
        let of_group = |group: &Group| {
            let values = group.candidates.iter().map(|candidate| candidate.value);
            let (least, most) = values.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), value| {
                (least.min(value), most.max(value))
            });
            (most - least).max(0.0)
        };
        self.groups.iter().map(of_group).fold(0.0, f64::max)
    }

    /// What is to spare of each budget when the most sparing candidates serve and a plan may take this part of the reserves.
    pub(super) fn spare(&self, of_reserves: f64) -> [Option<f64>; RESOURCES] {
        let reserves = self.reserves();
        Resource::ALL.map(|resource| {
            let index = resource as usize;
            let with = self.cautious[index]? + of_reserves * reserves[index];
            Some(self.limits[index]?.max(with) - self.least[index])
        })
    }

    /// The part of the reserves that a mix takes.
    fn part_of(&self, mix: &Mix) -> f64 {
        let parts = Resource::ALL.map(|resource| {
            let index = resource as usize;
            let over = mix.takes[index] - self.cautious[index].unwrap_or(f64::INFINITY);
            if over > 0.0 {
                over / self.reserves()[index]
            } else {
                0.0
            }
        });
        parts
            .into_iter()
            .filter(|part| part.is_finite())
            .fold(0.0, f64::max)
    }

    /// What is held back of each budget.
    fn reserves(&self) -> [f64; RESOURCES] {
        Resource::ALL.map(|resource| {
            let of = |budgets: [Option<f64>; RESOURCES]| budgets[resource as usize].unwrap_or_default();
            of(self.left) - of(self.cautious)
        })
    }

    /// The resource of which the greatest part is missing.
    pub(super) fn shortest(&self) -> Resource {
        let missing = |resource: &Resource| {
            let index = *resource as usize;
            let least = self.least[index];
            self.limits[index].map_or(f64::NEG_INFINITY, |limit| {
                (least - limit) / least.max(f64::MIN_POSITIVE)
            })
        };
        let shortest = Resource::ALL
            .into_iter()
            .max_by(|one, other| missing(one).total_cmp(&missing(other)));
        shortest.unwrap_or(Resource::Cost)
    }
}
