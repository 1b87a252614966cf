//! What a run with `[privacy]` keeps beside the rest: who is drawn or chosen, what was given away, and where noise comes from.

use super::roster::Roster;
use crate::privacy::{
    Central, CentralError, ClipError, Clipped, ClippedSum, Participants, Rate, Released, Spent,
};
use crate::select::Candidate;
use crate::{ClientId, Run};
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use karman_types::{Digest, NodeId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Part of the checkpoint. A round that is made again after a restart draws the same noise: nobody has seen the first, since a version
/// goes out only when its checkpoint is durable.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Private {
    central: Central,
    rate: Option<Rate>,
    /// Whoever knows it takes the noise away again.
    noise: Secret,
    /// Whoever knows it knows who was drawn.
    draws: Secret,
}

/// What a generator starts from. It goes to the disk, and into no log.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Private {
    /// Before the first round; nothing for a run that is not private.
    pub(super) fn of(run: &Run, entropy: [u8; 32]) -> Result<Option<Self>, CentralError> {
        let Some(privacy) = &run.privacy else {
            return Ok(None);
        };
        let mut seeds = ChaCha20Rng::from_seed(entropy);
        let (mut noise, mut draws) = ([0; 32], [0; 32]);
        seeds.fill_bytes(&mut noise);
        seeds.fill_bytes(&mut draws);
        Ok(Some(Self {
            central: privacy.central(run)?,
            rate: privacy.rate,
            noise: Secret(noise),
            draws: Secret(draws),
        }))
    }

    /// Whether chance alone says who takes part.
    pub(super) const fn is_drawn(&self) -> bool {
        self.rate.is_some()
    }

    /// Those who are drawn for a round, of all that ever came.
    pub(super) fn drawn(&self, roster: &Roster, round: u64) -> Vec<ClientId> {
        let participants = self.participants(roster, round);
        let is_drawn = |client: &&ClientId| participants.nodes().binary_search(&node(**client)).is_ok();
        roster.keys().filter(is_drawn).copied().collect()
    }

    /// How clients are told apart has no influence on the account of a round whose participants were chosen.
    fn participants(&self, roster: &Roster, round: u64) -> Participants {
        let Some(rate) = self.rate else {
            return Participants::chosen(Vec::new());
        };
        let population: Vec<NodeId> = roster.keys().map(|client| node(*client)).collect();
        Participants::poisson(&population, rate, &self.draws.0, round)
    }

    /// What will have been given away after one more round.
    pub(super) fn after(&self, roster: &Roster, round: u64) -> Result<Spent, CentralError> {
        self.central.spent_after(&self.participants(roster, round))
    }

    pub(super) fn clip(&self, update: &[f32]) -> Result<Clipped, ClipError> {
        self.central.bound().clip(update)
    }

    /// The mean of a round, with noise.
    pub(super) fn release(
        &mut self,
        sum: ClippedSum,
        roster: &Roster,
        round: u64,
    ) -> Result<Released, CentralError> {
        let participants = self.participants(roster, round);
        let mut entropy = [0; 32];
        let mut random = ChaCha20Rng::from_seed(self.noise.0);
        random.set_stream(round);
        random.fill_bytes(&mut entropy);
        self.central.release(sum, &participants, entropy)
    }

    pub(super) fn spent(&self) -> Option<Spent> {
        self.central.spent().ok()
    }
}

/// Chooses so many of the candidates, those with the least keys of the round. Each has a key of its own: one client more or less displaces
/// one other at most, as the account has it.
pub(super) fn choose(seed: u64, round: u64, candidates: &[Candidate], count: usize) -> Vec<ClientId> {
    let mut clients: Vec<ClientId> = candidates.iter().map(|candidate| candidate.client).collect();
    clients.sort_by_cached_key(|client| key("karman cohort", seed, round, *client));
    clients.truncate(count);
    clients
}

/// What a client's training goes by in a round. No other client has a part in it: one that is there or not would else change what all
/// others send.
pub(super) fn training_seed(seed: u64, round: u64, client: ClientId) -> u64 {
    let key = key("karman training", seed, round, client);
    key.as_bytes()
        .iter()
        .take(8)
        .fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// What chance of a purpose a client has in a round of the run with this seed.
fn key(purpose: &str, seed: u64, round: u64, client: ClientId) -> Digest {
    let numbers = [seed, round, client.0].map(u64::to_le_bytes);
    Digest::of(&[purpose.as_bytes(), numbers.as_flattened()].concat())
}

/// A client as the sampler knows it.
fn node(client: ClientId) -> NodeId {
    NodeId::of_key(&client.0.to_le_bytes())
}
