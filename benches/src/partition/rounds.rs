//! Round after round: the link takes its next rate, then every contender makes a request.

use super::contender::{Contender, Who};
use super::continuum::{Access, Continuum};
use super::hindsight::Ahead;
use anyhow::Result;
use fastrand::Rng;
use karman_node::inference::InferResponse;
use serde::Serialize;

/// One request.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Request {
    /// At most the time after which it counts as unfinished.
    pub(super) took_ms: f64,
    /// Of the model, on each tier.
    pub(super) compute_ms: [f64; 3],
    /// By each tier, to others.
    pub(super) sent_ms: [f64; 3],
    /// What the edge sent to others.
    sent_bytes: u64,
}

/// The requests of one contender.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Taken {
    pub(super) requests: Vec<Request>,
    /// Requests that were late.
    pub(super) unfinished: usize,
    /// Requests that somebody had to take over.
    pub(super) passed_on: usize,
}

impl Taken {
    /// A sum over its requests.
    pub(super) fn sum(&self, of: impl Fn(&Request) -> f64) -> f64 {
        self.requests.iter().map(of).sum()
    }

    pub(super) fn latencies_ms(&self) -> Vec<f64> {
        self.requests.iter().map(|request| request.took_ms).collect()
    }
}

/// One pass.
pub(super) struct Rounds<'a> {
    continuum: &'a Continuum,
    ahead: &'a Ahead,
    contenders: &'a [Contender],
    rng: Rng,
    taken: Vec<Taken>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(
        continuum: &'a Continuum,
        ahead: &'a Ahead,
        contenders: &'a [Contender],
        rng: Rng,
    ) -> Self {
        Self {
            continuum,
            ahead,
            contenders,
            rng,
            taken: vec![Taken::default(); contenders.len()],
        }
    }

    /// What was so far does not count.
    pub(super) fn forget(&mut self) {
        self.taken.fill(Taken::default());
    }

    pub(super) fn taken(self) -> Vec<Taken> {
        self.taken
    }

    pub(super) async fn play(&mut self, rates: &[Access]) -> Result<()> {
        let mut order: Vec<usize> = (0..self.contenders.len()).collect();
        for rate in rates {
            self.continuum.set(*rate).await?;
            for oracle in self
                .contenders
                .iter()
                .filter(|contender| contender.who == Who::Oracle)
            {
                self.continuum
                    .state(&oracle.name, &self.ahead.links(*rate))
                    .await?;
            }
            self.rng.shuffle(&mut order);
            for at in &order {
                let response = self.continuum.run(&self.contenders[*at].name).await?;
                self.count(*at, &response);
            }
        }
        Ok(())
    }

    fn count(&mut self, at: usize, response: &InferResponse) {
        let taken = &mut self.taken[at];
        let took_ms = response.parameters.took_us.unwrap_or(u64::MAX) as f64 / 1e3;
        let most = self.ahead.timeout_ms();
        taken.unfinished += usize::from(took_ms > most);
        let legs = &response.parameters.legs;
        taken.passed_on += usize::from(legs.iter().any(|leg| leg.failed.is_some()));
        let mut request = Request {
            took_ms: took_ms.min(most),
            compute_ms: [0.0; 3],
            sent_ms: [0.0; 3],
            sent_bytes: 0,
        };
        let mut before = 0;
        for leg in legs {
            let Some(tier) = self.continuum.tier_of(leg.node) else {
                continue;
            };
            request.compute_ms[tier] += leg.compute_us as f64 / 1e3;
            request.sent_ms[before] += leg.transfer_us as f64 / 1e3;
            if leg.failed.is_some() {
                continue;
            }
            if before == 0 && tier != 0 {
                request.sent_bytes = leg.bytes_in;
            }
            before = tier;
        }
        taken.requests.push(request);
    }
}
