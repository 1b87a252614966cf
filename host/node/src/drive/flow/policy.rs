//! By which policy it is chosen who does a task: a built-in one, or one that a plugin of this node brings.

use crate::drive::tasks::Inner;
use crate::services::{blocking, store_error};
use karman_engine::Plugin;
use karman_engine::policy::Policies;
use karman_sched::log::Policy;
use karman_sched::select::{Brought, BuiltIn, PolicyPlugin, SelectError, Task};
use karman_types::{Digest, Slo, TaskError};
use std::sync::Arc;

/// A policy that was named.
pub(super) enum Named {
    BuiltIn(BuiltIn),
    /// By a plugin, with what it may use.
    Brought(Arc<Plugin>, PolicyPlugin),
}

/// The policy of this name, or that of the node where none is named. Built-in ones come first.
///
/// # Errors
/// `unavailable` when no plugin of this name is here, `invalid` when it brings no policy.
pub(super) fn named(tasks: &Inner, name: Option<&str>) -> Result<Named, TaskError> {
    let name = name.unwrap_or(&tasks.runtime.config().policies.select);
    if let Ok(policy) = name.parse() {
        return Ok(Named::BuiltIn(policy));
    }
    let slot = tasks.plugins.find(name).map_err(|_| {
        TaskError::unavailable(format!("this node has no policy `{name}`"))
            .with_field("select")
            .with_hint(format!(
                "`karman deploy` the plugin that brings it, or name one of {}",
                BuiltIn::names()
            ))
    })?;
    let plugin = slot.current();
    let policy = plugin
        .select_policy()
        .map_err(|error| error.with_field("select"))?;
    Ok(Named::Brought(plugin, policy))
}

impl Named {
    /// The file of the plugin that brings it, if one does.
    pub(super) fn plugin(&self) -> Option<Digest> {
        match self {
            Self::Brought(_, policy) => Some(policy.id),
            Self::BuiltIn(_) => None,
        }
    }

    /// Keeps the file of the plugin, so that what it decides can be decided again when the plugin is gone.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) async fn keep(&self, tasks: &Inner) -> Result<(), TaskError> {
        let Some(id) = self.plugin() else {
            return Ok(());
        };
        let home = tasks.runtime.home().clone();
        blocking(move || {
            let store = home.store()?;
            let file = store.blobs().read(&id).map_err(store_error)?;
            store.policies().keep(&file).map_err(store_error)
        })
        .await
    }

    /// This policy for these tasks within these limits.
    ///
    /// # Errors
    /// `invalid` names what no policy can work with.
    pub(super) fn over(&self, tasks: Vec<Task>, slo: Slo) -> Result<Policy, TaskError> {
        let wrong = |error: SelectError| TaskError::invalid(error.to_string()).with_field("slo");
        match self {
            Self::BuiltIn(policy) => policy.over(tasks, slo).map_err(wrong),
            Self::Brought(plugin, policy) => {
                let guests: Policies = [plugin.clone()].into_iter().collect();
                let brought = Brought::new(policy.clone(), Arc::new(guests), tasks, slo);
                Ok(Policy::Brought(Box::new(brought.map_err(wrong)?)))
            }
        }
    }
}
