//! One run: a policy, its requests, and the step on the way.

use super::profiles::{Cell, Profiles};
use super::registered::Blocks;
use super::tiers::Tiers;
use crate::digits::Digit;
use anyhow::Result;
use karman_sched::select::{Ask, Call, Selector, Served};
use karman_study::pairs::percentile;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) cell: usize,
    pub(super) policy: &'static str,
    pub(super) seed: u64,
    pub(super) cost: f64,
    pub(super) p95_ms: f64,
    /// The mean of what is known of the chosen models.
    pub(super) accuracy: f64,
    /// The share of answers that were right.
    pub(super) right: f64,
    pub(super) switches: u32,
    /// Cost, p95 and least accuracy are kept.
    pub(super) compliant: bool,
    /// Every request: the candidate that answered, and how long that took in milliseconds.
    requests: Vec<(usize, f64)>,
}

/// Requests under way, one after the other.
pub(super) struct Batch<'a> {
    tiers: &'a Tiers,
    digits: Vec<&'a Digit>,
    policy: Box<dyn Selector>,
    begun: Instant,
    answered: Vec<Answered>,
}

struct Answered {
    candidate: usize,
    took: Duration,
    right: bool,
}

impl<'a> Batch<'a> {
    /// These digits in an order that the seed gives.
    pub(super) fn new(tiers: &'a Tiers, digits: &'a [Digit], policy: Box<dyn Selector>, seed: u64) -> Self {
        let mut digits: Vec<&Digit> = digits.iter().collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut digits);
        Self {
            tiers,
            digits,
            policy,
            begun: Instant::now(),
            answered: Vec::new(),
        }
    }

    /// All of them: the first in peace, the others beside another tenant of the cloud.
    pub(super) async fn run(&mut self, blocks: Blocks) -> Result<()> {
        self.serve(blocks.step()).await?;
        let tiers = self.tiers;
        tokio::select! {
            served = self.serve(blocks.requests as usize) => served?,
            error = tiers.tenant() => return Err(error),
        }
        tiers.rest(&self.digits[0].request).await
    }

    async fn serve(&mut self, until: usize) -> Result<()> {
        while self.answered.len() < until {
            let digit = self.digits[self.answered.len() % self.digits.len()];
            let ask = Ask {
                now: self.begun.elapsed(),
                task: 0,
                queue: 1,
                unreachable: &[],
            };
            let candidate = self.policy.choose(&ask)?.chosen;
            let (answer, took) = self.tiers.call(candidate, &digit.request).await?;
            let right = digit.is_right(&answer)?;
            let call = Call {
                task: 0,
                candidate,
                latency: took,
                cost: self.tiers.candidates[candidate].price,
                energy: None,
                right: Some(right),
            };
            self.policy.report(&Served {
                now: self.begun.elapsed(),
                queue: 0,
                latency: took,
                calls: &[call],
            })?;
            self.answered.push(Answered {
                candidate,
                took,
                right,
            });
        }
        Ok(())
    }

    /// What came of it in a cell.
    pub(super) fn outcome(
        &self,
        (cell, place): (&Cell, usize),
        profiles: &Profiles,
        (policy, seed): (&'static str, u64),
    ) -> Run {
        let all = &self.answered;
        let requests: Vec<(usize, f64)> = all
            .iter()
            .map(|answered| (answered.candidate, answered.took.as_secs_f64() * 1e3))
            .collect();
        let of = |candidate: usize| &profiles.before[candidate].profile;
        let mean = |sum: f64| sum / all.len().max(1) as f64;
        let cost: f64 = all.iter().map(|answered| of(answered.candidate).cost).sum();
        let accuracy = all
            .iter()
            .map(|answered| of(answered.candidate).accuracy.unwrap_or_default());
        let accuracy = mean(accuracy.sum());
        let right = all.iter().filter(|answered| answered.right).count();
        let changes = all
            .windows(2)
            .filter(|pair| pair[0].candidate != pair[1].candidate);
        let took_ms: Vec<f64> = requests.iter().map(|(_, ms)| *ms).collect();
        let p95_ms = percentile(&took_ms, 0.95);
        let slo = &cell.slo;
        let in_time = slo
            .latency_p95
            .is_none_or(|most| p95_ms <= most.as_secs_f64() * 1e3);
        let compliant = in_time
            && slo.cost.is_none_or(|most| cost <= most)
            && slo.accuracy.is_none_or(|least| accuracy >= least);
        Run {
            cell: place,
            policy,
            seed,
            cost,
            p95_ms,
            accuracy,
            right: mean(right as f64),
            switches: changes.count() as u32,
            compliant,
            requests,
        }
    }
}
