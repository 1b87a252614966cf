//! What a batch of requests has of each budget, and what is left of it.

use crate::exports::karman::policy::selector::{Served, Slo};

/// Money, requests that may be late, joules.
pub(crate) const BUDGETS: usize = 3;
/// Of a limit on the 95th percentile, one request in so many may be late.
const ONE_LATE_IN: u64 = 20;

/// One number for each budget.
pub(crate) type Each = [f64; BUDGETS];

/// The budgets of a batch.
pub(crate) struct Budgets {
    requests: u64,
    latency: Option<u64>,
    whole: [Option<f64>; BUDGETS],
    /// Of this batch.
    pub(crate) spent: Each,
    pub(crate) answered: u64,
    /// What is expected of calls that run.
    pub(crate) under_way: Each,
}

impl Budgets {
    pub(crate) fn new(slo: &Slo) -> Self {
        let late = slo.latency_p95.map(|_| (slo.requests / ONE_LATE_IN) as f64);
        Self {
            requests: slo.requests.max(1),
            latency: slo.latency_p95,
            whole: [slo.cost, late, slo.energy],
            spent: [0.0; BUDGETS],
            answered: 0,
            under_way: [0.0; BUDGETS],
        }
    }

    /// Requests of this batch that are not answered.
    pub(crate) fn remaining(&self) -> f64 {
        (self.requests - self.answered) as f64
    }

    /// What is left of a budget; nothing where there is none.
    pub(crate) fn left(&self, budget: usize) -> Option<f64> {
        self.whole[budget].map(|whole| whole - self.spent[budget] - self.under_way[budget])
    }

    /// What one request may take of a budget if all are alike, by which what is taken is measured. A budget of nothing has a scale
    /// too, so small that whatever takes of it is dear.
    pub(crate) fn scale(&self, budget: usize) -> f64 {
        let whole = self.whole[budget].unwrap_or(1.0);
        (whole / self.requests as f64).max(1e-12)
    }

    /// Takes in a request.
    pub(crate) fn enter(&mut self, served: &Served) {
        for call in &served.calls {
            self.spent[0] += call.cost;
            self.spent[2] += call.energy.unwrap_or_default();
        }
        let late = self.latency.is_some_and(|limit| served.latency > limit);
        self.spent[1] += f64::from(u8::from(late));
        self.answered += 1;
        if self.answered == self.requests {
            self.answered = 0;
            self.spent = [0.0; BUDGETS];
        }
    }
}
