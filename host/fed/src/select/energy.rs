use super::{Candidate, Selection};
use crate::ClientId;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// By chance, in proportion to the charge above a reserve: batteries empty evenly, and a client on mains counts as full. Who is at or below the
/// reserve is not chosen.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Energy {
    /// The charge that is left alone, 0 to 1. Default 0.2.
    pub reserve: f64,
}

impl Default for Energy {
    fn default() -> Self {
        Self { reserve: 0.2 }
    }
}

impl Selection for Energy {
    fn name(&self) -> &str {
        "energy"
    }

    fn choose(&mut self, candidates: &[Candidate], count: usize, _: u64, random: &mut Rng) -> Vec<ClientId> {
        let spare = |candidate: &Candidate| candidate.charge.unwrap_or(1.0) - self.reserve;
        let mut drawn: Vec<(f64, ClientId)> = candidates
            .iter()
            .filter(|candidate| spare(candidate) > 0.0)
            .map(|candidate| (random.f64().ln() / spare(candidate), candidate.client))
            .collect();
        drawn.sort_by(|a, b| b.0.total_cmp(&a.0));
        drawn.into_iter().take(count).map(|(_, client)| client).collect()
    }
}
