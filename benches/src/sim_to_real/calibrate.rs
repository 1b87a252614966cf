//! The parameters of the simulator, from runs that are not judged.

use super::live::Nodes;
use super::registered::{Cell, Registered};
use super::scenario::Plan;
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use futures::{StreamExt, stream};
use karman_study::pairs::median;
use serde::Serialize;
use std::time::Instant;

/// Requests that wait for a node that is kept busy.
const AHEAD: usize = 3;

/// What the simulator has to know.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Measured {
    /// How long a request occupies a node, in the mean.
    pub(super) service_s: f64,
    /// The standard deviation of its logarithm.
    pub(super) sigma: f64,
    /// What a request takes besides, on an idle node.
    pub(super) besides_s: f64,
    /// By how much a node is occupied longer than it says that its model ran: timers are no finer.
    pub(super) overshoot_s: f64,
}

impl Measured {
    /// Before a block. Nodes that are kept busy tell how long a request occupies one, single requests what comes on top, and a run like the
    /// judged ones, by another seed, how long the model runs when it does so now and then.
    pub(super) async fn now(nodes: &Nodes, registered: &Registered, seed: u64) -> Result<Self> {
        let how = &registered.calibration;
        let all = (0..nodes.count()).map(|node| busy(nodes, node, how.saturated));
        let overshoots: Vec<(f64, f64)> = try_join_all(all).await?;
        let mean = |of: fn(&(f64, f64)) -> f64| {
            overshoots.iter().map(of).sum::<f64>() / overshoots.len().max(1) as f64
        };
        let (occupied_s, computed_s) = (mean(|of| of.0), mean(|of| of.1));
        let overshoot_s = (occupied_s - computed_s).max(0.0);
        let mut besides = Vec::new();
        for node in (0..nodes.count()).cycle().take(how.single * nodes.count()) {
            let started = Instant::now();
            let computed = nodes.ask(node).await?;
            besides.push(started.elapsed().as_secs_f64() - computed);
        }
        let rough = Self {
            service_s: occupied_s,
            sigma: 0.0,
            besides_s: (median(besides) - overshoot_s).max(0.0),
            overshoot_s,
        };
        let cell = Cell {
            route: how.route,
            load: how.load,
        };
        let plan = Plan::of(cell, registered, &rough, (seed + how.seed, how.window()));
        let answered = nodes.play(&plan).await?;
        let service: Vec<f64> = answered
            .iter()
            .map(|answer| answer.computed_s + overshoot_s)
            .collect();
        ensure!(!service.is_empty(), "no request came while nodes were measured");
        let (service_s, _) = mean_and_deviation(&service);
        let logs: Vec<f64> = service.iter().map(|seconds| seconds.ln()).collect();
        let (_, sigma) = mean_and_deviation(&logs);
        Ok(Self {
            service_s,
            sigma,
            ..rough
        })
    }
}

/// Keeps a node busy: how many seconds pass between its answers, and how many its model says that it ran, in the mean.
async fn busy(nodes: &Nodes, node: usize, requests: usize) -> Result<(f64, f64)> {
    let asked = stream::iter(0..requests).map(|_| nodes.ask(node));
    let mut answers = asked.buffer_unordered(AHEAD);
    // From its end on the node has always another one to begin with.
    answers.next().await.context("no requests")??;
    let (started, mut computed, mut count) = (Instant::now(), 0.0, 0_u32);
    while let Some(answer) = answers.next().await {
        computed += answer?;
        count += 1;
    }
    ensure!(count > 0, "one request keeps no node busy");
    let count = f64::from(count);
    Ok((started.elapsed().as_secs_f64() / count, computed / count))
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (squares / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_all_values() {
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), (2.0, 1.0));
        assert_eq!(mean_and_deviation(&[4.0]), (4.0, 0.0));
    }
}
