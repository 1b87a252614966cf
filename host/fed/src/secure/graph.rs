use super::{Members, Position};
use karman_types::Digest;
use serde::{Deserialize, Serialize};

/// Who shares masks and secrets with whom.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Graph {
    /// Everybody with everybody: SecAgg (Bonawitz et al., CCS 2017). Each client's work grows with their number.
    Complete,
    /// Each with so many, on a ring in random order: SecAgg+ (Bell et al., CCS 2020).
    Ring(Degree),
}

/// How many neighbours each client has on the ring, an even number. A ring on which everybody would be everybody's neighbour is
/// the complete graph.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Degree {
    /// 2 ⌈1.5 log2 n⌉ for n clients. See [`super::margin`] for what that withstands.
    Logarithmic,
    /// This number; an odd one counts as the next even one.
    Of(u16),
}

impl Graph {
    /// How many neighbours each of `members` clients has.
    pub fn degree(self, members: usize) -> usize {
        let most = members.saturating_sub(1);
        match self {
            Self::Complete => most,
            Self::Ring(Degree::Logarithmic) => most.min(logarithmic(members)),
            Self::Ring(Degree::Of(degree)) => most.min(usize::from(degree).next_multiple_of(2)),
        }
    }

    /// A number that no other graph has.
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Complete => 0,
            Self::Ring(Degree::Logarithmic) => 1,
            Self::Ring(Degree::Of(degree)) => 2 + usize::from(degree),
        }
    }

    /// Who holds shares of the secrets of the client at `position`, ascending: its neighbours and itself.
    ///
    /// The ring is a Harary graph: each client is the neighbour of the next half on either side. Its order is that of hashes
    /// that `seed` and the set of members go into, so everybody finds the same.
    pub(crate) fn holders(self, seed: &Digest, members: &Members, position: Position) -> Vec<Position> {
        let count = members.len();
        let degree = self.degree(count);
        if degree + 1 >= count {
            return members.iter().collect();
        }
        let ring = ring(seed, members);
        let Some(place) = ring.iter().position(|member| *member == position) else {
            return Vec::new();
        };
        let first = place + count - degree / 2;
        let mut holders: Vec<_> = (first..=first + degree)
            .map(|place| ring[place % count])
            .collect();
        holders.sort_unstable();
        holders
    }

    /// [`Graph::holders`] of every member.
    pub(crate) fn all_holders(self, seed: &Digest, members: &Members) -> Vec<(Position, Vec<Position>)> {
        let count = members.len();
        let degree = self.degree(count);
        if degree + 1 >= count {
            let everybody: Vec<_> = members.iter().collect();
            return members.iter().map(|member| (member, everybody.clone())).collect();
        }
        let ring = ring(seed, members);
        let around = |place: usize| {
            let first = place + count - degree / 2;
            let mut holders: Vec<_> = (first..=first + degree)
                .map(|place| ring[place % count])
                .collect();
            holders.sort_unstable();
            (ring[place], holders)
        };
        let mut all: Vec<_> = (0..count).map(around).collect();
        all.sort_unstable_by_key(|(member, _)| *member);
        all
    }
}

/// How many of the holders of a secret it takes to know it: more than two thirds. Then two disjoint groups of holders can never
/// both be large enough, whatever a coordinator tells them, as long as fewer than a third of them work for it.
pub const fn threshold(holders: usize) -> usize {
    holders * 2 / 3 + 1
}

fn logarithmic(members: usize) -> usize {
    2 * (1.5 * (members.max(1) as f64).log2()).ceil() as usize
}

fn ring(seed: &Digest, members: &Members) -> Vec<Position> {
    let set = Digest::of(members.as_bytes());
    let mut ring: Vec<(Digest, Position)> = members
        .iter()
        .map(|member| {
            let mut text = [0; 66];
            text[..32].copy_from_slice(seed.as_bytes());
            text[32..64].copy_from_slice(set.as_bytes());
            text[64..].copy_from_slice(&member.to_le_bytes());
            (Digest::of(&text), member)
        })
        .collect();
    ring.sort_unstable();
    ring.into_iter().map(|(_, member)| member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_are_even_or_complete() {
        let graph = Graph::Ring(Degree::Logarithmic);
        assert_eq!(
            [5, 10, 100, 500].map(|members| graph.degree(members)),
            [4, 9, 20, 28]
        );
        assert_eq!(Graph::Complete.degree(500), 499);
        assert_eq!(Graph::Ring(Degree::Of(7)).degree(100), 8);
    }

    #[test]
    fn neighbours_are_mutual_and_as_many_as_they_should_be() {
        let seed = Digest::of(b"seed");
        let members = Members::of(60, (0..60).filter(|position| position % 7 != 3));
        let graph = Graph::Ring(Degree::Of(10));
        let all = graph.all_holders(&seed, &members);
        assert_eq!(all.len(), members.len());
        for (member, holders) in &all {
            assert_eq!(holders, &graph.holders(&seed, &members, *member));
            assert_eq!(holders.len(), 11);
            assert!(holders.is_sorted() && holders.contains(member));
            for holder in holders {
                let theirs = all.iter().find(|(other, _)| other == holder).unwrap();
                assert!(theirs.1.contains(member));
            }
        }
        let other = graph.all_holders(&Digest::of(b"other"), &members);
        assert_ne!(all, other, "the order depends on the seed");
    }

    #[test]
    fn two_thresholds_do_not_fit_into_one_set_of_holders() {
        for holders in 3..1_000 {
            let both = 2 * threshold(holders);
            assert!(
                threshold(holders) <= holders && both > holders + holders / 3,
                "{holders}"
            );
        }
    }
}
