use super::{Right, RightError, UnixTime};
use karman_types::{ErrorKind, NodeId};

/// A key, invitation, membership or revocation that does not hold.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// Not signed for this mesh.
    #[error(
        "this is not signed for the mesh {mesh}; ask one of its issuers for an invitation (`karman mesh invite`)"
    )]
    Foreign {
        /// The short form of the mesh's key.
        mesh: String,
    },
    /// Its time is over.
    #[error(
        "it was good until {not_after} and it is {now}; renew the membership at an issuer, or ask for a new invitation"
    )]
    Expired {
        /// The last second it was good for.
        not_after: UnixTime,
        /// The time it was judged by.
        now: UnixTime,
    },
    /// Its time is over by the newest time that who judges it has seen, and not by the clock there.
    #[error(
        "it was good until {not_after}; the node that judges it has seen {seen}, and its clock shows {clock}; set that clock, or \
         where it is right, stop that node and run `karman node reset-clock` there"
    )]
    ClockBehind {
        /// The last second it was good for.
        not_after: UnixTime,
        /// The newest time seen, by which it was judged.
        seen: UnixTime,
        /// What the clock showed.
        clock: UnixTime,
    },
    /// The mesh has excluded the node, or the issuer that signed for it.
    #[error(
        "node {node} is revoked; if it is to come back, give it a new key (`keys/node.key`) and invite it again, and \
         let the members of a revoked issuer join anew"
    )]
    Revoked {
        /// The revoked one.
        node: NodeId,
    },
    /// Shown by another node than the one it is bound to.
    #[error("it belongs to node {member} and node {presenter} shows it; use it on the node it was made for")]
    WrongKey {
        /// Whose it is.
        member: NodeId,
        /// Who shows it.
        presenter: NodeId,
    },
    /// Not built as we build it.
    #[error("{field}: {why}")]
    Malformed {
        /// Which part.
        field: &'static str,
        /// What is wrong with it and what to do.
        why: String,
    },
    /// Longer than a node reads or makes.
    #[error("{field} goes beyond the limit of {limit}; use fewer or shorter values")]
    TooLong {
        /// Which part.
        field: &'static str,
        /// The most, in bytes, characters or entries.
        limit: usize,
    },
    /// A text with a checksum that does not fit.
    #[error("the text has a typing error or is cut short; copy all of it again, from `{prefix}` to its end")]
    Typo {
        /// How it begins.
        prefix: &'static str,
    },
    /// The signer has no right to sign this.
    #[error(
        "node {node} does not hold `{right}`; invite it anew with `--right {right}`, or ask another issuer"
    )]
    NotAnIssuer {
        /// The signer.
        node: NodeId,
        /// What it lacks.
        right: Right,
    },
    /// An issuer gives no more than it has.
    #[error("an issuer cannot give `{asked}`: {why}; ask for less, or use the root key")]
    BeyondIssuer {
        /// The right, or the last second asked for.
        asked: String,
        /// Why not.
        why: &'static str,
    },
    /// The invitation was redeemed before. Returned by those who remember the ids of redeemed invitations.
    #[error("it was used before; each invitation is for one node, ask for a new one (`karman mesh invite`)")]
    Used,
    /// The invitation was taken back before anybody had used it.
    #[error("it was withdrawn; ask for a new invitation (`karman mesh invite`)")]
    Withdrawn,
    /// Signed by a root key that the mesh has replaced, longer ago than that key holds.
    #[error(
        "it is signed by a root key that mesh {mesh} has replaced, and that held until {until}; ask for a new invitation \
         (`karman mesh invite`)"
    )]
    Replaced {
        /// The short form of the mesh's key by now.
        mesh: String,
        /// The last second that the old key held.
        until: UnixTime,
    },
    /// A key that is said to be the mesh's new root key, and that the old one has not signed.
    #[error(
        "{claims} is said to be the new root key of mesh {mesh}, whose own key has not signed that; believe nobody who says so"
    )]
    FalseRoot {
        /// The short form of the key that would be replaced.
        mesh: String,
        /// The short form of the key that is claimed to follow.
        claims: String,
    },
    /// A second key that the same root key has signed as its successor.
    #[error(
        "{claims} is said to follow the root key {mesh}, which another key has followed before: somebody else has that key; \
         make a mesh anew (`karman mesh init`)"
    )]
    ForkedRoot {
        /// The short form of the key that was replaced.
        mesh: String,
        /// The short form of the second key.
        claims: String,
    },
    /// From before what the same node knew already: sent again, or its disk was set back.
    #[error(
        "{field}: it has {shown} entries and the same node knew {had} before; start that node from its own state, not from \
         a copy of it"
    )]
    Old {
        /// Which list.
        field: &'static str,
        /// What was shown.
        shown: usize,
        /// What it knew.
        had: usize,
    },
    /// Another passphrase than the one the backup was made with.
    #[error("the passphrase does not open this backup; try again, it was chosen at `karman mesh init`")]
    Passphrase,
    /// A passphrase that is soon guessed.
    #[error("the passphrase has fewer than {least} characters; choose a longer one")]
    WeakPassphrase {
        /// The fewest.
        least: usize,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes yet; try again when it has started")]
    NoRandomness,
    /// A text that is no right.
    #[error(transparent)]
    Right(#[from] RightError),
}

impl MembershipError {
    /// Which way it failed, for exit codes and HTTP answers.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Foreign { .. }
            | Self::Expired { .. }
            | Self::ClockBehind { .. }
            | Self::Revoked { .. }
            | Self::WrongKey { .. }
            | Self::NotAnIssuer { .. }
            | Self::BeyondIssuer { .. }
            | Self::Used
            | Self::Withdrawn
            | Self::Old { .. }
            | Self::Replaced { .. }
            | Self::FalseRoot { .. }
            | Self::ForkedRoot { .. }
            | Self::Passphrase => ErrorKind::Denied,
            Self::Malformed { .. } | Self::Typo { .. } | Self::WeakPassphrase { .. } | Self::Right(_) => {
                ErrorKind::Invalid
            }
            Self::TooLong { .. } => ErrorKind::Limit,
            Self::NoRandomness => ErrorKind::Unavailable,
        }
    }

    pub(super) fn malformed(field: &'static str, why: impl Into<String>) -> Self {
        Self::Malformed {
            field,
            why: why.into(),
        }
    }
}
