//! Who takes part, and what each is ordered.

use karman_node::{CutBy, SplitOrder};

/// One of them: a name under which the edge has the model, and how it is cut.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Contender {
    pub(super) name: String,
    pub(super) who: Who,
    pub(super) goal: Goal,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Who {
    Ours,
    Neurosurgeon,
    Oracle,
    /// A cut that stays: how many layers come before those of the fog, and of the cloud.
    Fixed([usize; 2]),
}

/// What counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Goal {
    Latency,
    Energy,
}

impl Contender {
    /// What counts is the time until the result.
    pub(super) const LATENCY: Goal = Goal::Latency;
    /// What counts is what all nodes draw.
    pub(super) const ENERGY: Goal = Goal::Energy;

    pub(super) fn moving(who: Who, goal: Goal) -> Self {
        let goals = match goal {
            Goal::Latency => "latency",
            Goal::Energy => "energy",
        };
        Self {
            name: format!("{who:?}-{goals}").to_lowercase(),
            who,
            goal,
        }
    }

    /// The same whatever counts.
    pub(super) fn fixed(number: usize, ends: [usize; 2]) -> Self {
        Self {
            name: format!("fixed-{number}"),
            who: Who::Fixed(ends),
            goal: Goal::Latency,
        }
    }

    pub(super) fn order(&self) -> SplitOrder {
        SplitOrder {
            policy: match self.who {
                Who::Neurosurgeon => CutBy::Neurosurgeon,
                _ => CutBy::Best,
            },
            cut: match self.who {
                Who::Fixed(ends) => Some(ends.to_vec()),
                _ => None,
            },
            apply: true,
            ..self.goal.order()
        }
    }
}

impl Goal {
    /// An order to plan for this, and no more.
    pub(super) fn order(self) -> SplitOrder {
        SplitOrder {
            over: vec!["tier=fog".into(), "tier=cloud".into()],
            latency: (self == Self::Latency).then_some(1.0),
            energy: (self == Self::Energy).then_some(1.0),
            ..SplitOrder::default()
        }
    }
}
