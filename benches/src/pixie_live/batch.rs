//! One run: a policy, its requests, and the step on the way.

use super::profiles::{Cell, Profiles};
use super::registered::Blocks;
use super::tiers::Tiers;
use super::workload::{Question, Workload};
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
    /// The share of requests of which every answer was right.
    pub(super) right: f64,
    pub(super) switches: u32,
    /// Cost, p95 and least accuracy are kept.
    pub(super) compliant: bool,
    /// Every request: the candidates that answered, task by task, and how long that took in milliseconds.
    requests: Vec<(Vec<usize>, f64)>,
}

/// Requests under way, one after the other.
pub(super) struct Batch<'a> {
    tiers: &'a Tiers,
    workload: &'a Workload,
    questions: Vec<&'a Question>,
    policy: Box<dyn Selector>,
    begun: Instant,
    answered: Vec<Answered>,
}

struct Answered {
    /// One for each task that the request came to, in their order.
    calls: Vec<Call>,
    took: Duration,
}

impl<'a> Batch<'a> {
    /// The requests of a workload in an order that the seed gives.
    pub(super) fn new(
        tiers: &'a Tiers,
        workload: &'a Workload,
        policy: Box<dyn Selector>,
        seed: u64,
    ) -> Self {
        let mut questions: Vec<&Question> = workload.requests().iter().collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut questions);
        Self {
            tiers,
            workload,
            questions,
            policy,
            begun: Instant::now(),
            answered: Vec::new(),
        }
    }

    /// All of them: the first in peace, the others beside another tenant of the cloud.
    pub(super) async fn run(&mut self, blocks: Blocks) -> Result<()> {
        self.serve(blocks.step()).await?;
        let (tiers, workload) = (self.tiers, self.workload);
        tokio::select! {
            served = self.serve(blocks.requests as usize) => served?,
            error = tiers.tenant() => return Err(error),
        }
        tiers.rest(workload).await
    }

    async fn serve(&mut self, until: usize) -> Result<()> {
        while self.answered.len() < until {
            let question = self.questions[self.answered.len() % self.questions.len()];
            let answered = self.ask(question).await?;
            self.policy.report(&Served {
                now: self.begun.elapsed(),
                queue: 0,
                latency: answered.took,
                calls: &answered.calls,
            })?;
            self.answered.push(answered);
        }
        Ok(())
    }

    /// One request: task after task, as far as the answers lead.
    async fn ask(&mut self, question: &Question) -> Result<Answered> {
        let mut answered = Answered {
            calls: Vec::new(),
            took: Duration::ZERO,
        };
        let mut next = Some(0);
        while let Some(task) = next {
            let ask = Ask {
                now: self.begun.elapsed(),
                task,
                queue: 1,
                unreachable: &[],
            };
            let chosen = self.policy.choose(&ask)?.chosen;
            let candidate = &self.workload.candidates[chosen];
            let (answer, took) = self.tiers.call(candidate, question.body()).await?;
            answered.took += took;
            answered.calls.push(Call {
                task,
                candidate: chosen,
                latency: took,
                cost: candidate.price,
                energy: None,
                right: Some(question.is_right(task, &answer)?),
            });
            next = question.next(task, &answer)?;
        }
        Ok(answered)
    }

    /// What came of it in a cell.
    pub(super) fn outcome(
        &self,
        (cell, place): (&Cell, usize),
        profiles: &Profiles,
        (policy, seed): (&'static str, u64),
    ) -> Run {
        let all = &self.answered;
        let requests = all.iter().map(|answered| {
            let by: Vec<usize> = answered.calls.iter().map(|call| call.candidate).collect();
            (by, answered.took.as_secs_f64() * 1e3)
        });
        let requests: Vec<(Vec<usize>, f64)> = requests.collect();
        let took_ms: Vec<f64> = requests.iter().map(|(_, ms)| *ms).collect();
        let calls = all.iter().flat_map(|answered| &answered.calls);
        let cost: f64 = calls.map(|call| call.cost).sum();
        let p95_ms = percentile(&took_ms, 0.95);
        let chosen = self.chosen();
        let accuracy = accuracy(&chosen, profiles);
        let is_right = |answered: &&Answered| answered.calls.iter().all(|call| call.right == Some(true));
        let right = all.iter().filter(is_right).count();
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
            right: right as f64 / all.len().max(1) as f64,
            switches: switches(&chosen),
            compliant,
            requests,
        }
    }

    /// Who served each task, call by call.
    fn chosen(&self) -> Vec<Vec<usize>> {
        let mut chosen = vec![Vec::new(); self.workload.tasks.len()];
        for call in self.answered.iter().flat_map(|answered| &answered.calls) {
            chosen[call.task].push(call.candidate);
        }
        chosen
    }
}

/// What is known of those who served, in the mean. Tasks weigh by how often requests should come to them, not by how often they did: a
/// policy does not become more accurate by what it is asked.
fn accuracy(chosen: &[Vec<usize>], profiles: &Profiles) -> f64 {
    let (mut sum, mut weight) = (0.0_f64, 0.0_f64);
    for (task, (chosen, visits)) in chosen.iter().zip(&profiles.visits).enumerate() {
        if chosen.is_empty() {
            continue;
        }
        let known = chosen.iter().map(|candidate| profiles.accuracy(task, *candidate));
        sum += visits * known.sum::<f64>() / chosen.len() as f64;
        weight += visits;
    }
    sum / weight
}

/// How often a task was served by another than the time before.
fn switches(chosen: &[Vec<usize>]) -> u32 {
    let changes = |of: &Vec<usize>| of.windows(2).filter(|pair| pair[0] != pair[1]).count();
    chosen.iter().map(changes).sum::<usize>() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_task_by_task() {
        assert_eq!(switches(&[vec![0, 0, 1, 0], vec![2], vec![]]), 2);
        assert_eq!(switches(&[vec![0, 0], vec![1, 1]]), 0);
    }
}
