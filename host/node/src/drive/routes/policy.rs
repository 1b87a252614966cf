//! By which policy nodes are put in order: a built-in one, or one that a plugin of this node brings.

use crate::drive::plugin_policy::{Brought, Kind};
use crate::drive::tasks::Inner;
use karman_engine::Plugin;
use karman_sched::call::{Picked, Route, Taker};
use karman_types::TaskError;
use std::sync::Weak;
use std::time::Duration;

/// Policies that put nodes in order.
const ROUTES: Kind = Kind {
    key: "route",
    does: " that routes",
    of: Plugin::route_policy,
    others: Route::names,
};

/// The policy that `node.toml` names.
pub(super) enum Policy {
    BuiltIn(Route),
    Brought(Brought),
}

impl Policy {
    pub(super) fn named(name: &str) -> Self {
        match Route::named(name) {
            Some(route) => Self::BuiltIn(route),
            None => Self::Brought(Brought::new(name, &ROUTES)),
        }
    }

    /// Puts the providers of a task in order.
    pub(super) async fn pick(
        &self,
        node: &Weak<Inner>,
        now: Duration,
        task: &str,
        takers: Vec<Taker>,
    ) -> Picked {
        match self {
            Self::BuiltIn(route) => Picked::by(*route, task, takers),
            Self::Brought(policy) => {
                policy
                    .decide(node.upgrade(), now, (task.to_owned(), takers))
                    .await
            }
        }
    }
}

/// Whether the policy of this node is here.
///
/// # Errors
/// `unavailable` when the plugin that brings it is not, `invalid` when it brings none.
pub(super) fn check(node: &Inner) -> Result<(), TaskError> {
    let name = &node.runtime.config().policies.route;
    match Route::named(name) {
        Some(_) => Ok(()),
        None => ROUTES.brought_by(name, node.plugins.named(name)).map(drop),
    }
}
