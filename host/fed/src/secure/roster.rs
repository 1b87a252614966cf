use ed25519_compact::PublicKey;
use karman_types::NodeId;
use serde::{Deserialize, Serialize};

/// The place of a member in its [`Roster`].
pub type Position = u16;

/// Who is invited to a round, with the key that its messages are signed by. It has to come from the mesh's memberships, not
/// from the coordinator: whoever writes the roster can put nodes of its own on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Roster(Vec<Member>);

/// A client that is invited.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Member {
    /// Its node.
    pub node: NodeId,
    /// Its Ed25519 key.
    #[serde(with = "serde_bytes")]
    pub key: [u8; 32],
    /// The number that it uses for this round only: that of its [`super::Pass`].
    #[serde(with = "serde_bytes")]
    pub once: [u8; 32],
}

/// A roster that is none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RosterError {
    /// Too few or too many members.
    #[error("a roster has from {fewest} to {most} members, not {0}", fewest = Roster::FEWEST, most = Roster::MOST)]
    Size(usize),
    /// A node is there twice.
    #[error("{0} is on the roster twice")]
    Repeated(NodeId),
    /// Its key is no Ed25519 key.
    #[error("the key of {0} is not an Ed25519 key")]
    Key(NodeId),
}

impl Roster {
    /// The fewest members: of two, each takes its own off the sum and knows the other's.
    pub const FEWEST: usize = 3;
    /// The most members. A round of more is a hierarchy of rounds.
    pub const MOST: usize = 10_000;

    /// The roster of these members, in the order of their nodes.
    ///
    /// # Errors
    ///
    /// Fewer than three or more than [`Roster::MOST`] members, a node twice, a key that is none.
    pub fn new(mut members: Vec<Member>) -> Result<Self, RosterError> {
        if !(Self::FEWEST..=Self::MOST).contains(&members.len()) {
            return Err(RosterError::Size(members.len()));
        }
        members.sort_by_key(|member| member.node);
        if let Some(pair) = members.windows(2).find(|pair| pair[0].node == pair[1].node) {
            return Err(RosterError::Repeated(pair[0].node));
        }
        if let Some(member) = members.iter().find(|member| is_weak(&member.key)) {
            return Err(RosterError::Key(member.node));
        }
        Ok(Self(members))
    }

    /// How many are invited.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: a roster has at least three members.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members in their order.
    pub fn members(&self) -> &[Member] {
        &self.0
    }

    /// Where a node stands.
    pub fn position(&self, node: NodeId) -> Option<Position> {
        let position = self.0.binary_search_by_key(&node, |member| member.node).ok()?;
        Position::try_from(position).ok()
    }

    /// The node that stands there.
    pub(crate) fn node(&self, position: Position) -> NodeId {
        self.0[usize::from(position)].node
    }

    /// The key of whoever stands there.
    pub(crate) fn key(&self, position: Position) -> PublicKey {
        PublicKey::new(self.0[usize::from(position)].key)
    }

    /// The number that whoever stands there uses for this round only.
    pub(crate) fn once(&self, position: Position) -> &[u8; 32] {
        &self.0[usize::from(position)].once
    }
}

/// A point of low order verifies signatures of messages that nobody signed.
fn is_weak(key: &[u8; 32]) -> bool {
    use curve25519_dalek::edwards::CompressedEdwardsY;
    CompressedEdwardsY(*key)
        .decompress()
        .is_none_or(|point| point.is_small_order())
}

/// Some of a roster: one bit for each of its members.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Members(#[serde(with = "serde_bytes")] Vec<u8>);

impl Members {
    /// Nobody of so many.
    pub fn none(of: usize) -> Self {
        Self(vec![0; of.div_ceil(8)])
    }

    /// Those at these positions; one that is not on the roster is left out.
    pub fn of(members: usize, positions: impl IntoIterator<Item = Position>) -> Self {
        let mut these = Self::none(members);
        positions.into_iter().for_each(|position| these.insert(position));
        these
    }

    /// Puts one in.
    pub fn insert(&mut self, position: Position) {
        if let Some(byte) = self.0.get_mut(usize::from(position / 8)) {
            *byte |= 1 << (position % 8);
        }
    }

    /// Whether it is among them.
    pub fn contains(&self, position: Position) -> bool {
        self.0
            .get(usize::from(position / 8))
            .is_some_and(|byte| byte & (1 << (position % 8)) != 0)
    }

    /// Their positions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Position> + '_ {
        let end = Position::try_from(self.0.len() * 8).unwrap_or(Position::MAX);
        (0..end).filter(|position| self.contains(*position))
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether they are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    /// These without those.
    pub(crate) fn without(&self, others: &Self) -> Self {
        Self(
            self.0
                .iter()
                .zip(&others.0)
                .map(|(these, those)| these & !those)
                .collect(),
        )
    }

    /// The first that is in both.
    pub(crate) fn overlap(&self, others: &Self) -> Option<Position> {
        self.iter().find(|position| others.contains(*position))
    }

    /// Whether it speaks of a roster of so many, and of nobody beyond its end.
    pub(crate) fn fits(&self, members: usize) -> bool {
        self.0.len() == members.div_ceil(8) && self.iter().all(|position| usize::from(position) < members)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_compact::{KeyPair, Seed};

    fn member(name: &str) -> Member {
        let key = *KeyPair::from_seed(Seed::new([7; 32])).pk;
        Member {
            node: NodeId::of_key(name.as_bytes()),
            key,
            once: [0; 32],
        }
    }

    #[test]
    fn a_roster_is_in_order_and_has_nobody_twice() {
        let members: Vec<_> = ["a", "b", "c", "d"].map(member).to_vec();
        let roster = Roster::new(members.clone()).unwrap();
        for one in &members {
            assert_eq!(roster.node(roster.position(one.node).unwrap()), one.node);
        }
        assert!(roster.members().is_sorted_by_key(|member| member.node));
        assert_eq!(Roster::new(members[..2].to_vec()), Err(RosterError::Size(2)));
        let twice = [member("a"), member("b"), member("a")].to_vec();
        assert_eq!(Roster::new(twice), Err(RosterError::Repeated(member("a").node)));
    }

    #[test]
    fn a_key_that_verifies_anything_is_refused() {
        let mut weak = member("b");
        weak.key = [0; 32];
        weak.key[0] = 1;
        let refused = Roster::new(vec![member("a"), weak, member("c")]);
        assert_eq!(refused, Err(RosterError::Key(weak.node)));
    }

    #[test]
    fn members_are_a_set() {
        let odd = Members::of(11, [1, 3, 9]);
        let low = Members::of(11, [1, 2, 3]);
        assert_eq!(odd.iter().collect::<Vec<_>>(), [1, 3, 9]);
        assert_eq!(odd.without(&low), Members::of(11, [9]));
        assert_eq!(odd.overlap(&low), Some(1));
        assert_eq!(odd.overlap(&Members::of(11, [2, 4])), None);
        assert!(odd.fits(11) && !odd.fits(9) && !odd.fits(17));
        assert!(!Members::none(11).contains(300));
    }
}
