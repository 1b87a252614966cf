use super::{Candidate, Selection, best};
use crate::ClientId;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Power of choice (Cho et al. 2022), in the form that costs no extra round: `candidates` are drawn by their share of the
/// samples, and those with the largest loss at their last training are chosen; who has not trained yet comes first.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PowerOfChoice {
    /// How many are drawn, at least as many as are chosen. Default 30.
    pub candidates: usize,
}

impl Default for PowerOfChoice {
    fn default() -> Self {
        Self { candidates: 30 }
    }
}

impl Selection for PowerOfChoice {
    fn name(&self) -> &str {
        "power-of-choice"
    }

    fn choose(&mut self, candidates: &[Candidate], count: usize, _: u64, random: &mut Rng) -> Vec<ClientId> {
        // Without replacement in proportion to the samples: the largest u^(1/samples) (Efraimidis and Spirakis 2006).
        let ticket =
            |candidate: &Candidate, random: &mut Rng| random.f64().ln() / candidate.samples.max(1) as f64;
        let mut drawn: Vec<(f64, &Candidate)> = candidates
            .iter()
            .map(|candidate| (ticket(candidate, random), candidate))
            .collect();
        drawn.sort_by(|a, b| b.0.total_cmp(&a.0));
        drawn.truncate(self.candidates.max(count));
        let scored = drawn
            .iter()
            .map(|(_, it)| (it.loss.unwrap_or(f64::INFINITY), it.client));
        best(scored.collect(), count, random)
    }
}
