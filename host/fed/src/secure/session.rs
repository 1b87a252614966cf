use super::graph::{Graph, threshold};
use super::ring::Ring;
use super::roster::{Member, Members, Position, Roster, RosterError};
use karman_types::{Digest, NodeId};
use serde::{Deserialize, Serialize};

/// What everybody in a round agrees on before it begins. The coordinator announces it; a client looks at it and takes part or
/// does not.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// What the round is about, as a digest: a client makes its vector of nothing else. It goes into every key and every signature.
    /// What tells the round from any other are the numbers on its roster ([`Member::once`]).
    pub round: Digest,
    /// Who shares secrets with whom.
    pub graph: Graph,
    /// Draws the order of the ring. Announced before anybody answers.
    pub seed: Digest,
    /// Elements of a vector.
    pub length: usize,
    /// What they are summed in.
    pub ring: Ring,
    /// The fewest clients whose sum may become known; a client that is told of fewer leaves. At least two.
    pub least: usize,
}

/// A round's settings and its roster, checked, with the digest that every key and signature of the round is bound to.
#[derive(Clone, Debug)]
pub struct Session {
    settings: Settings,
    roster: Roster,
    digest: Digest,
}

/// Settings that make no round.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// The roster is none.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// A vector of no elements, or of more than fit.
    #[error("a vector has from 1 to {most} elements, not {0}", most = Session::LONGEST)]
    Length(usize),
    /// A sum of one is not secret; a sum of more than are invited never comes.
    #[error("the fewest clients of a sum are from 2 to the {invited} invited, not {least}")]
    Least {
        /// What was set.
        least: usize,
        /// How many are on the roster.
        invited: usize,
    },
    /// Nobody would have a neighbour.
    #[error("a ring on which nobody has a neighbour keeps no secret")]
    NoNeighbours,
}

impl Session {
    /// The longest vector: a key stream does not repeat before.
    pub const LONGEST: usize = 1 << 32;

    /// A round of these settings among these members.
    ///
    /// # Errors
    ///
    /// The settings make no round.
    pub fn new(settings: Settings, members: Vec<Member>) -> Result<Self, SettingsError> {
        let roster = Roster::new(members)?;
        if !(1..=Self::LONGEST).contains(&settings.length) {
            return Err(SettingsError::Length(settings.length));
        }
        if !(2..=roster.len()).contains(&settings.least) {
            return Err(SettingsError::Least {
                least: settings.least,
                invited: roster.len(),
            });
        }
        if settings.graph.degree(roster.len()) == 0 {
            return Err(SettingsError::NoNeighbours);
        }
        let digest = digest(&settings, &roster);
        Ok(Self {
            settings,
            roster,
            digest,
        })
    }

    /// What was agreed on.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Who is invited.
    pub const fn roster(&self) -> &Roster {
        &self.roster
    }

    /// What all keys and signatures are bound to.
    pub(crate) const fn digest(&self) -> &Digest {
        &self.digest
    }

    pub(crate) const fn members(&self) -> usize {
        self.roster.len()
    }

    pub(crate) fn node(&self, position: Position) -> NodeId {
        self.roster.node(position)
    }

    /// Who holds the secrets of one of the `members`, ascending.
    pub(crate) fn holders(&self, members: &Members, position: Position) -> Vec<Position> {
        self.settings
            .graph
            .holders(&self.settings.seed, members, position)
    }

    /// Who holds whose secrets.
    pub(crate) fn all_holders(&self, members: &Members) -> Vec<(Position, Vec<Position>)> {
        self.settings.graph.all_holders(&self.settings.seed, members)
    }

    /// How many holders it takes to know a secret when so many members have keys.
    pub(crate) fn threshold(&self, members: usize) -> usize {
        threshold(self.settings.graph.degree(members) + 1)
    }

    /// How few members may be in the sum: as many as was agreed on, and more than two thirds of all who are invited. Otherwise a coordinator
    /// could show each client the few that work for it, and whatever share of all these are would be enough.
    pub(crate) fn least(&self) -> usize {
        self.settings.least.max(threshold(self.roster.len()))
    }

    /// Bytes of a masked vector.
    pub(crate) const fn bytes(&self) -> usize {
        self.settings.length * self.settings.ring.width()
    }
}

fn digest(settings: &Settings, roster: &Roster) -> Digest {
    let mut text = b"karman secure sum 2".to_vec();
    text.extend_from_slice(settings.round.as_bytes());
    text.extend_from_slice(settings.seed.as_bytes());
    for number in [
        settings.graph.number(),
        settings.length,
        settings.ring.width(),
        settings.least,
        roster.len(),
    ] {
        text.extend_from_slice(&(number as u64).to_le_bytes());
    }
    for member in roster.members() {
        text.extend_from_slice(member.node.to_string().as_bytes());
        text.extend_from_slice(&member.key);
        text.extend_from_slice(&member.once);
    }
    Digest::of(&text)
}
