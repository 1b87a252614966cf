//! Who takes part: one policy a file, behind one trait.
//!
//! A round first asks who can ([`Eligibility`]: state of charge, contact windows), then the policy whom it wants. Policies see what
//! the server has measured ([`Candidate`]); what clients declare is bounded before it counts.
//!
//! Under any policy but [`Random`] the members of a round are no random sample: privacy accounting must not claim amplification for it.

mod bandit;
mod eligibility;
mod energy;
mod fastest;
mod oort;
mod power_of_choice;
mod random;
mod times;

#[cfg(test)]
mod tests;

pub use bandit::Bandit;
pub(crate) use eligibility::check_view;
pub use eligibility::{Eligibility, NoTime, NotEligible, Workload};
pub use energy::Energy;
pub use fastest::Fastest;
pub use oort::Oort;
pub use power_of_choice::PowerOfChoice;
pub use random::Random;

use crate::{ClientId, StateError};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A client that could take part in a round.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Candidate {
    /// Who.
    pub client: ClientId,
    /// Samples, as declared.
    pub samples: u64,
    /// Entropy of its labels over the greatest possible, as declared.
    pub label_entropy: Option<f64>,
    /// State of charge, 0 to 1; nothing on mains.
    pub charge: Option<f64>,
    /// The mean loss of its last training.
    pub loss: Option<f64>,
    /// What a round with it takes in seconds (send, train, receive): a moving mean of what was measured.
    pub seconds: Option<f64>,
    /// Rounds in which it was chosen.
    pub chosen: u64,
    /// The round in which it was last chosen, counted from 1.
    pub last_round: Option<u64>,
}

/// What came of choosing a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Who.
    pub client: ClientId,
    /// Seconds from the order to the update; nothing when none came.
    pub seconds: Option<f64>,
    /// How well its update agreed with the aggregate, 0 to 1: half of their cosine plus one half; nothing when none came.
    pub contribution: Option<f64>,
}

/// A policy that chooses the clients of a round.
pub trait Selection: fmt::Debug + Send {
    /// Its name, as the run's description writes it.
    fn name(&self) -> &str;

    /// Chooses at most `count` of the candidates, which come in the order of clients. `round` counts from 1.
    fn choose(
        &mut self,
        candidates: &[Candidate],
        count: usize,
        round: u64,
        random: &mut Rng,
    ) -> Vec<ClientId>;

    /// Takes in what came of a round; `all` are the clients of the run as they are now.
    fn learn(&mut self, _outcomes: &[Outcome], _all: &[Candidate]) {}

    /// Whether [`Outcome::contribution`] is of use to it: it costs a pass over each update.
    fn wants_contributions(&self) -> bool {
        false
    }

    /// What it keeps from round to round.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Goes on from what [`Selection::save`] gave.
    ///
    /// # Errors
    /// When the bytes are not such a state.
    fn load(&mut self, _state: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
}

/// The selection of a run: `[selection]` with its `name` and its own keys.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is the struct of its name")]
pub enum SelectionChoice {
    Random(Random),
    Fastest(Fastest),
    Oort(Oort),
    PowerOfChoice(PowerOfChoice),
    Bandit(Bandit),
    Energy(Energy),
}

impl Default for SelectionChoice {
    fn default() -> Self {
        Self::Random(Random {})
    }
}

impl SelectionChoice {
    /// The policy, before its first round.
    pub fn build(&self) -> Box<dyn Selection> {
        match self {
            Self::Random(it) => Box::new(*it),
            Self::Fastest(it) => Box::new(*it),
            Self::Oort(it) => Box::new(it.clone()),
            Self::PowerOfChoice(it) => Box::new(*it),
            Self::Bandit(it) => Box::new(it.clone()),
            Self::Energy(it) => Box::new(*it),
        }
    }

    /// The first of its numbers that cannot be, with its bounds.
    pub(crate) fn check(&self) -> Result<(), (&'static str, f64, f64, f64)> {
        let share = |name, value: f64| (name, value, 0.0, 1.0);
        let numbers = match self {
            Self::Random(_) | Self::Fastest(_) => Vec::new(),
            Self::Oort(it) => vec![
                share("selection.explore", it.explore),
                ("selection.penalty", it.penalty, 0.0, 100.0),
                ("selection.preferred", it.preferred, 0.0, 1.0),
            ],
            Self::PowerOfChoice(it) => vec![("selection.candidates", it.candidates as f64, 1.0, 1e9)],
            Self::Bandit(it) => vec![
                share("selection.discount", it.discount),
                ("selection.explore", it.explore, 0.0, 100.0),
                ("selection.returns", it.returns, 0.0, 10.0),
                share("selection.caution", it.caution),
            ],
            Self::Energy(it) => vec![share("selection.reserve", it.reserve)],
        };
        let bad = |(_, value, least, most): &(_, f64, f64, f64)| !(*least..=*most).contains(value);
        numbers.into_iter().find(bad).map_or(Ok(()), Err)
    }
}

/// The `count` candidates with the highest scores; those with equal scores in random order.
fn best(scored: Vec<(f64, ClientId)>, count: usize, random: &mut Rng) -> Vec<ClientId> {
    let mut scored = scored;
    random.shuffle(&mut scored);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(count).map(|(_, client)| client).collect()
}

/// The value below which this share of the values lies; nothing of none.
fn quantile(values: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share).round() as usize).copied()
}
