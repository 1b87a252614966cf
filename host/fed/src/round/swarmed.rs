//! What clients come to that spread their updates among each other.

use super::event::Part;
use super::{AssignmentId, Coordinator, Loss, Refusal, RoundFailure};
use crate::ClientId;
use crate::strategy::{Facts, WeightPolicy};
use crate::swarm::SwarmSettings;
use karman_types::{Digest, serde_list};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// What a client has come to in a round without a server in the middle.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Reached {
    /// The digest of the mean: of its numbers as they lie in memory, little-endian.
    pub mean: Digest,
    /// The updates that it is of, by their pseudonyms, in the order in which everybody has them.
    #[serde(deserialize_with = "updates")]
    pub updates: Vec<Digest>,
}

/// No more of them than a round has clients.
fn updates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Digest>, D::Error> {
    serde_list::at_most(deserializer, SwarmSettings::MOST_CLIENTS)
}

/// Clients that have come to different means, and no mean that enough of them have come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "at most {most} of {clients} clients have come to the same mean; more than half of them are needed, and two at least"
)]
pub struct Disagreement {
    /// How many were in the round to its end.
    pub clients: usize,
    /// How many of them to the same.
    pub most: usize,
}

impl Reached {
    /// What more than half of the `clients` have come to that were in the round to its end, and who they are. Who says nothing counts
    /// among them, or a few could say what they like while the others are kept from saying anything. What one alone says is its word.
    ///
    /// # Errors
    /// There is no such mean.
    pub fn agreed(
        reached: &BTreeMap<ClientId, Self>,
        clients: usize,
    ) -> Result<(Self, Vec<ClientId>), Disagreement> {
        let mut by_mean: BTreeMap<&Self, Vec<ClientId>> = BTreeMap::new();
        for (client, what) in reached {
            by_mean.entry(what).or_default().push(*client);
        }
        match by_mean.into_iter().max_by_key(|(_, who)| who.len()) {
            Some((what, who)) if who.len() >= 2 && 2 * who.len() > clients => Ok((what.clone(), who)),
            other => Err(Disagreement {
                clients,
                most: other.map_or(0, |(_, who)| who.len()),
            }),
        }
    }
}

/// The mean of a round whose updates went from client to client.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Swarmed {
    /// Whose updates are in it, and what each weighs there.
    pub parts: Vec<(Part, u64)>,
    /// Whose are not.
    pub absent: Vec<Absent>,
    /// The mean that its clients agree on.
    #[serde(with = "crate::floats")]
    pub mean: Vec<f32>,
    /// Bytes that came for it to whoever drives the run.
    pub bytes: u64,
    /// How it went.
    pub report: SwarmReport,
}

impl Part {
    /// That its update weighs among the others what its samples do: the weight goes with the update, the samples are declared in the open.
    ///
    /// # Errors
    /// It weighs something else.
    pub fn check_weight(&self, weights: WeightPolicy, weight: u64) -> Result<(), Refusal> {
        let (samples, due) = (self.samples, u64::from(weights.in_swarm(self.samples)));
        match weight == due {
            true => Ok(()),
            false => Err(Refusal::Weight { weight, samples, due }),
        }
    }
}

/// A client whose update has not got round.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Absent {
    /// Its order.
    pub assignment: AssignmentId,
    /// Why.
    pub why: String,
}

/// A client that was in a round and has not come to its mean.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Apart {
    /// Who.
    pub client: ClientId,
    /// Why.
    pub why: String,
}

/// How a round without a server in the middle went.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SwarmReport {
    /// The clients that have come to the mean, in their order.
    pub complete: Vec<ClientId>,
    /// Those that were in the round and have not, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart: Vec<Apart>,
    /// Those that gave others what is no piece of the round, by the word of more than half of their neighbours, in their order. They are asked
    /// nothing more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub false_pieces: Vec<ClientId>,
    /// Whether every client had its cover before they went on by themselves. If not, neighbours may have seen whose update is whose.
    pub covered: bool,
    /// Pieces of their own that clients sent outside of any cover.
    pub unprotected: u64,
    /// Milliseconds of spray and warm-up.
    pub warm_up_ms: u64,
    /// Milliseconds until every client had what it could get, spray and warm-up included.
    pub ms: u64,
}

impl SwarmReport {
    /// The share of the time that spray and warm-up took, 0 to 1.
    pub fn warm_up_share(&self) -> f64 {
        self.warm_up_ms as f64 / self.ms.max(1) as f64
    }
}

impl Coordinator {
    /// Takes in the mean of a round's updates. It cannot be taken apart: an update is in it also where its client has left since, or was found
    /// out to give others false pieces.
    pub(super) fn swarmed(&mut self, swarmed: Swarmed) {
        self.core.tally.bytes_up += swarmed.bytes;
        let parts = swarmed.parts.iter().map(|(part, _)| part.assignment);
        let absent = swarmed.absent.iter().map(|one| one.assignment);
        let is_awaited = |id: AssignmentId| self.core.assignments.contains_key(&id);
        if self.run.swarm.is_none() || !parts.chain(absent).any(is_awaited) {
            // It is of a round that is over.
            return;
        }
        let found_out = swarmed.report.false_pieces.clone();
        let taken = self.take_mean(swarmed);
        for client in found_out {
            self.shut_out(client, Refusal::FalsePieces);
        }
        if let Err(why) = taken {
            self.fail_round(RoundFailure::NoMean(why));
        }
    }

    fn take_mean(&mut self, swarmed: Swarmed) -> Result<(), String> {
        let Swarmed {
            parts,
            absent,
            mean,
            report,
            ..
        } = swarmed;
        for (part, weight) in &parts {
            part.check(&self.run.limits)
                .and_then(|()| part.check_weight(self.run.weights, *weight))
                .map_err(|refusal| format!("{} is in it, and {refusal}", part.client))?;
        }
        let length = self.layout.length();
        if mean.len() != length {
            return Err(format!("it has {} numbers instead of {length}", mean.len()));
        }
        let most = self.run.limits.magnitude;
        if let Some(place) = mean.iter().position(|number| !within(*number, most)) {
            let number = mean[place];
            return Err(format!(
                "number {place} of it is {number}, the limit `magnitude` is {most}"
            ));
        }
        let facts = parts.iter().map(|(part, weight)| Facts {
            client: part.client,
            assignment: part.assignment,
            samples: part.samples,
            weight: *weight,
            steps: part.steps,
            loss: part.loss,
            staleness: 0,
        });
        let facts: Vec<Facts> = facts.collect();
        for (part, _) in &parts {
            self.core.tally.lost.retain(|client| *client != part.client);
            self.answered(
                part.client,
                part.assignment,
                part.steps,
                part.loss,
                Some(part.took),
            );
        }
        let mut why: BTreeMap<AssignmentId, String> =
            absent.into_iter().map(|one| (one.assignment, one.why)).collect();
        let rest: Vec<AssignmentId> = self.core.assignments.keys().copied().collect();
        for id in rest {
            let unheard = || "nobody has heard of its update".to_owned();
            let why = why.remove(&id).unwrap_or_else(unheard);
            self.lose(id, Loss::LeftOut(why));
        }
        self.core.tally.swarm = Some(report);
        self.gathering.add_mean(facts, mean);
        Ok(())
    }
}

/// Rounding lifts the mean of numbers no further than the largest of them.
fn within(number: f32, most: f32) -> bool {
    number.is_finite() && number.abs() <= most
}
