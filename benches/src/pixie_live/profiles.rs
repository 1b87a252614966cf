//! What is measured of the candidates, and the cells that follow from it.

use super::registered::{Blocks, Place};
use super::tiers::Tiers;
use super::workload::Workload;
use anyhow::{Context, Result, bail};
use karman_sched::select::{LatencyLaw, Task, mix_within};
use karman_study::choosing::every_choice;
use karman_study::pairs::percentile;
use karman_types::{Binding, Implementation, Profile, Slo};
use serde::Serialize;
use std::time::Duration;

/// How much of the limits is to be enough, and by how much more accurate the program then is than the least.
const SPARE: (f64, f64) = (0.97, 0.005);
/// The share of requests that may be late.
const LATE: f64 = 0.05;

/// The candidates without the other tenant and beside it, by task.
#[derive(Serialize)]
pub(super) struct Profiles {
    tasks: &'static [&'static str],
    /// How many of the candidates are on the edge: they come first.
    on_edge: usize,
    /// How often a request comes to each task, as far as everybody is right.
    pub(super) visits: Vec<f64>,
    pub(super) before: Vec<Vec<Implementation>>,
    pub(super) after: Vec<Vec<Implementation>>,
}

/// A cell with its limits, and what can be reached within them by those who know what comes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) slo: Slo,
    /// The accuracy of the linear program.
    pub(super) program: f64,
    /// The most accurate single choice for each task within the limits, if there is one.
    pub(super) fixed: Option<Vec<usize>>,
}

impl Profiles {
    pub(super) async fn measure(tiers: &Tiers, workload: &Workload, calls: usize) -> Result<Self> {
        let accuracies = match workload.recorded.is_empty() {
            true => judge(tiers, workload).await?,
            false => workload.recorded.clone(),
        };
        let before = profile(tiers, workload, &accuracies, calls).await?;
        let after = tokio::select! {
            measured = profile(tiers, workload, &accuracies, calls) => measured?,
            error = tiers.tenant() => return Err(error),
        };
        tiers.rest(workload).await?;
        let examples = workload.examples();
        let visits = (0..workload.tasks.len()).map(|task| {
            let that_come = examples.iter().filter(|example| example.comes_to(task));
            that_come.count() as f64 / examples.len() as f64
        });
        Ok(Self {
            tasks: workload.tasks,
            on_edge: workload.models.len(),
            visits: visits.collect(),
            before,
            after,
        })
    }

    /// What policies know.
    pub(super) fn tasks(&self) -> Vec<Task> {
        self.tasks_of(&self.before, 1.0)
    }

    /// For a part of the requests.
    fn tasks_of(&self, known: &[Vec<Implementation>], part: f64) -> Vec<Task> {
        let tasks = self.tasks.iter().zip(&self.visits).zip(known);
        let task = |((name, visits), candidates): ((&&str, &f64), &Vec<Implementation>)| Task {
            name: (*name).to_owned(),
            visits: part * visits,
            within: self.within(),
            candidates: candidates.clone(),
        };
        tasks.map(task).collect()
    }

    /// Each task's part of the limit.
    fn within(&self) -> f64 {
        1.0 / self.tasks.len() as f64
    }

    /// The limit on the p95 of requests, in seconds.
    fn limit(&self, place: Place) -> Result<f64> {
        let on_edge = self.before.first().and_then(|known| known.get(..self.on_edge));
        let Some([.., lesser, largest]) = on_edge else {
            bail!("{}: fewer than two models on the edge", place.name());
        };
        let [lesser, largest] = [lesser, largest].map(|known| known.profile.p95.as_secs_f64());
        Ok(lesser.powf(1.0 - place.limit) * largest.powf(place.limit) / self.within())
    }

    /// The cell of these profiles. Fails where no mix is within the limits.
    pub(super) fn cell(&self, place: Place, blocks: Blocks) -> Result<Cell> {
        let limit = self.limit(place)?;
        let requests = blocks.requests as f64;
        let slo = |share: f64| Slo {
            latency_p95: Some(Duration::from_secs_f64(limit * share)),
            cost: Some(place.budget * requests * share),
            ..Slo::over(blocks.requests)
        };
        let early = blocks.step() as f64 / requests;
        let mut tasks = self.tasks_of(&self.before, early);
        tasks.extend(self.tasks_of(&self.after, 1.0 - early));
        let calls = requests * self.visits.iter().sum::<f64>();
        let program = |share: f64| -> Result<f64> {
            let mix = mix_within(&tasks, &slo(share));
            let mix = mix.with_context(|| format!("{}: {share} of the limits", place.name()))?;
            Ok(mix.value / calls)
        };
        let least = ((program(SPARE.0)? - SPARE.1) * 1e3).floor() / 1e3;
        Ok(Cell {
            name: place.name(),
            slo: Slo {
                accuracy: Some(least),
                ..slo(1.0)
            },
            program: program(1.0)?,
            fixed: self.best_fixed(limit, early, place.budget),
        })
    }

    /// The most accurate choice whose cost and late share are within the limits, by those who know that the first profiles hold for an
    /// early part of the requests only.
    fn best_fixed(&self, limit: f64, early: f64, budget: f64) -> Option<Vec<usize>> {
        let sum = |choice: &[usize], of: &dyn Fn(usize, usize) -> f64| -> f64 {
            let chosen = choice.iter().enumerate();
            chosen
                .map(|(task, candidate)| self.visits[task] * of(task, *candidate))
                .sum()
        };
        let limit_ms = limit * 1e3 * self.within();
        let over = |known: &Implementation| LatencyLaw::of(&known.profile).share_over(limit_ms);
        let late = |task: usize, candidate: usize| {
            let (before, after) = (&self.before[task][candidate], &self.after[task][candidate]);
            early * over(before) + (1.0 - early) * over(after)
        };
        let cost = |task: usize, candidate: usize| self.before[task][candidate].profile.cost;
        let accuracy = |task: usize, candidate: usize| self.accuracy(task, candidate);
        let choices = every_choice(&self.tasks()).into_iter();
        choices
            .filter(|choice| sum(choice, &cost) <= budget && sum(choice, &late) <= LATE)
            .max_by(|one, other| sum(one, &accuracy).total_cmp(&sum(other, &accuracy)))
    }

    /// What is known of a candidate of a task.
    pub(super) fn accuracy(&self, task: usize, candidate: usize) -> f64 {
        let known = &self.before[task][candidate].profile;
        known.accuracy.unwrap_or_default()
    }
}

/// The share of examples that each model gets right in each task. A model says the same everywhere: the cloud is asked, which is faster.
async fn judge(tiers: &Tiers, workload: &Workload) -> Result<Vec<Vec<f64>>> {
    let mut accuracies = Vec::new();
    for model in 0..workload.models.len() {
        let mut seen = vec![(0.0_f64, 0.0); workload.tasks.len()];
        for example in workload.examples() {
            let (answer, _) = tiers.call(workload.in_cloud(model)?, example.body()).await?;
            for (task, (asked, right)) in seen.iter_mut().enumerate() {
                if example.comes_to(task) {
                    *asked += 1.0;
                    *right += f64::from(u8::from(example.is_right(task, &answer)?));
                }
            }
        }
        let shares = seen.into_iter().map(|(asked, right)| right / asked.max(1.0));
        accuracies.push(shares.collect());
    }
    Ok(accuracies)
}

/// Every candidate is called in turn, so that all meet the same minutes. What a call takes is the same in every task: the same model
/// gets the same input.
async fn profile(
    tiers: &Tiers,
    workload: &Workload,
    accuracies: &[Vec<f64>],
    calls: usize,
) -> Result<Vec<Vec<Implementation>>> {
    let mut times = vec![Vec::new(); workload.candidates.len()];
    for example in workload.examples().iter().cycle().take(calls) {
        for (candidate, times) in workload.candidates.iter().zip(&mut times) {
            let (_, took) = tiers.call(candidate, example.body()).await?;
            times.push(took.as_secs_f64());
        }
    }
    let of_task = |task: usize| -> Vec<Implementation> {
        let candidates = workload.candidates.iter().zip(&times);
        let known = candidates.map(|(candidate, times)| Implementation {
            name: candidate.name.clone(),
            binding: Binding::Model(candidate.name.clone()),
            profile: measured(times, accuracies[candidate.model][task], candidate.price),
        });
        known.collect()
    };
    Ok((0..workload.tasks.len()).map(of_task).collect())
}

fn measured(times: &[f64], accuracy: f64, cost: f64) -> Profile {
    let at = |share| Duration::from_secs_f64(percentile(times, share));
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    Profile {
        accuracy: Some(accuracy),
        mean: Duration::from_secs_f64(mean),
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        cost,
        energy: None,
        samples: times.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::registered::Registered;
    use super::*;

    fn known(name: &str, accuracy: f64, ms: u64, cost: f64) -> Implementation {
        let time = |share: u64| Duration::from_micros(ms * share);
        Implementation {
            name: name.into(),
            binding: Binding::Model(name.into()),
            profile: Profile {
                accuracy: Some(accuracy),
                mean: time(1000),
                p50: time(990),
                p95: time(1100),
                p99: time(1200),
                cost,
                energy: None,
                samples: 100,
            },
        }
    }

    #[test]
    fn the_program_knows_the_step_and_the_best_fixed_choice_keeps_the_limits() {
        let known = |far: u64| {
            vec![vec![
                known("digits-s@edge", 0.975, 2, 1.0),
                known("digits-m@edge", 0.991, 6, 2.0),
                known("digits-l@edge", 0.993, 24, 5.0),
                known("digits-l@cloud", 0.993, far, 2.5),
            ]]
        };
        let blocks = Registered::read().unwrap().digits.blocks(false);
        let place = Place {
            workflow: "live",
            limit: 0.5,
            budget: 3.0,
        };
        let cell = |after: u64| {
            let profiles = Profiles {
                tasks: &["classify"],
                on_edge: 3,
                visits: vec![1.0],
                before: known(9),
                after: known(after),
            };
            profiles.cell(place, blocks).unwrap()
        };
        // The limit is 13.2 ms. The cloud keeps it, and then it does not.
        let (calm, step) = (cell(9), cell(40));
        assert_eq!((calm.fixed, step.fixed), (Some(vec![3]), Some(vec![1])));
        assert!(calm.program > step.program);
        let limit = calm.slo.latency_p95.unwrap().as_secs_f64();
        assert!((limit - 0.0132).abs() < 1e-4, "{limit}");
        assert!(calm.slo.accuracy.unwrap() < calm.program - 0.004);
    }

    #[test]
    fn two_tasks_share_the_limit_and_the_budget() {
        let task = |small: f64, large: f64| {
            vec![
                known("flood-s@edge", small, 10, 1.0),
                known("flood-l@edge", large, 40, 4.0),
            ]
        };
        let both = || vec![task(0.95, 0.96), task(0.7, 0.9)];
        let profiles = Profiles {
            tasks: &["screen", "segment"],
            on_edge: 2,
            visits: vec![1.0, 0.5],
            before: both(),
            after: both(),
        };
        let blocks = Registered::read().unwrap().flood.blocks(false);
        let place = Place {
            workflow: "flood",
            limit: 1.2,
            budget: 3.0,
        };
        let cell = profiles.cell(place, blocks).unwrap();
        // Three is one for screening and four for each second request.
        assert_eq!(cell.fixed, Some(vec![0, 1]));
        assert!((cell.program - (0.95 + 0.5 * 0.9) / 1.5).abs() < 1e-4, "{cell:?}");
        // For each task 44 ms to the power of 1.2 over 11 ms to that of 0.2.
        let limit = cell.slo.latency_p95.unwrap().as_secs_f64();
        assert!((limit - 2.0 * 0.05806).abs() < 1e-4, "{limit}");
    }
}
