use super::{Candidate, Selection, best};
use crate::ClientId;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Those whose rounds take the least time; who was never measured comes first, so that everybody is measured once. Data of slow
/// clients are not learned from.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fastest {}

impl Selection for Fastest {
    fn name(&self) -> &str {
        "fastest"
    }

    fn choose(&mut self, candidates: &[Candidate], count: usize, _: u64, random: &mut Rng) -> Vec<ClientId> {
        // Who was chosen and has not answered yet is not known to be fast.
        let seconds = |candidate: &Candidate| match (candidate.seconds, candidate.chosen) {
            (Some(seconds), _) => seconds,
            (None, 0) => 0.0,
            (None, _) => f64::INFINITY,
        };
        let scored = candidates
            .iter()
            .map(|candidate| (-seconds(candidate), candidate.client));
        best(scored.collect(), count, random)
    }
}
