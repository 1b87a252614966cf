//! What is measured of the candidates, and the cells that follow from it.

use super::registered::{Blocks, Place};
use super::tiers::{MODELS, Tiers};
use crate::digits::{Digit, accuracy};
use anyhow::{Context, Result};
use karman_sched::select::{LatencyLaw, Task, mix_within};
use karman_study::pairs::percentile;
use karman_types::{Binding, Implementation, Profile, Slo};
use serde::Serialize;
use std::time::Duration;

/// How much of the limits is to be enough, and by how much more accurate the program then is than the least.
const SPARE: (f64, f64) = (0.97, 0.005);
/// The share of requests that may be late.
const LATE: f64 = 0.05;

/// The candidates without the other tenant and beside it.
#[derive(Serialize)]
pub(super) struct Profiles {
    pub(super) before: Vec<Implementation>,
    pub(super) after: Vec<Implementation>,
}

/// A cell with its limits, and what can be reached within them by those who know what comes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) slo: Slo,
    /// The accuracy of the linear program.
    pub(super) program: f64,
    /// The most accurate single candidate within the limits, if there is one.
    pub(super) fixed: Option<usize>,
}

impl Profiles {
    pub(super) async fn measure(tiers: &Tiers, digits: &[Digit], calls: usize) -> Result<Self> {
        let before = profile(tiers, digits, calls).await?;
        let after = tokio::select! {
            measured = profile(tiers, digits, calls) => measured?,
            error = tiers.tenant() => return Err(error),
        };
        tiers.rest(&digits[0].request).await?;
        Ok(Self { before, after })
    }

    /// The cell of these profiles. Fails where no mix is within the limits.
    pub(super) fn cell(&self, place: Place, blocks: Blocks) -> Result<Cell> {
        let p95 = |model: &str| {
            let name = format!("{model}@edge");
            let known = self.before.iter().find(|known| known.name == name);
            known.map(|known| known.profile.p95.as_secs_f64())
        };
        let [_, medium, large] = MODELS.map(p95);
        let (medium, large) = (medium.context("no digits-m")?, large.context("no digits-l")?);
        let limit = medium.powf(1.0 - place.limit) * large.powf(place.limit);
        let slo = |share: f64| Slo {
            latency_p95: Some(Duration::from_secs_f64(limit * share)),
            cost: Some(place.budget * blocks.requests as f64 * share),
            ..Slo::over(blocks.requests)
        };
        let early = blocks.step() as f64 / blocks.requests as f64;
        let tasks = [
            task("before", early, &self.before),
            task("after", 1.0 - early, &self.after),
        ];
        let program = |share: f64| -> Result<f64> {
            let mix = mix_within(&tasks, &slo(share));
            let mix = mix.with_context(|| format!("{}: {share} of the limits", place.name()))?;
            Ok(mix.value / blocks.requests as f64)
        };
        let least = ((program(SPARE.0)? - SPARE.1) * 1e3).floor() / 1e3;
        let late = |candidate: usize| {
            let over = |known: &Implementation| LatencyLaw::of(&known.profile).share_over(limit * 1e3);
            early * over(&self.before[candidate]) + (1.0 - early) * over(&self.after[candidate])
        };
        let known = |candidate: usize| &self.before[candidate].profile;
        let fixed = (0..self.before.len())
            .filter(|candidate| known(*candidate).cost <= place.budget && late(*candidate) <= LATE)
            .max_by(|one, other| {
                let accuracy = |candidate: usize| known(candidate).accuracy.unwrap_or_default();
                accuracy(*one).total_cmp(&accuracy(*other))
            });
        Ok(Cell {
            name: place.name(),
            slo: Slo {
                accuracy: Some(least),
                ..slo(1.0)
            },
            program: program(1.0)?,
            fixed,
        })
    }
}

/// One task, with those who may serve it.
pub(super) fn task(name: &str, visits: f64, candidates: &[Implementation]) -> Task {
    Task {
        name: name.into(),
        visits,
        within: 1.0,
        candidates: candidates.to_vec(),
    }
}

/// Every candidate is called in turn, so that all meet the same minutes.
async fn profile(tiers: &Tiers, digits: &[Digit], calls: usize) -> Result<Vec<Implementation>> {
    let mut times = vec![Vec::new(); tiers.candidates.len()];
    for digit in digits.iter().cycle().take(calls) {
        for (candidate, times) in times.iter_mut().enumerate() {
            let (_, took) = tiers.call(candidate, &digit.request).await?;
            times.push(took.as_secs_f64());
        }
    }
    let of = tiers.candidates.iter().zip(&times);
    of.map(|(candidate, times)| {
        let at = |share| Duration::from_secs_f64(percentile(times, share));
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        Ok(Implementation {
            name: candidate.name.clone(),
            binding: Binding::Model(candidate.name.clone()),
            profile: Profile {
                accuracy: Some(accuracy(candidate.model)?),
                mean: Duration::from_secs_f64(mean),
                p50: at(0.5),
                p95: at(0.95),
                p99: at(0.99),
                cost: candidate.price,
                energy: None,
                samples: times.len() as u64,
            },
        })
    })
    .collect()
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
        let profiles = |far: u64| {
            vec![
                known("digits-s@edge", 0.975, 2, 1.0),
                known("digits-m@edge", 0.991, 6, 2.0),
                known("digits-l@edge", 0.993, 24, 5.0),
                known("digits-l@cloud", 0.993, far, 2.5),
            ]
        };
        let blocks = Registered::read().unwrap().evaluation;
        let place = Place {
            limit: 0.5,
            budget: 3.0,
        };
        let cell = |after: u64| {
            let profiles = Profiles {
                before: profiles(9),
                after: profiles(after),
            };
            profiles.cell(place, blocks).unwrap()
        };
        // The limit is 13.2 ms. The cloud keeps it, and then it does not.
        let (calm, step) = (cell(9), cell(40));
        assert_eq!((calm.fixed, step.fixed), (Some(3), Some(1)));
        assert!(calm.program > step.program, "{calm:?} {step:?}");
        let limit = calm.slo.latency_p95.unwrap().as_secs_f64();
        assert!((limit - 0.0132).abs() < 1e-4, "{limit}");
        assert!(calm.slo.accuracy.unwrap() < calm.program - 0.004);
    }
}
