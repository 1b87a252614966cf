//! By which policy steps are placed: a built-in one, or one that a plugin of this node brings.

use crate::config::AS_CALLS;
use crate::drive::brought::Watch;
use crate::drive::tasks::Inner;
use crate::services::blocking;
use karman_engine::Plugin;
use karman_sched::call::ByPlugin;
use karman_sched::place::{BuiltIn, ByName, Placed, Situation};
use karman_sched::plugin::Failure;
use karman_types::TaskError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The policy that `node.toml` names.
#[derive(Default)]
pub(super) enum Policy {
    /// None: a step goes where a call of its task goes.
    #[default]
    AsCalls,
    BuiltIn(BuiltIn),
    /// Who asks it waits for its turn, and takes no thread meanwhile.
    Brought(Arc<Mutex<Brought>>),
}

/// The policy that a plugin of this name brings, whichever has it at the time.
pub(super) struct Brought {
    policy: ByName,
    watch: Watch,
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
                .with_hint(others()));
        }
        Ok(Self::Brought(Arc::new(Mutex::new(Brought {
            policy: ByName::new(name),
            watch: Watch::default(),
        }))))
    }

    /// Places a step, where this is what places steps.
    pub(super) async fn place(&self, node: &Arc<Inner>, known: Situation) -> Option<Placed> {
        let policy = match self {
            Self::AsCalls => return None,
            Self::BuiltIn(policy) => return Some(Placed::by(*policy, known)),
            Self::Brought(policy) => policy,
        };
        let mut policy = policy.clone().lock_owned().await;
        let name = policy.policy.name().to_owned();
        let (node, shown) = (node.clone(), known.clone());
        // Guests never run on the threads of the network.
        let placed = blocking(move || Ok(policy.place(&node, shown))).await;
        Some(placed.unwrap_or_else(|error| {
            let why = error.message;
            let by_plugin = ByPlugin {
                name,
                plugin: None,
                said: Err(Failure::Host { why }),
            };
            Placed {
                by_plugin: Some(by_plugin),
                ..Placed::by(BuiltIn::default(), known)
            }
        }))
    }
}

impl Brought {
    /// Blocks for as long as the plugin takes.
    fn place(&mut self, node: &Inner, known: Situation) -> Placed {
        self.look(node);
        self.policy.place(Duration::from_millis(node.now().0), known)
    }

    /// Sees which plugin has the name now.
    fn look(&mut self, node: &Inner) {
        let known = (self.policy.name(), self.policy.plugin());
        if let Some(found) = self.watch.change(node, known, Plugin::place_policy) {
            self.policy.set_plugin(found);
        }
    }
}

/// Whether the policy of this node is here.
///
/// # Errors
/// `unavailable` when the plugin that brings it is not, `invalid` when it brings none.
pub(super) fn check(node: &Inner) -> Result<(), TaskError> {
    let name = &node.runtime.config().policies.place;
    if !matches!(Policy::named(name)?, Policy::Brought(_)) {
        return Ok(());
    }
    let slot = node.plugins.named(name).map_err(|_| {
        TaskError::unavailable(format!("this node has no policy `{name}` that places"))
            .with_field("place")
            .with_hint(format!(
                "`karman deploy` the plugin that brings it, or {}",
                others()
            ))
    })?;
    let brings = slot.current().place_policy().map(drop);
    brings.map_err(|error| error.with_field("place"))
}

fn others() -> String {
    format!("name one of {AS_CALLS}, {}", BuiltIn::names())
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
