use super::{Candidate, Selection};
use crate::ClientId;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Each candidate with the same chance.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Random {}

impl Selection for Random {
    fn name(&self) -> &str {
        "random"
    }

    fn choose(&mut self, candidates: &[Candidate], count: usize, _: u64, random: &mut Rng) -> Vec<ClientId> {
        random.choose_multiple(candidates.iter().map(|candidate| candidate.client), count)
    }
}
