use super::credit::Credit;
use super::plan::{Group, Mix, PlanError, RESOURCES, Use, best_mix, nearest_mix};
use super::task::check;
use super::{Ask, Decision, NoChoice, Reason, ReportError, SelectError, Selector, Served, Task, task_of};
use karman_types::Slo;
use serde::{Deserialize, Serialize};

/// The best that profiles allow in the mean: the mix of the linear program, followed without looking at what happens. A bound on
/// accuracy rather than a policy: half of its batches are over a limit by chance.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Oracle {
    tasks: Vec<Task>,
    shares: Vec<Vec<f64>>,
    credits: Vec<Credit>,
    requests: u64,
}

/// The most accurate mix of a batch whose expected cost, energy and late share are within the limits. It sees what a policy sees:
/// profiles and how often tasks are called, no outcome of a call. [`Mix::value`] is the number of right answers.
///
/// # Errors
/// [`PlanError::Infeasible`] when no mix is within the limits.
pub fn mix_within(tasks: &[Task], slo: &Slo) -> Result<Mix, PlanError> {
    let (groups, limits) = program(tasks, slo);
    best_mix(&groups, &limits)
}

fn program(tasks: &[Task], slo: &Slo) -> (Vec<Group>, [Option<f64>; RESOURCES]) {
    let requests = slo.requests as f64;
    let group = |task: &Task| Group {
        calls: task.visits * requests,
        candidates: (0..task.candidates.len())
            .map(|candidate| {
                let profile = &task.candidates[candidate].profile;
                Use {
                    value: task.accuracy(candidate),
                    takes: [
                        profile.cost,
                        task.late_share(slo, candidate),
                        profile.energy.unwrap_or_default(),
                    ],
                }
            })
            .collect(),
    };
    let late = slo.latency_p95.map(|_| requests / 20.0);
    (tasks.iter().map(group).collect(), [slo.cost, late, slo.energy])
}

impl Oracle {
    /// The best mix of these tasks, or where none is within the limits the nearest.
    ///
    /// # Errors
    /// Names what is wrong with a task, a profile or a limit.
    pub fn new(tasks: Vec<Task>, slo: &Slo) -> Result<Self, SelectError> {
        check(&tasks, slo)?;
        let (groups, limits) = program(&tasks, slo);
        let mix = best_mix(&groups, &limits).or_else(|_| nearest_mix(&groups, &limits))?;
        Ok(Self {
            shares: mix.shares,
            credits: tasks
                .iter()
                .map(|task| Credit::new(task.candidates.len()))
                .collect(),
            requests: slo.requests,
            tasks,
        })
    }
}

impl Selector for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        let task = task_of(&self.tasks, ask)?;
        let shares = &self.shares[ask.task];
        let in_reach = |candidate: usize| f64::from(u8::from(ask.reaches(candidate)));
        let mut within: Vec<f64> = (0..shares.len()).map(|n| shares[n] * in_reach(n)).collect();
        if within.iter().all(|share| *share == 0.0) {
            // None of the mix can be reached: the others share alike.
            within = (0..shares.len()).map(in_reach).collect();
        }
        let whole: f64 = within.iter().sum();
        within.iter_mut().for_each(|share| *share /= whole);
        let turn = self.credits[ask.task]
            .next(&within, 1)
            .ok_or_else(|| NoChoice::Unreachable {
                task: task.name.clone(),
                candidates: task.candidates.len(),
            })?;
        Ok(Decision {
            task: ask.task,
            chosen: turn.chosen,
            runner_up: turn.runner_up,
            reason: Reason::Share {
                share: within[turn.chosen],
                requests: self.requests,
            },
        })
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError> {
        served.check(&self.tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{candidate, serve, task};
    use super::*;

    #[test]
    fn it_follows_the_mix_that_spends_the_budget() {
        let tasks = vec![task(
            "a",
            vec![candidate("s", 0.7, 1.0, 1.0), candidate("m", 0.9, 1.0, 2.0)],
        )];
        let slo = Slo {
            cost: Some(125.0),
            ..Slo::over(100)
        };
        let mix = mix_within(&tasks, &slo).unwrap();
        assert!((mix.value - 75.0).abs() < 1e-4, "{mix:?}");
        let mut oracle = Oracle::new(tasks.clone(), &slo).unwrap();
        let dear = (0..100)
            .filter(|_| serve(&mut oracle, &tasks, |_| 1.0) == 1)
            .count();
        assert!((24..=26).contains(&dear), "{dear}");
    }
}
