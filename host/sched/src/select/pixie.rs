mod ahead;
#[cfg(test)]
mod tests;

use super::credit::Turn;
use super::estimate::Estimate;
use super::ledger::Ledger;
use super::plan::{RESOURCES, Resource};
use super::task::check;
use super::{
    Ask, Call, Decision, NoChoice, Reason, ReportError, SelectError, Selector, Served, Task, best_two,
    task_of,
};
use ahead::{Ahead, Planned, State};
use karman_types::Slo;
use serde::{Deserialize, Serialize};

/// Keeps a workflow's limits at the most accuracy: plans for the rest of the batch which share of each task's calls which candidate
/// serves, within what is left of money, energy and lateness; follows the plan; and plans anew as it sees what is really taken.
///
/// The promise comes from the feedback, the accuracy from the plan. A reserve is held back for what chance can do while only the
/// most sparing candidates serve: if a budget comes down to that, they do. Near the end the reserve is small, and what was saved is
/// spent. Where budgets are too tight for all reserves, or these would leave too few right answers for the least accuracy that is asked for, the
/// plan takes the same part of each. How often a task is called is chance as well, and what the plan would pay for it is at stake, not only the
/// least. A candidate serves whole calls: of whom less than one is planned for all the rest of the batch does not serve.
///
/// It stands on Pixie (PLAIground, arXiv 2606.14356), with whose steps along candidates sorted by accuracy it parts: between two
/// limits the best mix is often not of neighbours, and thresholds on slack leave a part of every budget unused.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Pixie {
    tasks: Vec<Task>,
    slo: Slo,
    settings: PixieSettings,
    ledger: Ledger,
    states: Vec<State>,
    plan: Plan,
    /// What is left of each budget when the most sparing candidates serve all that is to come; below zero it does not last.
    spare: [Option<f64>; RESOURCES],
}

/// What may be set. The defaults were found on workloads apart from those of the studies.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PixieSettings {
    /// Calls of a task for which a candidate serves at least, unless a budget runs short; and requests between plans. In a batch of
    /// less than 20 times as many, a twentieth of the batch. Default 10.
    pub cool_down: u32,
    /// How many standard deviations of what the most sparing candidates take are held back from every budget to the end. Default 3.
    pub reserve: f64,
    /// How many standard deviations of what the plan itself takes are planned for later: a budget that is gone too early costs more
    /// accuracy than one that is spent too late. Default 1.
    pub caution: f64,
    /// The probability that 60 calls raise an alarm although the profile holds. Default 0.000001.
    pub false_alarms: f64,
    /// Requests after which a profile that an alarm disproved is given another chance, and half of what was seen of a candidate is forgotten
    /// that none of them has called. Default 300.
    pub forgive_after: u64,
}

impl Default for PixieSettings {
    fn default() -> Self {
        Self {
            cool_down: 10,
            reserve: 3.0,
            caution: 1.0,
            false_alarms: 1e-6,
            forgive_after: 300,
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Plan {
    shares: Vec<Vec<f64>>,
    short: Option<Resource>,
    /// The part of the reserves that it takes.
    of_reserves: f64,
    failed: bool,
    /// Requests since it was made.
    age: u32,
}

impl Pixie {
    /// For a workflow of these tasks within these limits.
    ///
    /// # Errors
    /// Names what is wrong with a task, a profile, a limit or a setting.
    pub fn new(tasks: Vec<Task>, slo: Slo, settings: PixieSettings) -> Result<Self, SelectError> {
        check(&tasks, &slo)?;
        settings.check()?;
        let state = |task: &Task| State::new(task, &slo, &settings);
        let mut pixie = Self {
            ledger: Ledger::new(&slo),
            states: tasks.iter().map(state).collect(),
            plan: Plan {
                shares: tasks.iter().map(most_accurate).collect(),
                short: None,
                of_reserves: 0.0,
                failed: false,
                age: 0,
            },
            tasks,
            slo,
            settings,
            spare: [None; RESOURCES],
        };
        let ahead = pixie.look_ahead();
        pixie.replan(&ahead);
        Ok(pixie)
    }

    /// Whether it can be one that was made: what is read may be anything.
    pub(crate) fn is_whole(&self) -> bool {
        let shares = &self.plan.shares;
        let fits = |((task, state), shares): ((&Task, &State), &Vec<f64>)| {
            let candidates = task.candidates.len();
            state.is_of(candidates) && shares.len() == candidates
        };
        check(&self.tasks, &self.slo).is_ok()
            && self.settings.check().is_ok()
            && self.ledger.is_of(&self.slo)
            && [self.states.len(), shares.len()] == [self.tasks.len(); 2]
            && self.tasks.iter().zip(&self.states).zip(shares).all(fits)
    }

    pub(crate) fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The limits that it keeps.
    pub const fn slo(&self) -> &Slo {
        &self.slo
    }

    /// What was spent in this batch, in the order of [`Resource::ALL`].
    pub const fn spent(&self) -> [f64; RESOURCES] {
        self.ledger.spent()
    }

    fn cool_down(&self) -> u32 {
        let twentieth = u32::try_from(self.slo.requests / 20).unwrap_or(u32::MAX);
        self.settings.cool_down.min(twentieth.max(1))
    }

    fn replan(&mut self, ahead: &Ahead) {
        let least = self.slo.accuracy.unwrap_or(0.0);
        let planned = ahead.plan(self.ledger.right_to_come(least, ahead.calls()));
        self.plan.age = 0;
        self.plan.failed = planned.is_err();
        if let Ok(Planned {
            mix,
            short,
            of_reserves,
        }) = planned
        {
            let by_task = self.plan.shares.iter_mut().zip(&mut self.states).zip(mix.shares);
            for (((all, state), shares), group) in by_task.zip(&ahead.groups) {
                *all = state.with_unreachable(shares);
                state.allotted = all.iter().map(|share| share * group.calls).collect();
            }
            (self.plan.short, self.plan.of_reserves) = (short, of_reserves);
        }
        self.spare = ahead.spare(self.plan.of_reserves);
    }

    /// Looks at the rest of the batch, and notes what that leaves to spare.
    fn look_ahead(&mut self) -> Ahead {
        let ahead = Ahead::of(
            &self.tasks,
            &mut self.states,
            &self.plan.shares,
            &self.ledger,
            &self.settings,
        );
        self.spare = ahead.spare(self.plan.of_reserves);
        ahead
    }

    /// The budget of which a call by this candidate would take more than is to spare.
    fn overdraws(&self, task: usize, candidate: usize) -> Option<Resource> {
        let (state, takes) = (
            &self.states[task],
            self.states[task].estimates[candidate].expected().takes,
        );
        Resource::ALL.into_iter().find(|resource| {
            let resource = *resource as usize;
            let more = takes[resource] - state.least[resource];
            self.spare[resource].is_some_and(|spare| more > spare.max(0.0))
        })
    }

    /// The candidate that is furthest from overdrawing anything, where all of them overdraw something.
    fn most_sparing(&self, ask: &Ask<'_>) -> usize {
        let state = &self.states[ask.task];
        let strain = |takes: [f64; RESOURCES]| -> f64 {
            let of = Resource::ALL.into_iter().filter_map(|resource| {
                let index = resource as usize;
                let measure = self.spare[index]?
                    .max(resource.least_measure())
                    .max(takes[index] * 1e-6)
                    .max(f64::MIN_POSITIVE);
                Some((takes[index] - state.least[index]) / measure)
            });
            of.fold(0.0, f64::max)
        };
        let strains = state
            .reachable()
            .map(|(candidate, estimate)| (candidate, -strain(estimate.expected().takes)));
        best_two(strains).map_or(0, |(candidate, _)| candidate)
    }

    /// Who serves by the plan, as far as that overdraws nothing, and the budget that keeps somebody from it.
    fn follow(&mut self, ask: &Ask<'_>) -> (Turn, Option<Resource>) {
        let mut short = self.plan.short;
        self.states[ask.task].share_whole_calls(&self.plan.shares[ask.task]);
        for candidate in 0..self.states[ask.task].shares.len() {
            if self.states[ask.task].shares[candidate] > 0.0
                && let Some(overdrawn) = self.overdraws(ask.task, candidate)
            {
                self.states[ask.task].shares[candidate] = 0.0;
                short = short.or(Some(overdrawn));
            }
        }
        let cool_down = self.cool_down();
        let state = &mut self.states[ask.task];
        let turn = state
            .credit
            .next(&state.shares, cool_down)
            .unwrap_or_else(|| Turn {
                chosen: self.most_sparing(ask),
                runner_up: None,
                kept: None,
            });
        (turn, short)
    }

    /// Counts a call that begins.
    fn begin(&mut self, task: usize, candidate: usize) {
        let state = &mut self.states[task];
        let takes = state.estimates[candidate].expected().takes;
        state.running[candidate] += 1;
        if let Some(calls) = state.allotted.get_mut(candidate) {
            *calls -= 1.0;
        }
        for ((spare, takes), least) in self.spare.iter_mut().zip(takes).zip(state.least) {
            *spare = spare.map(|spare| spare - (takes - least));
        }
    }
}

impl Selector for Pixie {
    fn name(&self) -> &'static str {
        "pixie"
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        task_of(&self.tasks, ask)?;
        if self.states[ask.task].unreachable != ask.unreachable {
            self.states[ask.task].unreachable = ask.unreachable.to_vec();
            let ahead = self.look_ahead();
            self.replan(&ahead);
        }
        let (turn, short) = self.follow(ask);
        self.begin(ask.task, turn.chosen);
        let requests = self.ledger.remaining();
        let reason = match (turn.kept, short) {
            _ if self.states[ask.task].reachable().count() == 1 => Reason::Only,
            (_, Some(resource)) => Reason::Short { resource, requests },
            _ if self.plan.failed => Reason::NoPlan,
            (Some(calls), None) if turn.runner_up.is_some() => Reason::Kept { calls },
            _ => Reason::Share {
                share: self.plan.shares[ask.task][turn.chosen],
                requests,
            },
        };
        Ok(Decision {
            task: ask.task,
            chosen: turn.chosen,
            runner_up: turn
                .runner_up
                .or_else(|| self.states[ask.task].next_best(turn.chosen)),
            reason,
        })
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError> {
        served.check(&self.tasks)?;
        let right = |call: &Call| self.states[call.task].estimates[call.candidate].expected().value;
        let batch_ended = self.ledger.enter(served, served.calls.iter().map(right).sum());
        let mut surprise = batch_ended;
        let clock = self.ledger.clock();
        for (task, state) in self.states.iter_mut().enumerate() {
            if served.calls.iter().any(|call| call.task == task) {
                state.estimates.iter_mut().for_each(Estimate::pass_over);
            }
        }
        for call in served.calls {
            let state = &mut self.states[call.task];
            let took = call.latency.as_secs_f64() * 1e3;
            let late = state.limit.is_some_and(|limit| took > limit);
            surprise |= state.estimates[call.candidate].see(call, late, clock);
            state.running[call.candidate] = state.running[call.candidate].saturating_sub(1);
            state.calls += 1;
        }
        if batch_ended {
            // A call that nobody reports, because its caller or its node went away, would count for ever.
            self.states.iter_mut().for_each(|state| state.running.fill(0));
        }
        for estimate in self.states.iter_mut().flat_map(|state| &mut state.estimates) {
            surprise |= estimate.forgive(clock, self.settings.forgive_after);
        }
        self.plan.age += 1;
        let ahead = self.look_ahead();
        let runs_short = self.spare.iter().flatten().any(|spare| *spare < 0.0);
        // A budget that has just run short does not wait for the next plan.
        if surprise || self.plan.age >= self.cool_down() || self.plan.short.is_none() && runs_short {
            self.replan(&ahead);
        }
        Ok(())
    }
}

impl PixieSettings {
    fn check(&self) -> Result<(), SelectError> {
        let setting = |field, value, bounds| Err(SelectError::Setting { field, value, bounds });
        if self.cool_down == 0 {
            return setting("cool-down", 0.0, "at least 1");
        }
        for (field, value) in [("reserve", self.reserve), ("caution", self.caution)] {
            if !(value >= 0.0 && value.is_finite()) {
                return setting(field, value, "finite and not below 0");
            }
        }
        if !(self.false_alarms > 0.0 && self.false_alarms < 1.0) {
            return setting("false-alarms", self.false_alarms, "between 0 and 1");
        }
        Ok(())
    }
}

/// All calls to the most accurate candidate.
fn most_accurate(task: &Task) -> Vec<f64> {
    let candidates = 0..task.candidates.len();
    let best = candidates
        .clone()
        .max_by(|one, other| task.accuracy(*one).total_cmp(&task.accuracy(*other)));
    candidates
        .map(|candidate| f64::from(u8::from(Some(candidate) == best)))
        .collect()
}
