//! What came of a cell, live and simulated, by the same count.

use super::live::Answered;
use super::registered::Window;
use karman_sim::{Outcome, Samples};
use serde::Serialize;

/// Both in one cell of one block.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Both {
    pub(super) live: Figures,
    pub(super) simulated: Figures,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Answers each second, of requests that count.
    pub(super) throughput: f64,
    pub(super) p50_ms: f64,
    pub(super) p95_ms: f64,
    /// The share of the nodes' time that they work, after the warm-up.
    pub(super) busy: f64,
}

impl Figures {
    /// Their names, in the order of [`Figures::all`].
    pub(super) const NAMES: [&str; 4] = ["throughput", "p50", "p95", "busy"];

    pub(super) const fn all(&self) -> [f64; 4] {
        [self.throughput, self.p50_ms, self.p95_ms, self.busy]
    }

    /// Of a live run. A request occupies a node for as long as it says that its model ran, and `overshoot_s` more.
    pub(super) fn live(answered: &[Answered], window: &Window, nodes: usize, overshoot_s: f64) -> Self {
        let (from, until, end) = window.seconds();
        let counts = |answer: &&Answered| (from..until).contains(&answer.due_s) && answer.ended_s <= end;
        let mut responses = Samples::default();
        for answer in answered.iter().filter(counts) {
            responses.push(answer.ended_s - answer.due_s);
        }
        let worked = answered
            .iter()
            .filter(|answer| (from..=end).contains(&answer.ended_s));
        let occupied: f64 = worked.map(|answer| answer.computed_s + overshoot_s).sum();
        Self::over(&responses, window, occupied / ((end - from) * nodes as f64))
    }

    /// Of a simulated run.
    pub(super) fn simulated(outcome: &Outcome, window: &Window) -> Self {
        let busy = outcome.nodes.last().map_or(f64::NAN, |nodes| nodes.utilisation);
        let mut responses = Samples::default();
        for of in &outcome.workloads {
            of.responses
                .values()
                .iter()
                .for_each(|took| responses.push(*took));
        }
        Self::over(&responses, window, busy)
    }

    fn over(responses: &Samples, window: &Window, busy: f64) -> Self {
        let (from, until, _) = window.seconds();
        let ms = |share| {
            responses
                .percentile(share)
                .map_or(f64::NAN, |seconds| seconds * 1e3)
        };
        Self {
            throughput: responses.values().len() as f64 / (until - from),
            p50_ms: ms(0.5),
            p95_ms: ms(0.95),
            busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_what_comes_in_the_window_and_ends_in_time_counts() {
        let window = Window {
            length: Duration::from_secs(4),
            warm_up: Duration::from_secs(1),
            cool_down: Duration::from_secs(1),
        };
        let answered = |due_s, ended_s| Answered {
            node: 0,
            due_s,
            sent_s: due_s,
            ended_s,
            computed_s: 0.3,
        };
        let all = [
            answered(0.5, 1.2),
            answered(1.0, 1.5),
            answered(2.0, 2.25),
            answered(2.5, 4.5),
            answered(3.5, 3.75),
        ];
        let figures = Figures::live(&all, &window, 2, 0.05);
        assert_eq!(figures.throughput, 1.0);
        assert_eq!((figures.p50_ms, figures.p95_ms), (250.0, 500.0));
        // Four ended after the warm-up and before the end.
        let busy = 4.0 * (0.3 + 0.05) / (3.0 * 2.0);
        assert!((figures.busy - busy).abs() < 1e-9, "{}", figures.busy);
    }
}
