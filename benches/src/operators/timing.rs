//! Times operators on all runners, in turns.

use super::runners::{Ready, Runners};
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use karman_infer::operator::{Operator, Runner};
use karman_study::pairs::median;
use std::hint::black_box;
use std::time::Instant;

/// The share of the largest number by which two results may differ.
const EQUAL: f32 = 1e-5;
/// How long the runs of one block take together, where one is shorter.
const BLOCK_S: f64 = 3e-4;
/// No block has more.
const MOST_RUNS: f64 = 300.0;

/// An operator that every runner has ready, in the order of [`Runner::ALL`].
pub(super) struct Case {
    operator: Operator,
    ready: Vec<Ready>,
}

/// How long an operator took.
pub(super) struct Times {
    pub(super) operator: Operator,
    /// Seconds of a run in each block, runner by runner in the order of [`Runner::ALL`].
    pub(super) seconds: Vec<Vec<f64>>,
}

impl Times {
    /// Over all blocks, runner by runner.
    pub(super) fn medians(&self) -> Vec<f64> {
        self.seconds.iter().cloned().map(median).collect()
    }
}

/// Loads operators everywhere, with random weights and inputs, and sees that everywhere the same comes out.
pub(super) fn prepare(runners: &Runners, operators: &[Operator]) -> Result<Vec<Case>> {
    let mut rng = Rng::with_seed(2026);
    let one = |operator: &Operator| {
        let count = |dims: &[u32]| dims.iter().map(|dim| *dim as usize).product::<usize>();
        let inputs: Vec<Vec<f32>> = operator
            .inputs()
            .iter()
            .map(|dims| drawn(&mut rng, count(dims)))
            .collect();
        let weights = operator
            .weights()
            .map_or_else(Vec::new, |dims| drawn(&mut rng, count(&dims)));
        let ready = Runner::ALL
            .into_iter()
            .map(|runner| {
                let ready = runners.prepare(runner, operator, &weights, &inputs);
                ready.with_context(|| format!("{operator} on {runner}"))
            })
            .collect::<Result<Vec<_>>>()?;
        let case = Case {
            operator: *operator,
            ready,
        };
        case.check(runners)?;
        Ok(case)
    };
    operators.iter().map(one).collect()
}

impl Case {
    fn check(&self, runners: &Runners) -> Result<()> {
        let outputs = self
            .ready
            .iter()
            .map(|ready| runners.run(ready)?.numbers())
            .collect::<Result<Vec<_>>>()?;
        let (first, others) = outputs.split_first().context("no runner")?;
        let largest = first
            .iter()
            .fold(0.0_f32, |largest, number| largest.max(number.abs()));
        ensure!(largest > 0.0, "{}: nothing but zeros comes out", self.operator);
        for (runner, other) in Runner::ALL[1..].iter().zip(others) {
            let equal = |(one, other): (&f32, &f32)| (one - other).abs() <= EQUAL * largest;
            ensure!(
                first.len() == other.len() && first.iter().zip(other).all(equal),
                "{} on {runner} does not give what it gives on {}",
                self.operator,
                Runner::ALL[0]
            );
        }
        Ok(())
    }
}

/// Times every operator on every runner in so many blocks.
pub(super) fn measure(runners: &Runners, cases: &[Case], blocks: usize) -> Result<Vec<Times>> {
    let mut runs = Vec::new();
    for case in cases {
        let of_each = case.ready.iter().map(|ready| {
            let once = timed(runners, ready, 3)?;
            Ok((BLOCK_S / once).clamp(1.0, MOST_RUNS) as usize)
        });
        runs.push(of_each.collect::<Result<Vec<usize>>>()?);
    }
    let mut times: Vec<Times> = cases
        .iter()
        .map(|case| Times {
            operator: case.operator,
            seconds: vec![Vec::new(); case.ready.len()],
        })
        .collect();
    for _ in 0..blocks {
        for ((case, runs), times) in cases.iter().zip(&runs).zip(&mut times) {
            let mut order: Vec<usize> = (0..case.ready.len()).collect();
            fastrand::shuffle(&mut order);
            for at in order {
                times.seconds[at].push(timed(runners, &case.ready[at], runs[at])?);
            }
        }
    }
    Ok(times)
}

/// Seconds of one of so many runs, after one that does not count: another was there before it.
fn timed(runners: &Runners, ready: &Ready, runs: usize) -> Result<f64> {
    black_box(runners.run(ready)?);
    let started = Instant::now();
    for _ in 0..runs {
        black_box(runners.run(ready)?);
    }
    Ok(started.elapsed().as_secs_f64() / runs as f64)
}

/// Numbers of mean 0 and variance 1.
fn drawn(rng: &mut Rng, count: usize) -> Vec<f32> {
    let reach = 3.0_f32.sqrt();
    (0..count).map(|_| reach * (2.0 * rng.f32() - 1.0)).collect()
}
