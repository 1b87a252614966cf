//! The invitations that were made on a machine: for what, until when, and what has become of them. Their words are kept nowhere.

use crate::membership::{Invitation, InvitationId, UnixTime};
use karman_store::{Mesh, Redeemed, Store, StoreError};
use karman_types::{NodeId, TaskError, Tier};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::time::Duration;

/// Names of the records begin so; the id of the invitation follows.
const RECORDS: &str = "invitations/";
/// For so long after its end an invitation is remembered.
const KEPT: Duration = Mesh::REDEEMED_KEPT;
/// Invitations that are remembered.
const MOST: usize = 10_000;
/// The shortest beginning of an id that stands for it.
const LEAST_OF_ID: usize = 4;

/// The invitations that a node's store knows of.
#[derive(Clone, Copy, Debug)]
pub struct Invitations<'a>(&'a Store);

/// An invitation as an operator sees it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct InvitationStatus {
    /// What tells it from others. Not its word, which lets a node in.
    pub id: String,
    /// Where the node is to stand.
    pub tier: Tier,
    /// When it was made.
    pub made: UnixTime,
    /// The last second that it can be used.
    pub expires: UnixTime,
    /// The one node that it is for. It needs no issuer to join, so nobody here learns whether it has.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub for_node: Option<NodeId>,
    /// What has become of it.
    pub state: InvitationState,
    /// The node that has used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<NodeId>,
}

/// The state of an invitation.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InvitationState {
    /// It can be used.
    Open,
    /// A node has used it.
    Used,
    /// It was withdrawn before a node had used it.
    Withdrawn,
    /// It was not used in time.
    Expired,
}

/// Why an invitation is not withdrawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithdrawError {
    /// None is remembered by this id, or it has fewer than four characters.
    #[error("no invitation that was made here is `{0}`")]
    Unknown(String),
    /// Several ids begin so.
    #[error("`{0}` is the beginning of several invitations")]
    Ambiguous(String),
    /// A node has joined by it.
    #[error("invitation {id} was used by node {node}")]
    Used {
        /// Which invitation.
        id: String,
        /// Who has used it.
        node: NodeId,
    },
    /// It holds the membership of one node, which asks nobody before it joins.
    #[error("invitation {id} is for node {node}, which joins by it without asking here")]
    ForNode {
        /// Which invitation.
        id: String,
        /// Whose it is.
        node: NodeId,
    },
    /// What the disk refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Deserialize, Serialize)]
struct Record {
    tier: Tier,
    made: UnixTime,
    expires: UnixTime,
    for_node: Option<NodeId>,
}

impl Record {
    fn is_over(&self, now: UnixTime) -> bool {
        self.expires.after(KEPT) < now
    }
}

impl<'a> Invitations<'a> {
    /// Those of this store.
    pub const fn of(store: &'a Store) -> Self {
        Self(store)
    }

    /// Remembers one that was made here now, before its word is told. Those that ended 30 days ago are forgotten.
    ///
    /// # Errors
    /// [`StoreError::Limit`] where 10,000 are remembered, else what the disk refused.
    pub fn remember(&self, invitation: &Invitation, now: UnixTime) -> Result<(), StoreError> {
        let known = self.0.mesh().records::<Record>(RECORDS)?;
        let is_over = |(_, record): &&(String, Record)| record.is_over(now);
        let over: Vec<String> = known.iter().filter(is_over).map(|(id, _)| name(id)).collect();
        if known.len() - over.len() >= MOST {
            return Err(StoreError::Limit {
                field: "invitations",
                value: MOST as u64 + 1,
                most: MOST as u64,
            });
        }
        self.remove(&over)?;
        let record = Record {
            tier: invitation.terms().tier,
            made: now,
            expires: invitation.expires(),
            for_node: invitation.for_node().map(|key| NodeId::of_key(key)),
        };
        self.0.mesh().put(&name(&invitation.id().to_string()), &record)
    }

    /// All that are remembered, the last first.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn list(&self, now: UnixTime) -> Result<Vec<InvitationStatus>, StoreError> {
        let mut listed = Vec::new();
        for (id, record) in self.0.mesh().records::<Record>(RECORDS)? {
            // What became of it may be forgotten before the record is.
            if record.is_over(now) {
                continue;
            }
            if let Some(id) = InvitationId::read(&id) {
                listed.push(status(id, record, self.0.mesh().redeemed(id.number())?, now));
            }
        }
        listed.sort_by_key(|invitation| Reverse(invitation.made));
        Ok(listed)
    }

    /// Has nobody use the invitation of this id, or whose id begins so; as it is then. One that was withdrawn stays so.
    ///
    /// # Errors
    /// One case of [`WithdrawError`] for each way in which it cannot be withdrawn.
    pub fn withdraw(&self, id: &str, now: UnixTime) -> Result<InvitationStatus, WithdrawError> {
        let asked = id.to_ascii_lowercase();
        if asked.len() < LEAST_OF_ID {
            return Err(WithdrawError::Unknown(asked));
        }
        let mut fit = self.0.mesh().records::<Record>(&name(&asked))?;
        let Some((rest, record)) = fit.pop() else {
            return Err(WithdrawError::Unknown(asked));
        };
        if !fit.is_empty() {
            return Err(WithdrawError::Ambiguous(asked));
        }
        let text = asked + &rest;
        let Some(id) = InvitationId::read(&text) else {
            return Err(WithdrawError::Unknown(text));
        };
        if let Some(node) = record.for_node {
            return Err(WithdrawError::ForNode { id: text, node });
        }
        match self.0.mesh().withdraw(id.number(), record.expires.seconds())? {
            Redeemed::By(key) => Err(WithdrawError::Used {
                id: text,
                node: NodeId::of_key(&key),
            }),
            withdrawn => Ok(status(id, record, Some(withdrawn), now)),
        }
    }

    /// Forgets all: another mesh has others.
    pub(crate) fn forget(&self) -> Result<(), StoreError> {
        self.remove(&self.0.mesh().names(RECORDS)?)
    }

    fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        if names.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.0.mesh().remove(&names)
    }
}

impl From<WithdrawError> for TaskError {
    fn from(error: WithdrawError) -> Self {
        let says = error.to_string();
        let (error, hint) = match error {
            WithdrawError::Unknown(_) => (
                Self::unavailable(says),
                "`karman mesh invitations` lists those that were made on this machine".to_owned(),
            ),
            WithdrawError::Ambiguous(_) => (Self::invalid(says), "give more of its id".to_owned()),
            WithdrawError::Used { node, .. } | WithdrawError::ForNode { node, .. } => (
                Self::invalid(says),
                format!("`karman mesh revoke {node}` puts that node out"),
            ),
            WithdrawError::Store(_) => return Self::internal(says),
        };
        error.with_field("invitation").with_hint(hint)
    }
}

fn name(id: &str) -> String {
    format!("{RECORDS}{id}")
}

fn status(id: InvitationId, record: Record, redeemed: Option<Redeemed>, now: UnixTime) -> InvitationStatus {
    let (state, used_by) = match redeemed {
        Some(Redeemed::By(key)) => (InvitationState::Used, Some(NodeId::of_key(&key))),
        Some(Redeemed::Withdrawn) => (InvitationState::Withdrawn, None),
        None if record.expires < now => (InvitationState::Expired, None),
        None => (InvitationState::Open, None),
    };
    InvitationStatus {
        id: id.to_string(),
        tier: record.tier,
        made: record.made,
        expires: record.expires,
        for_node: record.for_node,
        state,
        used_by,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Issuer, RootKey, Terms};

    const HOUR: Duration = Duration::from_secs(3600);

    fn made(for_node: Option<&[u8; 32]>, now: UnixTime) -> Invitation {
        let terms = Terms::usual(Tier::Edge, now.after(24 * HOUR));
        let issuer = Issuer::root(&RootKey::from_seed(&[7; 32]));
        issuer
            .invite(&terms, now.after(HOUR), for_node, Vec::new(), now)
            .unwrap()
    }

    fn in_store(test: impl FnOnce(&Store, UnixTime)) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        test(&store, UnixTime::from_seconds(4_000_000_000));
    }

    #[test]
    fn what_was_made_is_listed_with_what_has_become_of_it() {
        in_store(|store, now| {
            let invitations = Invitations::of(store);
            let (first, second) = (made(None, now), made(None, now));
            invitations.remember(&first, now).unwrap();
            invitations.remember(&second, now.after(HOUR / 2)).unwrap();
            let ends = second.expires().seconds();
            store.mesh().redeem(second.id().number(), ends, &[3; 32]).unwrap();
            let listed = invitations.list(now.after(HOUR / 2)).unwrap();
            let ids: Vec<_> = listed.iter().map(|one| one.id.clone()).collect();
            assert_eq!(ids, [second.id().to_string(), first.id().to_string()]);
            assert_eq!(listed[0].state, InvitationState::Used);
            assert_eq!(listed[0].used_by, Some(NodeId::of_key(&[3; 32])));
            assert_eq!(
                (listed[1].state, listed[1].used_by),
                (InvitationState::Open, None)
            );
            assert_eq!(listed[1].expires, first.expires());
            let later = now.after(2 * HOUR);
            assert_eq!(
                invitations.list(later).unwrap()[1].state,
                InvitationState::Expired
            );
            // What ended long ago makes room.
            invitations
                .remember(&made(None, now), now.after(KEPT + 3 * HOUR))
                .unwrap();
            assert_eq!(invitations.list(now).unwrap().len(), 1);
            invitations.forget().unwrap();
            assert!(invitations.list(now).unwrap().is_empty());
        });
    }

    #[test]
    fn only_what_nobody_has_used_is_withdrawn() {
        in_store(|store, now| {
            let invitations = Invitations::of(store);
            let (open, used, whole) = (made(None, now), made(None, now), made(Some(&[4; 32]), now));
            for one in [&open, &used, &whole] {
                invitations.remember(one, now).unwrap();
            }
            let ends = used.expires().seconds();
            store.mesh().redeem(used.id().number(), ends, &[3; 32]).unwrap();
            let id = open.id().to_string();
            for asked in [&id[..8], &id.to_uppercase()[..]] {
                let withdrawn = invitations.withdraw(asked, now).unwrap();
                assert_eq!(withdrawn.state, InvitationState::Withdrawn, "{asked}");
            }
            let again = store.mesh().redeem(open.id().number(), ends, &[3; 32]);
            assert!(!again.unwrap());
            let fails = |id: &str| invitations.withdraw(id, now).unwrap_err();
            assert!(matches!(fails("no such"), WithdrawError::Unknown(_)));
            assert!(matches!(fails(""), WithdrawError::Unknown(_)));
            assert!(matches!(
                fails(&used.id().to_string()),
                WithdrawError::Used { .. }
            ));
            assert!(matches!(
                fails(&whole.id().to_string()),
                WithdrawError::ForNode { .. }
            ));
        });
    }
}
