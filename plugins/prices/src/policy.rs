//! Prices, and who serves at them.

use crate::budget::{BUDGETS, Budgets, Each};
use crate::candidate::Candidate;
use crate::exports::karman::policy::selector as wit;

/// What a request that takes twice its share adds to a price, in accuracy.
const STEP: f64 = 0.004;
/// Requests of the rehearsal by which prices are found before the first call.
const REHEARSAL: u32 = 3_000;
/// So much larger is a step of the rehearsal at its start.
const FIRST_STEPS: f64 = 20.0;
/// Standard deviations of what chance may do that are planned for, and that are held back for the most sparing.
const CAUTION: f64 = 1.0;
const RESERVE: f64 = 3.0;

/// A task: how often a request calls it, and who may serve it.
struct Task {
    visits: f64,
    candidates: Vec<Candidate>,
}

/// The policy.
pub(crate) struct Policy {
    tasks: Vec<Task>,
    budgets: Budgets,
    /// Of each budget, in accuracy for one request's share of it.
    prices: Each,
}

impl Policy {
    pub(crate) fn new(tasks: &[wit::Task], slo: &wit::Slo) -> Self {
        let mut policy = Self {
            tasks: tasks.iter().map(|task| Task::new(task, slo)).collect(),
            budgets: Budgets::new(slo),
            prices: [0.0; BUDGETS],
        };
        policy.rehearse();
        policy
    }

    pub(crate) fn choose(&mut self, ask: &wit::Ask) -> Result<wit::Choice, String> {
        self.bound_under_way(ask.queue);
        let task = ask.task as usize;
        let candidates = self.tasks.get(task).map_or(0, |task| task.candidates.len());
        let reachable: Vec<usize> = (0..candidates)
            .filter(|n| !ask.unreachable.contains(&(*n as u32)))
            .collect();
        let affordable: Vec<usize> = reachable
            .iter()
            .copied()
            .filter(|n| self.overdrawn(task, *n, &reachable).is_none())
            .collect();
        let (chosen, runner_up, because) = match affordable.is_empty() {
            false => self.dearest(task, &affordable, &reachable),
            true => self.most_sparing(task, &reachable),
        }
        .ok_or("nobody can be reached")?;
        let takes = self.tasks[task].candidates[chosen].takes();
        self.settle(takes, STEP);
        for (under_way, takes) in self.budgets.under_way.iter_mut().zip(takes) {
            *under_way += takes;
        }
        Ok(wit::Choice {
            chosen: chosen as u32,
            runner_up: runner_up.map(|n| n as u32),
            because,
        })
    }

    pub(crate) fn report(&mut self, served: &wit::Served) -> Result<(), String> {
        for call in &served.calls {
            let task = self.tasks.get_mut(call.task as usize);
            let candidate = task.and_then(|task| task.candidates.get_mut(call.candidate as usize));
            let candidate = candidate.ok_or("a call of a candidate that there is not")?;
            for (under_way, takes) in self.budgets.under_way.iter_mut().zip(candidate.takes()) {
                *under_way = (*under_way - takes).max(0.0);
            }
            candidate.see(call);
        }
        self.budgets.enter(served);
        Ok(())
    }

    /// Not every choice is followed by a call: a request may be given up before. No more can be under way than those that wait may
    /// take.
    fn bound_under_way(&mut self, queue: u32) {
        for budget in 0..BUDGETS {
            let most = |task: &Task| {
                let takes = task.candidates.iter().map(|candidate| candidate.takes()[budget]);
                task.visits.max(1.0) * takes.fold(0.0, f64::max)
            };
            let most = f64::from(queue) * self.tasks.iter().map(most).sum::<f64>();
            self.budgets.under_way[budget] = self.budgets.under_way[budget].min(most);
        }
    }

    /// Accuracy less the price of what a call takes.
    fn worth(&self, task: usize, candidate: usize) -> f64 {
        let candidate = &self.tasks[task].candidates[candidate];
        let takes = candidate.takes().into_iter().enumerate();
        candidate.accuracy
            - takes
                .map(|(n, takes)| self.prices[n] * takes / self.budgets.scale(n))
                .sum::<f64>()
    }

    /// Who is worth most of those that the budgets bear.
    fn dearest(
        &self,
        task: usize,
        affordable: &[usize],
        reachable: &[usize],
    ) -> Option<(usize, Option<usize>, String)> {
        let chosen = best(affordable.iter().map(|n| (*n, self.worth(task, *n))))?;
        let others = reachable.iter().filter(|n| **n != chosen);
        let runner_up = best(others.map(|n| (*n, self.worth(task, *n))));
        let candidate = &self.tasks[task].candidates[chosen];
        let because = match candidate.accuracy - self.worth(task, chosen) {
            price if price < 5e-5 => format!(
                "its accuracy is {:.3} and no budget is scarce",
                candidate.accuracy
            ),
            price => format!(
                "its accuracy of {:.3} is the most after the price of what it takes, {price:.4}",
                candidate.accuracy
            ),
        };
        Some((chosen, runner_up, because))
    }

    /// Who strains the budgets least, where none has room.
    fn most_sparing(&self, task: usize, reachable: &[usize]) -> Option<(usize, Option<usize>, String)> {
        let strain = |n: &usize| {
            let takes = self.tasks[task].candidates[*n].takes().into_iter().enumerate();
            let of = takes.filter_map(|(budget, takes)| {
                let left = self.budgets.left(budget)?;
                Some(takes / left.max(self.budgets.scale(budget) * 1e-3))
            });
            of.fold(0.0, f64::max)
        };
        let chosen = best(reachable.iter().map(|n| (*n, -strain(n))))?;
        let others = reachable.iter().filter(|n| **n != chosen);
        let runner_up = best(others.map(|n| (*n, -strain(n))));
        Some((
            chosen,
            runner_up,
            "a budget is down to its reserve and it spares it".into(),
        ))
    }

    /// The budget that would not last, even if the most sparing served from then on.
    fn overdrawn(&self, task: usize, candidate: usize, reachable: &[usize]) -> Option<usize> {
        let takes = self.tasks[task].candidates[candidate].takes();
        (0..BUDGETS).find(|budget| {
            let Some(left) = self.budgets.left(*budget) else {
                return false;
            };
            let least = reachable
                .iter()
                .map(|n| self.tasks[task].candidates[*n].takes()[*budget])
                .fold(f64::INFINITY, f64::min);
            // Who takes the least is never too dear.
            let spare = left - self.needed(*budget);
            takes[*budget] > least && takes[*budget] - least > spare.max(0.0)
        })
    }

    /// What the rest of the batch takes of a budget at least, with a reserve for chance.
    fn needed(&self, budget: usize) -> f64 {
        let (mut mean, mut variance) = (0.0, 0.0);
        for task in &self.tasks {
            let takes = task.candidates.iter().map(|candidate| candidate.takes()[budget]);
            let least = takes.fold(f64::INFINITY, f64::min);
            let calls = self.budgets.remaining() * task.visits;
            mean += calls * least;
            variance += match budget {
                // A call is late or is not.
                1 => calls * least * (1.0 - least),
                _ => calls * task.visits.min(1.0) * (1.0 - task.visits.min(1.0)) * least * least,
            };
        }
        mean + RESERVE * variance.sqrt()
    }

    /// Moves each price by what a call has taken over what is left for one.
    fn settle(&mut self, takes: Each, step: f64) {
        let calls: f64 = self.tasks.iter().map(|task| task.visits).sum();
        for (n, takes) in takes.into_iter().enumerate() {
            let Some(left) = self.budgets.left(n) else {
                continue;
            };
            let remaining = self.budgets.remaining();
            let caution = match n {
                1 => CAUTION * left.max(0.0).sqrt(),
                _ => 0.0,
            };
            let rate = (left - caution).max(0.0) / remaining / calls;
            let over = (takes - rate) / self.budgets.scale(n);
            // One that is very dear is not to drive the price up for all who come after.
            self.prices[n] = (self.prices[n] + step * over.clamp(-10.0, 10.0)).max(0.0);
        }
    }

    /// Finds prices at which the profiles alone would keep the budgets.
    fn rehearse(&mut self) {
        let mut mean = [0.0; BUDGETS];
        for round in 0..REHEARSAL {
            let step = STEP * FIRST_STEPS.powf(1.0 - f64::from(round) / f64::from(REHEARSAL));
            for task in 0..self.tasks.len() {
                let all = (0..self.tasks[task].candidates.len()).map(|n| (n, self.worth(task, n)));
                if let Some(chosen) = best(all) {
                    let takes = self.tasks[task].candidates[chosen].takes();
                    self.settle(takes, step * self.tasks[task].visits);
                }
            }
            if round >= REHEARSAL / 2 {
                for (mean, price) in mean.iter_mut().zip(self.prices) {
                    *mean += price / f64::from(REHEARSAL - REHEARSAL / 2);
                }
            }
        }
        self.prices = mean;
    }

    pub(crate) fn save(&self) -> Vec<u8> {
        let mut numbers = vec![self.budgets.answered as f64];
        numbers.extend(self.budgets.spent);
        numbers.extend(self.budgets.under_way);
        numbers.extend(self.prices);
        for candidate in self.tasks.iter().flat_map(|task| &task.candidates) {
            numbers.extend(candidate.sum);
            numbers.extend(candidate.count);
        }
        crate::state::write(&numbers)
    }

    pub(crate) fn resume(&mut self, state: &[u8]) -> Result<(), String> {
        let mut numbers = crate::state::Numbers::read(state)?;
        let [answered] = numbers.next()?;
        self.budgets.answered = answered as u64;
        self.budgets.spent = numbers.next()?;
        self.budgets.under_way = numbers.next()?;
        self.prices = numbers.next()?;
        for candidate in self.tasks.iter_mut().flat_map(|task| &mut task.candidates) {
            candidate.sum = numbers.next()?;
            candidate.count = numbers.next()?;
        }
        numbers.end()
    }
}

impl Task {
    fn new(task: &wit::Task, slo: &wit::Slo) -> Self {
        let known = || {
            task.candidates
                .iter()
                .filter_map(|candidate| candidate.profile.accuracy)
        };
        // What nobody has measured counts as the least that was.
        let unknown = known().min_by(f64::total_cmp).unwrap_or_default();
        let limit = slo.latency_p95.map(|limit| limit as f64 * task.within);
        let candidate =
            |of: &wit::Candidate| Candidate::new(&of.profile, of.profile.accuracy.unwrap_or(unknown), limit);
        Self {
            visits: task.visits,
            candidates: task.candidates.iter().map(candidate).collect(),
        }
    }
}

/// The one with the most, the first of equals.
fn best(of: impl Iterator<Item = (usize, f64)>) -> Option<usize> {
    let more = |most: (usize, f64), next: (usize, f64)| if next.1 > most.1 { next } else { most };
    of.reduce(more).map(|(n, _)| n)
}

#[cfg(test)]
pub(crate) mod tests;
