use super::task::check;
use super::{
    Ask, Decision, NoChoice, Reason, ReportError, SelectError, Selector, Served, Task, best_two, task_of,
};
use karman_types::{Profile, Slo};
use serde::{Deserialize, Serialize};

/// The best candidate by one aim among those whose profiles keep the limits (all of them, if none does), chosen without looking at
/// what happens.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Greedy {
    tasks: Vec<Task>,
    slo: Slo,
    aim: Aim,
}

/// What is aimed at.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aim {
    /// The most accurate.
    Accuracy,
    /// The cheapest.
    Cost,
    /// The fastest in the mean.
    Latency,
}

impl Aim {
    /// How good a candidate of a task is; more is better.
    pub(crate) fn score(self, task: &Task, candidate: usize) -> f64 {
        let profile = &task.candidates[candidate].profile;
        match self {
            Self::Accuracy => task.accuracy(candidate),
            Self::Cost => -profile.cost,
            Self::Latency => -profile.mean.as_secs_f64(),
        }
    }
}

impl Greedy {
    /// The best by this aim.
    ///
    /// # Errors
    /// Names what is wrong with a task, a profile or a limit.
    pub fn new(tasks: Vec<Task>, slo: Slo, aim: Aim) -> Result<Self, SelectError> {
        check(&tasks, &slo)?;
        Ok(Self { tasks, slo, aim })
    }

    /// Whether it can be one that was made: what is read may be anything.
    pub(crate) fn is_whole(&self) -> bool {
        check(&self.tasks, &self.slo).is_ok()
    }

    fn keeps_limits(&self, task: &Task, candidate: usize) -> bool {
        let Profile { p95, accuracy, .. } = &task.candidates[candidate].profile;
        let p95 = p95.as_secs_f64() * 1e3;
        let accurate = |least: f64| accuracy.is_none_or(|accuracy| accuracy >= least);
        task.latency_limit(&self.slo).is_none_or(|limit| p95 <= limit)
            && self.slo.accuracy.is_none_or(accurate)
    }
}

impl Selector for Greedy {
    fn name(&self) -> &'static str {
        match self.aim {
            Aim::Accuracy => "greedy_accuracy",
            Aim::Cost => "greedy_cost",
            Aim::Latency => "greedy_latency",
        }
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        let task = task_of(&self.tasks, ask)?;
        let reachable = || (0..task.candidates.len()).filter(|candidate| ask.reaches(*candidate));
        let within = reachable().any(|candidate| self.keeps_limits(task, candidate));
        let fit = reachable().filter(|candidate| !within || self.keeps_limits(task, *candidate));
        let (chosen, runner_up) = best_two(fit.map(|candidate| (candidate, self.aim.score(task, candidate))))
            .ok_or_else(|| NoChoice::Unreachable {
                task: task.name.clone(),
                candidates: task.candidates.len(),
            })?;
        Ok(Decision {
            task: ask.task,
            chosen,
            runner_up,
            reason: Reason::Best {
                aim: self.aim,
                within,
            },
        })
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError> {
        served.check(&self.tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{candidate, millis, task};
    use super::*;

    #[test]
    fn it_takes_the_best_that_keeps_the_limits() {
        let tasks = vec![task(
            "a",
            vec![
                candidate("small", 0.7, 50.0, 0.1),
                candidate("middle", 0.8, 100.0, 0.3),
                candidate("large", 0.9, 300.0, 0.2),
            ],
        )];
        let slo = |limit| Slo {
            latency_p95: Some(millis(limit)),
            accuracy: Some(0.75),
            ..Slo::over(10)
        };
        let choose = |limit, aim| {
            let decision = Greedy::new(tasks.clone(), slo(limit), aim)
                .unwrap()
                .choose(&Ask::default())
                .unwrap();
            (decision.chosen, decision.reason)
        };
        let best = |aim, within| Reason::Best { aim, within };
        assert_eq!(choose(200.0, Aim::Accuracy), (1, best(Aim::Accuracy, true)));
        assert_eq!(choose(400.0, Aim::Accuracy), (2, best(Aim::Accuracy, true)));
        assert_eq!(choose(400.0, Aim::Cost), (2, best(Aim::Cost, true)));
        assert_eq!(choose(10.0, Aim::Latency), (0, best(Aim::Latency, false)));
    }
}
