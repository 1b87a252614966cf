//! `planning`: how long a plan takes, explained and all, in a release build on this machine.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `plan_chain53_us` | the chain of 53 layers of MobileNetV2 on three tiers, [`Tiers`]: p99 over problems | 1000 |
//! | `plan_dag300_ms` | graphs with branches, 300 layers, three tiers, [`MinCut`], latency: p99 over problems | 10 |
//! | `plan_us.POLICY.GRAPH.LAYERS.TIERS` | the growth: median over problems | shown |
//!
//! Graphs and rates come from seeds. `throughput` cells are the saturated pipeline, `memory` cells have limits that bind.

use anyhow::Result;
use fastrand::Rng;
use karman_sched::partition::{
    Layer, LayerGraph, LayerTime, Link, MinCut, Objective, Partitioner, Power, Problem, Producer, Tensor,
    Tier, Tiers, Weights,
};
use karman_study::interval::bootstrap;
use karman_study::pairs::percentile;
use karman_study::report::{Kind, Report, Target};
use std::hint::black_box;
use std::time::Instant;

/// Plans that are made for each cell, each for a problem of its own.
const PROBLEMS: usize = 300;
/// Calls for each problem, of which the fastest counts: others on the machine are no part of a plan.
const REPEATS: usize = 3;

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<()> {
    let problems = if quick { 30 } else { PROBLEMS };
    let mut report = Report::new("planning");
    report.kind(Kind::Measured);
    report.register(["plan_chain53_us".into(), "plan_dag300_ms".into()]);

    let chain = Cell::chain(53, 3);
    let us = chain.measure(&Tiers, problems)?;
    report.estimate(
        "plan_chain53_us",
        bootstrap(&us, |us| percentile(us, 0.99)),
        "us",
        Target::AtMost(1000.0),
    );
    report.keep_raw("plan_chain53_us", &us);
    let graph = Cell::graph(300, 3);
    let ms: Vec<f64> = graph
        .measure(&MinCut, problems)?
        .iter()
        .map(|us| us / 1e3)
        .collect();
    report.estimate(
        "plan_dag300_ms",
        bootstrap(&ms, |ms| percentile(ms, 0.99)),
        "ms",
        Target::AtMost(10.0),
    );
    report.keep_raw("plan_dag300_ms", &ms);

    let context = problems / 10;
    for (layers, tiers) in [(10, 3), (53, 2), (53, 3), (53, 4), (53, 6), (150, 3), (300, 3)] {
        let us = Cell::chain(layers, tiers).measure(&Tiers, context)?;
        shown(&mut report, &format!("plan_us.tiers.chain.{layers}.{tiers}"), &us);
    }
    for (layers, tiers) in [(10, 3), (53, 3), (150, 3), (300, 2), (300, 3), (300, 4), (600, 3)] {
        let us = Cell::graph(layers, tiers).measure(&MinCut, context)?;
        shown(
            &mut report,
            &format!("plan_us.min_cut.graph.{layers}.{tiers}"),
            &us,
        );
    }
    let saturated = Cell {
        objective: Objective::THROUGHPUT,
        ..Cell::graph(300, 3)
    };
    shown(
        &mut report,
        "plan_us.min_cut.throughput.300.3",
        &saturated.measure(&MinCut, context)?,
    );
    let tight = Cell {
        tight: true,
        ..Cell::graph(300, 3)
    };
    shown(
        &mut report,
        "plan_us.min_cut.memory.300.3",
        &tight.measure(&MinCut, context)?,
    );
    report.write_and_print()
}

fn shown(report: &mut Report, key: &str, us: &[f64]) {
    report.estimate(key, bootstrap(us, |us| percentile(us, 0.5)), "us", Target::Shown);
    report.keep_raw(key, &us);
}

/// Problems of one size.
#[derive(Clone, Copy)]
struct Cell {
    layers: usize,
    tiers: usize,
    branches: bool,
    objective: Objective,
    tight: bool,
}

impl Cell {
    const fn chain(layers: usize, tiers: usize) -> Self {
        Self {
            layers,
            tiers,
            branches: false,
            objective: Objective::LATENCY,
            tight: false,
        }
    }

    const fn graph(layers: usize, tiers: usize) -> Self {
        Self {
            branches: true,
            ..Self::chain(layers, tiers)
        }
    }

    /// Microseconds of one plan each, for problems that differ in everything but their size.
    fn measure(self, policy: &impl Partitioner, problems: usize) -> Result<Vec<f64>> {
        // One plan more, that warms up.
        let mut times = Vec::with_capacity(problems);
        for seed in 0..=problems {
            let problem = self.problem(seed as u64)?;
            let mut least = f64::INFINITY;
            for _ in 0..REPEATS {
                let start = Instant::now();
                let plan = black_box(policy.plan(black_box(&problem)));
                least = least.min(start.elapsed().as_secs_f64() * 1e6);
                plan?;
            }
            times.push(least);
        }
        times.remove(0);
        Ok(times)
    }

    /// Layers as those of convolutional networks: sizes fall and weights grow with depth, each layer goes to the next one, and
    /// in a graph two in five also skip up to eight layers.
    fn problem(self, seed: u64) -> Result<Problem> {
        let mut rng = Rng::with_seed(seed);
        let depth = |layer: usize| layer as f64 / self.layers as f64;
        let layer = |index: usize, rng: &mut Rng| Layer {
            name: format!("layer{index}"),
            time: LayerTime::Reference(0.1 + rng.f64() * 300.0 / self.layers as f64),
            weight_bytes: (1e6 * depth(index) * rng.f64()) as u64,
            working_bytes: 2_000_000,
        };
        let layers: Vec<Layer> = (0..self.layers).map(|index| layer(index, &mut rng)).collect();
        let tensors = (0..=self.layers).map(|index| {
            let mut to: Vec<usize> = (index..(index + 1).min(self.layers)).collect();
            if self.branches && rng.f64() < 0.4 {
                to.extend(Some(index + rng.usize(1..9)).filter(|taker| *taker < self.layers));
            }
            Tensor {
                from: index.checked_sub(1).map_or(Producer::Held(0), Producer::Layer),
                to,
                wanted_at: (index == self.layers).then_some(0),
                bytes: (1e6 * (1.0 - 0.9 * depth(index)) * rng.f64()) as u64 + 1000,
            }
        });
        let graph = LayerGraph::new(layers, tensors.collect())?;
        let weights: u64 = graph.layers().iter().map(|layer| layer.weight_bytes).sum();
        let tier = |index: usize| Tier {
            name: format!("tier{index}"),
            slowdown: 0.25_f64.powi(index as i32),
            memory_bytes: (self.tight && index + 1 == self.tiers).then_some(weights / 3 + 2_000_000),
            power: Power {
                busy_w: 6.0,
                idle_w: 2.0,
                transmit_w: 1.0,
            },
            available: true,
        };
        let tiers = (0..self.tiers).map(tier).collect();
        let pairs = (1..self.tiers).flat_map(|to| [(to - 1, to), (to, to - 1)]);
        let links = pairs.map(|(from, to)| Link {
            from,
            to,
            rate_mbit_s: 5.0 * 40.0_f64.powf(rng.f64()),
            latency_ms: 5.0,
            message_ms: 0.2,
        });
        let links = links.collect();
        Ok(Problem::new(
            graph,
            tiers,
            links,
            self.objective,
            Weights::Everywhere,
        )?)
    }
}
