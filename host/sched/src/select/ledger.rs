use super::Served;
use super::plan::RESOURCES;
use karman_types::Slo;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a batch of requests has taken of its budgets, and what is left. The next batch begins with all of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Ledger {
    requests: u64,
    latency: Option<Duration>,
    budgets: [Option<f64>; RESOURCES],
    spent: [f64; RESOURCES],
    /// Calls of this batch, and how many of them are right by what is known of who served them.
    calls: u64,
    right: f64,
    /// Of this batch.
    answered: u64,
    /// Of all batches.
    clock: u64,
}

impl Ledger {
    pub(crate) fn new(slo: &Slo) -> Self {
        Self {
            requests: slo.requests,
            latency: slo.latency_p95,
            budgets: [
                slo.cost,
                slo.latency_p95.map(|_| slo.late_allowed() as f64),
                slo.energy,
            ],
            spent: [0.0; RESOURCES],
            calls: 0,
            right: 0.0,
            answered: 0,
            clock: 0,
        }
    }

    /// Whether it can be that of these limits.
    pub(crate) const fn is_of(&self, slo: &Slo) -> bool {
        self.requests == slo.requests && self.answered < self.requests
    }

    /// Takes in a request, so many of whose calls are right by what is known of who served them; true when a batch ends with it.
    pub(crate) fn enter(&mut self, served: &Served<'_>, right: f64) -> bool {
        let late = self.latency.is_some_and(|limit| served.latency > limit);
        for call in served.calls {
            self.spent[0] += call.cost;
            self.spent[2] += call.energy.unwrap_or_default();
        }
        self.spent[1] += f64::from(u8::from(late));
        self.calls = self.calls.saturating_add(served.calls.len() as u64);
        self.right += right;
        self.answered += 1;
        self.clock += 1;
        let ended = self.answered == self.requests;
        if ended {
            self.answered = 0;
            self.spent = [0.0; RESOURCES];
            (self.calls, self.right) = (0, 0.0);
        }
        ended
    }

    /// What is left of each budget; nothing where there is none. Below zero when it is overdrawn.
    pub(crate) fn left(&self) -> [Option<f64>; RESOURCES] {
        let mut left = self.budgets;
        for (left, spent) in left.iter_mut().zip(self.spent) {
            *left = left.map(|budget| budget - spent);
        }
        left
    }

    /// How many of so many calls to come have to be right for all of this batch to be this accurate.
    pub(crate) fn right_to_come(&self, accuracy: f64, calls: f64) -> f64 {
        accuracy * (self.calls as f64 + calls) - self.right
    }

    /// What was spent of each budget in this batch.
    pub(crate) const fn spent(&self) -> [f64; RESOURCES] {
        self.spent
    }

    /// Requests of this batch that are not answered, at least one.
    pub(crate) const fn remaining(&self) -> u64 {
        self.requests - self.answered
    }

    /// Requests answered since the start, over all batches.
    pub(crate) const fn clock(&self) -> u64 {
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::super::Call;
    use super::super::testing::millis;
    use super::*;

    #[test]
    fn the_next_batch_begins_with_the_whole_budget() {
        let slo = Slo {
            cost: Some(1.0),
            latency_p95: Some(millis(10.0)),
            ..Slo::over(20)
        };
        let mut ledger = Ledger::new(&slo);
        let call = Call {
            task: 0,
            candidate: 0,
            latency: millis(11.0),
            cost: 0.1,
            energy: None,
            right: None,
        };
        let served = Served {
            now: Duration::ZERO,
            queue: 0,
            latency: millis(11.0),
            calls: &[call, call],
        };
        assert!(!ledger.enter(&served, 1.9));
        assert!((ledger.right_to_come(0.9, 38.0) - 34.1).abs() < 1e-12);
        let left = ledger.left();
        assert!((left[0].unwrap() - 0.8).abs() < 1e-12 && left[1] == Some(0.0) && left[2].is_none());
        for n in 1..20 {
            assert_eq!(ledger.enter(&served, 1.9), n == 19);
        }
        assert!((ledger.right_to_come(0.9, 40.0) - 36.0).abs() < 1e-12);
        assert_eq!(
            (ledger.left(), ledger.remaining(), ledger.clock()),
            ([Some(1.0), Some(1.0), None], 20, 20)
        );
    }
}
