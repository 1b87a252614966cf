use super::task::check;
use super::{
    Aim, Ask, Decision, NoChoice, Reason, ReportError, Resource, SelectError, Selector, Served, Task,
    best_two, task_of,
};
use karman_types::Slo;
use serde::{Deserialize, Serialize};

/// The rule of PLAIground's published prototype (2026-01), for comparison: every tenth request the mean of what is left is compared
/// with what the current choices take by their profiles, and all tasks are moved together.
///
/// One fault is mended so that the rule is judged and not its clock: budgets and reports count by request, where the prototype
/// counted calls against a budget of requests. Its constants are its own (3,000 ms, 0.05 USD, weights 0.3, 0.4, 0.3).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PixiePrototype {
    tasks: Vec<Task>,
    slo: Slo,
    current: Vec<usize>,
    reason: Reason,
    latency: f64,
    cost: f64,
    right: f64,
    answered: u64,
    switched: u64,
}

/// Requests between two looks.
const INTERVAL: u64 = 10;
/// The share of a budget that is not counted on.
const MARGIN: f64 = 0.1;
/// The unknown accuracy.
const ASSUMED_ACCURACY: f64 = 0.8;

/// What is left for one request.
#[derive(Clone, Copy, Debug)]
struct Slack {
    latency: f64,
    cost: f64,
    accuracy: f64,
}

impl PixiePrototype {
    /// Starts with the most accurate candidates within the limits.
    ///
    /// # Errors
    /// Names what is wrong with a task, a profile or a limit.
    pub fn new(tasks: Vec<Task>, slo: Slo) -> Result<Self, SelectError> {
        check(&tasks, &slo)?;
        let current = tasks.iter().map(|task| first(task, &slo)).collect();
        Ok(Self {
            tasks,
            slo,
            current,
            reason: Reason::Best {
                aim: Aim::Accuracy,
                within: true,
            },
            latency: 0.0,
            cost: 0.0,
            right: 0.0,
            answered: 0,
            switched: 0,
        })
    }

    fn slack(&self) -> Option<Slack> {
        let (requests, answered) = (self.slo.requests as f64, self.answered as f64);
        let remaining = requests - answered;
        (remaining > 0.0).then(|| Slack {
            latency: (limit_ms(&self.slo) * requests - self.latency) / remaining,
            cost: (self.slo.cost.unwrap_or(f64::INFINITY) - self.cost) / remaining,
            accuracy: self.right / answered - self.slo.accuracy.unwrap_or(0.0),
        })
    }

    fn decide(&mut self) {
        let progress = self.answered as f64 / self.slo.requests as f64;
        if self.answered - self.switched < INTERVAL || progress > 0.95 {
            return;
        }
        let Some(slack) = self.slack() else { return };
        let sum = |of: &dyn Fn(&Task, usize) -> f64| -> f64 {
            self.tasks
                .iter()
                .zip(&self.current)
                .map(|(task, current)| of(task, *current))
                .sum()
        };
        let (latency, cost) = (
            sum(&mean_ms),
            sum(&|task, current| task.candidates[current].profile.cost),
        );
        let rich = slack.latency > 3000.0 && slack.cost > 0.05;
        let reason = if latency > slack.latency * (1.0 - MARGIN) {
            Reason::Overspend {
                resource: Resource::Late,
            }
        } else if cost > slack.cost * (1.0 - MARGIN) {
            Reason::Overspend {
                resource: Resource::Cost,
            }
        } else if slack.accuracy < -0.02 && rich {
            Reason::Inaccurate
        } else {
            return;
        };
        self.current = self.tasks.iter().map(|task| act(task, &slack, rich)).collect();
        self.reason = reason;
        self.switched = self.answered;
    }
}

impl Selector for PixiePrototype {
    fn name(&self) -> &'static str {
        "pixie_prototype"
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        let task = task_of(&self.tasks, ask)?;
        let current = self.current[ask.task];
        let score = |candidate| match candidate == current {
            true => f64::INFINITY,
            false => task.accuracy(candidate),
        };
        let reachable = (0..task.candidates.len()).filter(|candidate| ask.reaches(*candidate));
        let (chosen, runner_up) =
            best_two(reachable.map(|candidate| (candidate, score(candidate)))).unwrap_or((current, None));
        Ok(Decision {
            task: ask.task,
            chosen,
            runner_up,
            reason: if chosen == current {
                self.reason.clone()
            } else {
                Reason::Only
            },
        })
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError> {
        served.check(&self.tasks)?;
        if self.answered == self.slo.requests {
            (self.latency, self.cost, self.right) = (0.0, 0.0, 0.0);
            (self.answered, self.switched) = (0, 0);
        }
        self.answered += 1;
        self.latency += served.latency.as_secs_f64() * 1e3;
        self.cost += served.calls.iter().map(|call| call.cost).sum::<f64>();
        let known = served.calls.iter().filter_map(|call| call.right);
        self.right += f64::from(u8::from(known.min().unwrap_or(true)));
        if self.answered.is_multiple_of(INTERVAL) {
            self.decide();
        }
        Ok(())
    }
}

/// The most accurate within the limits of one request, or of all when none is.
fn first(task: &Task, slo: &Slo) -> usize {
    let cost = slo.cost.unwrap_or(f64::INFINITY) / slo.requests as f64;
    let fits = |candidate: &usize| {
        let profile = &task.candidates[*candidate].profile;
        mean_ms(task, *candidate) <= limit_ms(slo) * (1.0 - MARGIN)
            && profile.cost <= cost * (1.0 - MARGIN)
            && profile
                .accuracy
                .is_none_or(|accuracy| accuracy >= 0.95 * slo.accuracy.unwrap_or(0.0))
    };
    let all = 0..task.candidates.len();
    let any = all.clone().any(|candidate| fits(&candidate));
    let fit = all.filter(|candidate| !any || fits(candidate));
    best(fit, |candidate| Aim::Accuracy.score(task, candidate))
}

fn act(task: &Task, slack: &Slack, rich: bool) -> usize {
    let all = 0..task.candidates.len();
    let cheapest = || best(all.clone(), |candidate| Aim::Cost.score(task, candidate));
    let cost = |candidate: usize| task.candidates[candidate].profile.cost;
    if slack.latency < 0.0 || slack.cost < 0.0 {
        return cheapest();
    }
    if rich && slack.accuracy < 0.0 {
        let mut fit = all
            .clone()
            .filter(|n| mean_ms(task, *n) <= slack.latency && cost(*n) <= slack.cost)
            .peekable();
        return match fit.peek() {
            Some(_) => best(fit, |candidate| Aim::Accuracy.score(task, candidate)),
            None => cheapest(),
        };
    }
    let spared = |takes: f64, left: f64| {
        if left > 0.0 {
            (1.0 - takes / left).max(0.0)
        } else {
            0.0
        }
    };
    best(all.clone(), |candidate| {
        let accuracy = task.candidates[candidate]
            .profile
            .accuracy
            .unwrap_or(ASSUMED_ACCURACY);
        0.3 * accuracy
            + 0.4 * spared(cost(candidate), slack.cost)
            + 0.3 * spared(mean_ms(task, candidate), slack.latency)
    })
}

fn best(candidates: impl Iterator<Item = usize>, score: impl Fn(usize) -> f64) -> usize {
    best_two(candidates.map(|candidate| (candidate, score(candidate)))).map_or(0, |(best, _)| best)
}

fn mean_ms(task: &Task, candidate: usize) -> f64 {
    task.candidates[candidate].profile.mean.as_secs_f64() * 1e3
}

fn limit_ms(slo: &Slo) -> f64 {
    slo.latency_p95
        .map_or(f64::INFINITY, |limit| limit.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{candidate, millis, serve, task};
    use super::*;

    #[test]
    fn it_moves_when_the_profile_overspends_what_is_left() {
        let tasks = vec![task(
            "a",
            vec![candidate("s", 0.7, 100.0, 0.1), candidate("m", 0.9, 200.0, 0.8)],
        )];
        let slo = Slo {
            cost: Some(100.0),
            latency_p95: Some(millis(1000.0)),
            ..Slo::over(100)
        };
        let mut policy = PixiePrototype::new(tasks.clone(), slo).unwrap();
        // Within the limits at first; ten slow answers leave less than the profile takes, plus the margin.
        let choices: Vec<usize> = (0..20).map(|_| serve(&mut policy, &tasks, |_| 9500.0)).collect();
        assert_eq!(choices[..10], [1; 10]);
        assert_eq!(choices[10..], [0; 10]);
        assert_eq!(
            policy.reason,
            Reason::Overspend {
                resource: Resource::Late
            }
        );
    }
}
