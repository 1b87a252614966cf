use super::task::check;
use super::{
    Aim, Ask, Decision, NoChoice, Reason, ReportError, SelectError, Selector, Served, Task, task_of,
};
use karman_types::Slo;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Chooses by the queue: as accurate as can be while those who wait are still served within the limit. Knows nothing of money.
///
/// The thresholds are those of Compass (Elastico, arXiv 2603.20821) in their continuous form. A candidate has `limit - p95` of
/// time to let others go first. When the queue takes more, one step to a faster one, at once; when it would be served by the next
/// more accurate one with 50 ms to spare, one step back, at most every 5 s.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Compass {
    tasks: Vec<Task>,
    ladders: Vec<Ladder>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Ladder {
    /// From the fastest to the most accurate; each is more accurate and slower than the one before.
    rungs: Vec<Rung>,
    current: usize,
    stepped_up: Duration,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Rung {
    candidate: usize,
    /// Milliseconds of a call in the mean.
    mean: f64,
    /// Milliseconds that others may take first.
    slack: f64,
}

/// What has to be left over for a step back.
const SPARE_MS: f64 = 50.0;
/// Between two steps back.
const PAUSE: Duration = Duration::from_secs(5);

impl Compass {
    /// Starts with the most accurate candidates whose p95 is within the limit.
    ///
    /// # Errors
    /// Names what is wrong with a task, a profile or a limit.
    pub fn new(tasks: Vec<Task>, slo: &Slo) -> Result<Self, SelectError> {
        check(&tasks, slo)?;
        let ladders = tasks.iter().map(|task| Ladder::of(task, slo)).collect();
        Ok(Self { tasks, ladders })
    }

    /// Whether it can be one that was made: what is read may be anything.
    pub(crate) fn is_whole(&self) -> bool {
        let fits = |(task, ladder): (&Task, &Ladder)| {
            let is_one = |rung: &Rung| rung.candidate < task.candidates.len() && rung.mean > 0.0;
            ladder.current < ladder.rungs.len() && ladder.rungs.iter().all(is_one)
        };
        // Nobody writes the limits down: the ladders have them.
        check(&self.tasks, &Slo::over(Slo::USUAL_REQUESTS)).is_ok()
            && self.tasks.len() == self.ladders.len()
            && self.tasks.iter().zip(&self.ladders).all(fits)
    }
}

impl Ladder {
    fn of(task: &Task, slo: &Slo) -> Self {
        let p95 = |candidate: usize| task.candidates[candidate].profile.p95;
        let accurate = |candidate: &usize| {
            slo.accuracy
                .is_none_or(|least| task.accuracy(*candidate) >= least)
        };
        let all = 0..task.candidates.len();
        let any = all.clone().any(|candidate| accurate(&candidate));
        let mut order: Vec<usize> = all.filter(|candidate| !any || accurate(candidate)).collect();
        order.sort_by(|one, other| {
            let accuracy = || task.accuracy(*other).total_cmp(&task.accuracy(*one));
            p95(*one).cmp(&p95(*other)).then_with(accuracy)
        });
        let mut rungs: Vec<Rung> = Vec::new();
        for candidate in order {
            if rungs
                .last()
                .is_none_or(|last| task.accuracy(candidate) > task.accuracy(last.candidate))
            {
                rungs.push(Rung {
                    candidate,
                    mean: task.candidates[candidate].profile.mean.as_secs_f64() * 1e3,
                    slack: task
                        .latency_limit(slo)
                        .map_or(f64::INFINITY, |limit| limit - p95(candidate).as_secs_f64() * 1e3),
                });
            }
        }
        Self {
            current: rungs.iter().rposition(|rung| rung.slack >= 0.0).unwrap_or(0),
            rungs,
            stepped_up: Duration::ZERO,
        }
    }
}

impl Selector for Compass {
    fn name(&self) -> &'static str {
        "compass"
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        let task = task_of(&self.tasks, ask)?;
        let ladder = &mut self.ladders[ask.task];
        let waiting = ask.queue.saturating_sub(1) as f64;
        let rung = ladder.rungs[ladder.current];
        let too_long = waiting * rung.mean > rung.slack;
        if too_long {
            ladder.current = ladder.current.saturating_sub(1);
        }
        // Out of reach: the nearest faster one, else the nearest more accurate one, else one that is off the ladder.
        let (slower, faster) = (
            &ladder.rungs[ladder.current + 1..],
            &ladder.rungs[..=ladder.current],
        );
        let off = (0..task.candidates.len()).filter(|n| ladder.rungs.iter().all(|rung| rung.candidate != *n));
        let order = faster
            .iter()
            .rev()
            .chain(slower)
            .map(|rung| rung.candidate)
            .chain(off);
        let mut order = order.filter(|candidate| ask.reaches(*candidate));
        let chosen = order.next().unwrap_or(rung.candidate);
        let reason = match too_long {
            true => Reason::Queue {
                length: ask.queue,
                most: ((rung.slack.max(0.0) / rung.mean) as usize).saturating_add(1),
            },
            false => Reason::Best {
                aim: Aim::Accuracy,
                within: rung.slack >= 0.0,
            },
        };
        Ok(Decision {
            task: ask.task,
            chosen,
            runner_up: order.next(),
            reason,
        })
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError> {
        served.check(&self.tasks)?;
        for ladder in &mut self.ladders {
            let Some(slower) = ladder.rungs.get(ladder.current + 1) else {
                continue;
            };
            let fits = served.queue as f64 * slower.mean <= slower.slack - SPARE_MS;
            if fits && served.now.saturating_sub(ladder.stepped_up) >= PAUSE {
                ladder.current += 1;
                ladder.stepped_up = served.now;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{candidate, millis, task};
    use super::*;

    fn compass() -> Compass {
        let tasks = vec![task(
            "a",
            vec![
                candidate("large", 0.9, 1000.0, 0.1),
                candidate("small", 0.7, 100.0, 0.1),
                candidate("slow and bad", 0.6, 900.0, 0.1),
            ],
        )];
        let slo = Slo {
            latency_p95: Some(millis(1700.0)),
            ..Slo::over(100)
        };
        Compass::new(tasks, &slo).unwrap()
    }

    fn report(compass: &mut Compass, second: u64, queue: usize) {
        compass
            .report(&Served {
                now: Duration::from_secs(second),
                queue,
                latency: Duration::ZERO,
                calls: &[],
            })
            .unwrap();
    }

    #[test]
    fn a_long_queue_is_served_faster_until_it_is_short() {
        let mut compass = compass();
        let choose = |compass: &mut Compass, queue| {
            compass
                .choose(&Ask {
                    queue,
                    ..Ask::default()
                })
                .unwrap()
        };
        // 700 ms of slack at 600 ms a call: one may go first, two may not.
        assert_eq!(choose(&mut compass, 2).chosen, 0);
        let decision = choose(&mut compass, 3);
        assert_eq!(
            (decision.chosen, decision.reason),
            (1, Reason::Queue { length: 3, most: 2 })
        );
        report(&mut compass, 6, 2);
        assert_eq!(choose(&mut compass, 2).chosen, 1);
        report(&mut compass, 7, 1);
        assert_eq!(choose(&mut compass, 1).chosen, 0);
        assert_eq!(choose(&mut compass, 9).chosen, 1);
        // Not again within five seconds.
        report(&mut compass, 11, 0);
        assert_eq!(choose(&mut compass, 1).chosen, 1);
        report(&mut compass, 12, 0);
        assert_eq!(choose(&mut compass, 1).chosen, 0);
    }

    #[test]
    fn who_is_beaten_serves_only_when_nobody_else_can() {
        let alone = Ask {
            unreachable: &[0, 1],
            ..Ask::default()
        };
        assert_eq!(compass().choose(&alone).unwrap().chosen, 2);
    }
}
