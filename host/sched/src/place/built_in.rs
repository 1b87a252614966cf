use super::{Fate, FateSettings, Heft, LeastLoaded, Place};
use serde::{Deserialize, Serialize};

/// A policy by which nodes place the steps of workflows, as `node.toml` names it.
///
/// Each of them decides by what it is shown alone, so that a decision that was written down with it ([`super::Placed`]) can be made again.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltIn {
    /// See [`Fate`], but for its lead: a node sends a step to the best node at once, busy or not. What decides where a plugin does not.
    #[default]
    Fate,
    /// See [`Heft`].
    Heft,
    /// See [`LeastLoaded`].
    LeastLoaded,
}

impl BuiltIn {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Fate, Self::Heft, Self::LeastLoaded];

    /// By which nodes name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fate => "fate",
            Self::Heft => "heft",
            Self::LeastLoaded => "least-loaded",
        }
    }

    /// The one of this name, if it is one of these.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// The names of all, for those who asked for another.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Why a node cannot place by the policy of this name, which studies have: it does not know what that goes by.
    pub fn unusable(name: &str) -> Option<&'static str> {
        Some(match name {
            "clusterless" | "clusterless-intra" | "clusterless-round-robin" | "clusterless-fixed" => {
                "it plans whole workflows within clusters of nodes, and the nodes of a mesh belong to none"
            }
            "edf" | "triage" => {
                "it puts steps that wait into an order, and a node places each step alone, as soon as it can run"
            }
            "haf" => {
                "it moves services between nodes and shares out a node among them, and a node does neither for a step"
            }
            "kubernetes" => "it weighs how much memory nodes have free, and they do not say so",
            "residency-first" => {
                "it tells nodes that hold what a step takes from those that would load it, and a step goes to the former only: \
                 `heft` does that"
            }
            "round-robin" => {
                "it goes by whose turn it is, which nobody could tell from what is written down of a decision"
            }
            _ => return None,
        })
    }

    pub(super) fn policy(self) -> Box<dyn Place> {
        match self {
            // A step is sent there all the same ([`super::Placed::chosen`]), and without a lead it is told for how long the node is busy.
            Self::Fate => Box::new(Fate::new(FateSettings {
                lead: 0.0,
                ..FateSettings::default()
            })),
            Self::Heft => Box::new(Heft::default()),
            Self::LeastLoaded => Box::new(LeastLoaded::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{ClusterLess, EarliestDeadline, Kubernetes, ResidencyFirst, RoundRobin, Triage};

    #[test]
    fn a_policy_is_found_by_the_name_that_it_has_in_tables() {
        for policy in BuiltIn::ALL {
            assert_eq!(BuiltIn::named(policy.name()), Some(policy));
            assert_eq!(policy.policy().name(), policy.name());
            assert_eq!(BuiltIn::unusable(policy.name()), None);
        }
    }

    #[test]
    fn whom_a_node_cannot_ask_is_refused_with_a_reason() {
        let others: [&dyn Place; 6] = [
            &ClusterLess::default(),
            &EarliestDeadline::default(),
            &Kubernetes::default(),
            &ResidencyFirst::default(),
            &RoundRobin::default(),
            &Triage::default(),
        ];
        for other in others {
            assert!(BuiltIn::unusable(other.name()).is_some(), "{}", other.name());
            assert_eq!(BuiltIn::named(other.name()), None);
        }
        assert!(BuiltIn::unusable("haf").is_some());
        assert_eq!(BuiltIn::unusable("mine"), None);
    }
}
