use super::Right;
use karman_types::Tier;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The rights of a member, each once.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Rights(BTreeSet<Right>);

impl Rights {
    /// More rights than this fit no membership.
    pub const MAX: usize = 64;

    /// What a node of this tier may do when nobody said otherwise: call every task, whatever the tier. Deploying and
    /// buckets are given by name.
    pub fn usual(tier: Tier) -> Self {
        match tier {
            Tier::Edge | Tier::Fog | Tier::Cloud | Tier::Space => "call:*".parse().into_iter().collect(),
        }
    }

    /// Every right there is: what the holder of the root key has.
    pub fn all() -> Self {
        let all = [
            "bucket-read:*",
            "bucket-write:*",
            "call:*",
            "deploy:*",
            "issue",
            "revoke",
        ];
        all.iter()
            .map(|right| right.parse::<Right>().expect("a right of ours"))
            .collect()
    }

    /// Whether one of them allows what `asked` names.
    pub fn allows(&self, asked: &Right) -> bool {
        self.0.iter().any(|held| held.covers(asked))
    }

    /// Whether they allow all of `others`.
    pub fn covers(&self, others: &Self) -> bool {
        others.0.iter().all(|right| self.allows(right))
    }

    /// One after the other, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Right> {
        self.0.iter()
    }

    /// How many there are.
    pub fn number(&self) -> usize {
        self.0.len()
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_allows_what_one_of_it_covers() {
        let rights =
            |texts: &[&str]| -> Rights { texts.iter().map(|text| text.parse::<Right>().unwrap()).collect() };
        let held = rights(&["call:vision/*", "revoke"]);
        assert!(held.allows(&Right::Revoke) && !held.allows(&Right::Issue));
        assert!(held.covers(&rights(&["call:vision/detect", "revoke"])));
        assert!(held.covers(&Rights::default()));
        assert!(!held.covers(&rights(&["call:*"])));
        assert!(Rights::usual(Tier::Edge).allows(&"call:a/b".parse().unwrap()));
        assert!(!Rights::usual(Tier::Cloud).allows(&"deploy:a".parse().unwrap()));
    }
}
