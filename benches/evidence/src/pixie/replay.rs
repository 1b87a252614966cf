//! One batch of questions through one policy.

use super::profiles::{CLASSIFIER_MS, EASY, QUESTIONS, Workload};
use anyhow::Result;
use karman_sched::select::{Ask, Call, LatencyLaw, Selector, Served};
use karman_study::pairs::percentile;
use karman_types::Slo;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// What a seed decides, the same for every policy.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    questions: Vec<Draw>,
}

#[derive(Clone, Copy, Debug)]
struct Draw {
    easy: bool,
    /// Each from 0 to 1: whether the classifier errs, how slow the answer is, whether it is right.
    classified: f64,
    slow: f64,
    answered: f64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut easy: Vec<bool> = (0..QUESTIONS).map(|question| question < EASY).collect();
        rng.shuffle(&mut easy);
        let questions = easy.into_iter().map(|easy| Draw {
            easy,
            classified: rng.f64(),
            slow: rng.f64(),
            answered: rng.f64(),
        });
        Self {
            questions: questions.collect(),
        }
    }
}

/// What happens that the profiles do not say.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Perturbation {
    /// Reports come this many requests late.
    pub(super) lag: usize,
    /// From the 290th question on, calls to the cloud take this many times as long, less one.
    pub(super) slower: f64,
    /// Nobody says whether an answer was right.
    pub(super) unlabelled: bool,
    /// Latencies are drawn from straight lines between the quantiles instead of the law that policies assume.
    pub(super) lines: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Run {
    pub(super) cost: f64,
    pub(super) p95_ms: f64,
    /// The mean of what the chosen models' profiles say, not of what was drawn.
    pub(super) accuracy: f64,
    pub(super) switches: u32,
    /// Cost and p95 are within their limits.
    pub(super) within: bool,
    /// And so is accuracy.
    pub(super) compliant: bool,
}

const DRIFT_FROM: usize = QUESTIONS / 3;

pub(super) fn replay(
    workload: &Workload,
    slo: &Slo,
    draws: &Draws,
    perturbation: Perturbation,
    policy: &mut dyn Selector,
) -> Result<Run> {
    let laws: Vec<Vec<LatencyLaw>> = workload
        .tasks
        .iter()
        .map(|task| {
            task.candidates
                .iter()
                .map(|candidate| LatencyLaw::of(&candidate.profile))
                .collect()
        })
        .collect();
    let mut latencies = Vec::with_capacity(QUESTIONS);
    let mut waiting: VecDeque<(Duration, Call)> = VecDeque::new();
    let mut last: Vec<Option<usize>> = vec![None; workload.tasks.len()];
    let (mut cost, mut accuracy, mut switches) = (0.0, 0.0, 0);
    let mut now = Duration::ZERO;
    for (question, draw) in draws.questions.iter().enumerate() {
        let called_easy = workload
            .classifier
            .is_none_or(|right| (draw.classified < right) == draw.easy);
        let task = usize::from(!called_easy);
        let ask = Ask {
            now,
            task,
            queue: 1,
            unreachable: &[],
        };
        let chosen = policy.choose(&ask)?.chosen;
        switches += u32::from(last[task].is_some_and(|last| last != chosen));
        last[task] = Some(chosen);

        let recorded = &workload.recorded[task][chosen];
        let candidate = &workload.tasks[task].candidates[chosen];
        let mut latency = match perturbation.lines {
            true => on_lines(&candidate.profile, draw.slow),
            false => laws[task][chosen].quantile(draw.slow),
        };
        if question >= DRIFT_FROM && candidate.name.ends_with("@cloud") {
            latency *= 1.0 + perturbation.slower;
        }
        let expected = if draw.easy {
            recorded.accuracy_easy
        } else {
            recorded.accuracy_hard
        };
        accuracy += expected;
        cost += candidate.profile.cost;
        let call = Call {
            task,
            candidate: chosen,
            latency: millis(latency),
            cost: candidate.profile.cost,
            energy: None,
            right: (!perturbation.unlabelled).then_some(draw.answered < expected),
        };
        let whole = latency + workload.classifier.map_or(0.0, |_| CLASSIFIER_MS);
        latencies.push(whole);
        now += millis(whole);
        waiting.push_back((millis(whole), call));
        while waiting.len() > perturbation.lag {
            let Some((latency, call)) = waiting.pop_front() else {
                break;
            };
            policy.report(&Served {
                now,
                queue: 0,
                latency,
                calls: &[call],
            })?;
        }
    }
    let accuracy = accuracy / QUESTIONS as f64;
    let p95_ms = percentile(&latencies, 0.95);
    let keeps = |most: Option<f64>, value: f64| most.is_none_or(|most| value <= most);
    let within =
        keeps(slo.cost, cost) && keeps(slo.latency_p95.map(|limit| limit.as_secs_f64() * 1e3), p95_ms);
    Ok(Run {
        cost,
        p95_ms,
        accuracy,
        switches,
        within,
        compliant: within && slo.accuracy.is_none_or(|least| accuracy >= least),
    })
}

/// Straight lines through (0, 0.6 p50), (0.5, p50), (0.95, p95), (0.99, p99), and on with the last slope.
fn on_lines(profile: &karman_types::Profile, share: f64) -> f64 {
    let [p50, p95, p99] = [profile.p50, profile.p95, profile.p99].map(|time| time.as_secs_f64() * 1e3);
    let points = [(0.0, 0.6 * p50), (0.5, p50), (0.95, p95), (0.99, p99)];
    let segment = points
        .windows(2)
        .position(|pair| share < pair[1].0)
        .unwrap_or(points.len() - 2);
    let ((from, low), (to, high)) = (points[segment], points[segment + 1]);
    low + (high - low) * (share - from) / (to - from)
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
