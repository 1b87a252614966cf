//! By which policy nodes are put in order: a built-in one, or one that a plugin of this node brings.

use crate::drive::brought::Watch;
use crate::drive::tasks::Inner;
use crate::services::blocking;
use karman_engine::Plugin;
use karman_sched::call::{Brought, ByPlugin, Picked, Route, Router, Taker};
use karman_sched::plugin::Failure;
use karman_types::TaskError;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Mutex;

/// The policy that `node.toml` names.
pub(super) enum Policy {
    BuiltIn(Route),
    /// Who asks it waits for its turn, and takes no thread meanwhile.
    Brought(Arc<Mutex<ByName>>),
}

/// The policy that a plugin of this name brings, whichever has it at the time.
pub(super) struct ByName {
    node: Weak<Inner>,
    policy: Brought,
    watch: Watch,
}

impl Policy {
    pub(super) fn named(name: &str, node: Weak<Inner>) -> Self {
        if let Some(route) = Route::named(name) {
            return Self::BuiltIn(route);
        }
        Self::Brought(Arc::new(Mutex::new(ByName {
            node,
            policy: Brought::new(name),
            watch: Watch::default(),
        })))
    }

    /// Puts the providers of a task in order.
    pub(super) async fn pick(&self, now: Duration, task: &str, takers: Vec<Taker>) -> Picked {
        let policy = match self {
            Self::BuiltIn(route) => return Picked::by(*route, task, takers),
            Self::Brought(policy) => policy,
        };
        let mut policy = policy.clone().lock_owned().await;
        let name = policy.policy.name().to_owned();
        let (of, known) = (task.to_owned(), takers.clone());
        // Guests never run on the threads of the network.
        let picked = blocking(move || Ok(policy.pick(now, &of, known))).await;
        picked.unwrap_or_else(|error| {
            let why = error.message;
            let by_plugin = ByPlugin {
                name,
                plugin: None,
                said: Err(Failure::Host { why }),
            };
            Picked {
                by_plugin: Some(by_plugin),
                ..Picked::by(Route::default(), task, takers)
            }
        })
    }
}

impl ByName {
    /// Blocks for as long as the plugin takes.
    fn pick(&mut self, now: Duration, task: &str, takers: Vec<Taker>) -> Picked {
        if let Some(node) = self.node.upgrade() {
            self.look(&node);
        }
        self.policy.pick(now, task, takers)
    }

    /// Sees which plugin has the name now.
    fn look(&mut self, node: &Inner) {
        let known = (self.policy.name(), self.policy.plugin());
        if let Some(found) = self.watch.change(node, known, Plugin::route_policy) {
            self.policy.set_plugin(found);
        }
    }
}

/// Whether the policy of this node is here.
///
/// # Errors
/// `unavailable` when the plugin that brings it is not, `invalid` when it brings none.
pub(super) fn check(node: &Inner) -> Result<(), TaskError> {
    let name = &node.runtime.config().policies.route;
    if Route::named(name).is_some() {
        return Ok(());
    }
    let slot = node.plugins.named(name).map_err(|_| {
        TaskError::unavailable(format!("this node has no policy `{name}` that routes"))
            .with_field("route")
            .with_hint(format!(
                "`karman deploy` the plugin that brings it, or name one of {}",
                Route::names()
            ))
    })?;
    let brings = slot.current().route_policy().map(drop);
    brings.map_err(|error| error.with_field("route"))
}
