//! By which policy steps are placed: a built-in one, or one that a plugin of this node brings.

use crate::config::AS_CALLS;
use crate::drive::plugin_policy::{Brought, Kind};
use crate::drive::tasks::Inner;
use karman_engine::Plugin;
use karman_sched::place::{BuiltIn, Placed, Situation};
use karman_types::TaskError;
use std::sync::Arc;
use std::time::Duration;

/// Policies that place steps.
const PLACES: Kind = Kind {
    key: "place",
    does: " that places",
    of: Plugin::place_policy,
    others,
};

/// The policy that `node.toml` names.
#[derive(Default)]
pub(super) enum Policy {
    /// None: a step goes where a call of its task goes.
    #[default]
    AsCalls,
    BuiltIn(BuiltIn),
    Brought(Brought),
}

impl Policy {
    /// # Errors
    /// `invalid` for one that studies have and a node cannot place by, with the reason.
    pub(super) fn named(name: &str) -> Result<Self, TaskError> {
        if name == AS_CALLS {
            return Ok(Self::AsCalls);
        }
        if let Some(policy) = BuiltIn::named(name) {
            return Ok(Self::BuiltIn(policy));
        }
        if let Some(why) = BuiltIn::unusable(name) {
            let says = format!("a node cannot place the steps of workflows by `{name}`: {why}");
            return Err(TaskError::invalid(says)
                .with_field("policies.place")
                .with_hint(format!("name one of {}", others())));
        }
        Ok(Self::Brought(Brought::new(name, &PLACES)))
    }

    /// Places a step, where this is what places steps.
    pub(super) async fn place(&self, node: &Arc<Inner>, known: Situation) -> Option<Placed> {
        match self {
            Self::AsCalls => None,
            Self::BuiltIn(policy) => Some(Placed::by(*policy, known)),
            Self::Brought(policy) => {
                let now = Duration::from_millis(node.now().0);
                Some(policy.decide(Some(node.clone()), now, known).await)
            }
        }
    }
}

/// Whether the policy of this node is here.
///
/// # Errors
/// `unavailable` when the plugin that brings it is not, `invalid` when it brings none.
pub(super) fn check(node: &Inner) -> Result<(), TaskError> {
    let name = &node.runtime.config().policies.place;
    match Policy::named(name)? {
        Policy::Brought(_) => PLACES.brought_by(name, node.plugins.named(name)).map(drop),
        Policy::AsCalls | Policy::BuiltIn(_) => Ok(()),
    }
}

/// The policies that no plugin has to bring.
fn others() -> String {
    format!("{AS_CALLS}, {}", BuiltIn::names())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_a_node_cannot_place_by_is_refused_with_the_reason() {
        assert!(matches!(Policy::named("route"), Ok(Policy::AsCalls)));
        assert!(matches!(
            Policy::named("fate"),
            Ok(Policy::BuiltIn(BuiltIn::Fate))
        ));
        // That of a plugin, which may come later.
        assert!(matches!(Policy::named("mine"), Ok(Policy::Brought(_))));
        for name in [
            "clusterless",
            "edf",
            "haf",
            "kubernetes",
            "residency-first",
            "round-robin",
            "triage",
        ] {
            let error = Policy::named(name).err().unwrap();
            assert_eq!(error.field.as_deref(), Some("policies.place"), "{name}");
            let begins = format!("a node cannot place the steps of workflows by `{name}`: it ");
            assert!(error.message.starts_with(&begins), "{error}");
            let hint = error.hint.unwrap();
            assert_eq!(hint, "name one of route, fate, heft, least-loaded");
        }
    }
}
