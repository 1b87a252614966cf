//! Judges choices by what was measured.

use super::timing::Times;
use anyhow::{Context, Result};
use karman_infer::operator::{MachineProfile, Runner};
use karman_study::interval::bootstrap;
use karman_study::pairs::median;
use karman_study::report::{Report, Target};
use serde::Serialize;

/// What takes at most so many times as long as the fastest is as good as it.
const AS_GOOD: f64 = 1.05;
const AGREEMENT: &str = "operator_choice_agreement";
const REGRET: &str = "operator_choice_regret";

pub(super) fn cells() -> [String; 2] {
    [AGREEMENT, REGRET].map(str::to_owned)
}

/// A choice, and what it stands against. Runners are in the order of [`Runner::ALL`].
#[derive(Serialize)]
pub(super) struct Judged {
    operator: String,
    /// Which of them was chosen.
    chosen: usize,
    /// Seconds that were predicted for each.
    predicted: Vec<f64>,
    /// Seconds in each block, for each.
    seconds: Vec<Vec<f64>>,
}

impl Judged {
    pub(super) fn new(times: Times, profile: &MachineProfile) -> Result<Self> {
        let operator = times.operator;
        let unknown = || format!("{operator}: no such operator was timed for the profile");
        let choice = profile.choose(&operator, &Runner::ALL).with_context(unknown)?;
        let at = |runner: &Runner| Runner::ALL.iter().position(|one| one == runner);
        let predicted = Runner::ALL
            .into_iter()
            .map(|runner| profile.runners.get(&runner)?.seconds(&operator));
        Ok(Self {
            operator: operator.to_string(),
            chosen: at(&choice.runner).context("a runner that is none")?,
            predicted: predicted.collect::<Option<Vec<_>>>().with_context(unknown)?,
            seconds: times.seconds,
        })
    }

    /// The median of each runner over these blocks.
    fn medians(&self, blocks: &[usize]) -> Vec<f64> {
        let of_one = |seconds: &Vec<f64>| median(blocks.iter().map(|block| seconds[*block]).collect());
        self.seconds.iter().map(of_one).collect()
    }

    /// The time of this runner over that of the fastest.
    fn regret(&self, runner: usize, blocks: &[usize]) -> f64 {
        let medians = self.medians(blocks);
        medians[runner] / medians.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Puts the rows of a sweep that ran in so many blocks.
pub(super) fn rows(judged: &[Judged], blocks: usize, report: &mut Report) {
    let blocks: Vec<usize> = (0..blocks).collect();
    let chosen = |judged: &Judged| judged.chosen;
    let agreement = bootstrap(&blocks, |blocks| share(judged, blocks, AS_GOOD, chosen));
    report.estimate(AGREEMENT, agreement, "share", Target::AtLeast(0.9));
    let regret = bootstrap(&blocks, |blocks| mean_regret(judged, blocks, chosen));
    report.estimate(REGRET, regret, "ratio", Target::Shown);
    let worst = judged.iter().map(|judged| judged.regret(judged.chosen, &blocks));
    let mut figure = |key: &str, value: f64, unit| report.figure(key, value, unit, Target::Shown);
    figure("operator_choice_worst", worst.fold(1.0, f64::max), "ratio");
    figure(
        "operator_choice_exact",
        share(judged, &blocks, 1.0, chosen),
        "share",
    );
    figure("operator_shapes", judged.len() as f64, "");
    for (at, runner) in Runner::ALL.into_iter().enumerate() {
        let fixed = |_: &Judged| at;
        let mut of_runner =
            |key: &str, value: f64, unit| figure(&format!("operator_{key}.{runner}"), value, unit);
        of_runner("best_share", share(judged, &blocks, 1.0, fixed), "share");
        of_runner("fixed_agreement", share(judged, &blocks, AS_GOOD, fixed), "share");
        of_runner("fixed_regret", mean_regret(judged, &blocks, fixed), "ratio");
        let error = |judged: &Judged| (judged.predicted[at] / judged.medians(&blocks)[at] - 1.0).abs();
        of_runner(
            "prediction_error",
            median(judged.iter().map(error).collect()),
            "share",
        );
    }
    for judged in judged {
        let regret = judged.regret(judged.chosen, &blocks);
        if regret > AS_GOOD {
            let Judged { operator, chosen, .. } = judged;
            eprintln!(
                "{operator}: {} takes {regret:.2} times as long",
                Runner::ALL[*chosen]
            );
        }
    }
    report.keep_raw(AGREEMENT, &judged);
}

/// The share of the shapes on which this runner takes at most so many times as long as the fastest.
fn share(judged: &[Judged], blocks: &[usize], most: f64, runner: impl Fn(&Judged) -> usize) -> f64 {
    let good = judged
        .iter()
        .filter(|judged| judged.regret(runner(judged), blocks) <= most);
    good.count() as f64 / judged.len() as f64
}

/// The geometric mean over the shapes of the time of this runner over that of the fastest.
fn mean_regret(judged: &[Judged], blocks: &[usize], runner: impl Fn(&Judged) -> usize) -> f64 {
    let logarithms = judged
        .iter()
        .map(|judged| judged.regret(runner(judged), blocks).ln());
    (logarithms.sum::<f64>() / judged.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_infer::operator::Operator;

    /// Two shapes: a profile that knows the first and is wrong on the second.
    #[test]
    fn a_choice_is_judged_by_the_fastest() {
        let shapes = [
            Operator::Relu { elements: 100 },
            Operator::Relu { elements: 10_000 },
        ];
        let times = Runner::ALL.map(|runner| {
            let seconds = if runner == Runner::Tract { 1.0 } else { 2.0 };
            (runner, shapes[0], seconds)
        });
        let profile = MachineProfile::new("two", times);
        let measured = [[2.0, 1.0, 2.0], [1.0, 1.2, 4.0]];
        let judged: Vec<Judged> = shapes
            .into_iter()
            .zip(measured)
            .map(|(operator, seconds)| {
                let seconds = seconds.map(|seconds| vec![seconds; 4]).to_vec();
                Judged::new(Times { operator, seconds }, &profile).unwrap()
            })
            .collect();
        let blocks = [0, 3, 3];
        let chosen = |judged: &Judged| judged.chosen;
        assert_eq!(share(&judged, &blocks, AS_GOOD, chosen), 0.5);
        assert_eq!(share(&judged, &blocks, 1.25, chosen), 1.0);
        assert_eq!(share(&judged, &blocks, AS_GOOD, |_| 2), 0.0);
        assert!((mean_regret(&judged, &blocks, chosen) - 1.2_f64.sqrt()).abs() < 1e-12);
        let unknown = Times {
            operator: Operator::Add { elements: 1 },
            seconds: vec![vec![1.0]; 3],
        };
        assert!(Judged::new(unknown, &profile).is_err());
    }
}
