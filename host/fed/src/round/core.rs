use super::evaluate::Evaluating;
use super::local;
use super::open::Assignment;
use super::private::Private;
use super::roster::Roster;
use super::{AssignmentId, Failure, Status, SwarmReport};
use crate::lora::Adapting;
use crate::{ClientId, Instant, Run, Windows};
use karman_tensor::encode::Measured;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state that is written down as it is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Core {
    pub(crate) now: Instant,
    /// Where the random generator stands.
    pub(crate) random: u64,
    pub(crate) version: u64,
    #[serde(with = "crate::floats")]
    pub(crate) model: Arc<[f32]>,
    pub(crate) phase: Phase,
    /// Counted from 1; failed ones count.
    pub(crate) round: u64,
    pub(crate) roster: Roster,
    /// When clients are in view, as far as that is planned.
    pub(crate) windows: Windows,
    pub(crate) assignments: BTreeMap<AssignmentId, Assignment>,
    pub(crate) next_assignment: u64,
    pub(crate) tickets: u64,
    pub(crate) failed_rounds: u32,
    /// What happened in the round so far.
    pub(crate) tally: Tally,
    pub(crate) evaluating: Option<Evaluating>,
    /// The accuracy that clients reported last.
    pub(crate) accuracy: Option<f64>,
    /// Nothing where the run is not private.
    pub(crate) privacy: Option<Private>,
    /// Nothing where clients train whole models.
    pub(crate) low_rank: Option<Adapting>,
    /// What encodings do on this machine.
    pub(crate) encodings: Vec<Measured>,
}

impl Core {
    /// How far the run is that has gathered so many updates for its next version.
    pub(crate) fn status(&self, run: &Run, gathered: usize) -> Status {
        Status {
            version: self.version,
            rounds: run.rounds,
            here: self.roster.values().filter(|member| member.here).count(),
            training: self.assignments.len(),
            gathered,
            accuracy: self.accuracy,
            spent: match &self.privacy {
                Some(private) => private.spent(),
                None => local::spent(run, &self.roster),
            },
            ended: matches!(self.phase, Phase::Ended(_)),
            failure: match &self.phase {
                Phase::Ending(failure) | Phase::Ended(failure) => failure.clone(),
                _ => None,
            },
        }
    }
}

/// What a run is doing.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Phase {
    /// It waits for clients.
    Waiting,
    /// Clients train since then: since their orders went out, or nothing while these wait for the disk.
    Open(Option<Instant>),
    /// The last version is made, and clients judge it.
    Judging,
    /// It will be over when the last checkpoint is durable.
    Ending(Option<Failure>),
    /// It is over.
    Ended(Option<Failure>),
}

/// What happened in a round.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Tally {
    pub(crate) lost: Vec<ClientId>,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    /// Where its updates went from client to client.
    pub(crate) swarm: Option<SwarmReport>,
    /// Where clients train adapters, the greatest rank by which a matrix has changed.
    pub(crate) rank: Option<u32>,
}
