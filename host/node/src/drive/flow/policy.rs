//! By which policy it is chosen who does a task: a built-in one, or one that a plugin of this node brings.

use super::Flows;
use super::choosers::Choosers;
use crate::drive::tasks::Inner;
use crate::services::store_error;
use karman_engine::Plugin;
use karman_engine::policy::Policies;
use karman_sched::call::{Order, Taker};
use karman_sched::log::Policy;
use karman_sched::place::{Fleet, Job, Placement};
use karman_sched::plugin::{Failure, Guests, PolicyPlugin};
use karman_sched::select::{Brought, BuiltIn, Guest, SelectError, Task};
use karman_types::{Digest, Slo, TaskError};
use std::sync::{Arc, Weak};

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

    /// This policy for these tasks within these limits.
    ///
    /// # Errors
    /// `invalid` names what no policy can work with.
    pub(super) fn over(
        &self,
        tasks: Vec<Task>,
        slo: Slo,
        choosers: &Arc<Choosers>,
    ) -> Result<Policy, TaskError> {
        let wrong = |error: SelectError| TaskError::invalid(error.to_string()).with_field("slo");
        match self {
            Self::BuiltIn(policy) => policy.over(tasks, slo).map_err(wrong),
            Self::Brought(plugin, policy) => {
                let guests = Instances::of(plugin, choosers);
                let brought = Brought::new(policy.clone(), guests, tasks, slo);
                Ok(Policy::Brought(Box::new(brought.map_err(wrong)?)))
            }
        }
    }
}

impl Flows {
    /// Instances of the policy that a plugin brings, whatever it decides: they share the places that there are with those that choose.
    pub(in crate::drive) fn guests(&self, plugin: &Arc<Plugin>) -> Arc<dyn Guests> {
        Instances::of(plugin, &self.choosers)
    }
}

/// Instances of a policy. Where there is no place for one more, the least recently used is dropped.
struct Instances {
    policies: Policies,
    choosers: Weak<Choosers>,
}

impl Instances {
    fn of(plugin: &Arc<Plugin>, choosers: &Arc<Choosers>) -> Arc<dyn Guests> {
        Arc::new(Self {
            policies: [plugin.clone()].into_iter().collect(),
            choosers: Arc::downgrade(choosers),
        })
    }

    /// Whether there is a place again: somebody else has given up its own.
    fn make_room(&self) -> bool {
        self.choosers.upgrade().is_some_and(|all| all.rest_one())
    }
}

impl Guests for Instances {
    fn has(&self, plugin: &PolicyPlugin) -> bool {
        self.policies.has(plugin)
    }

    fn start(
        &self,
        plugin: &PolicyPlugin,
        tasks: &[Task],
        slo: &Slo,
        state: Option<&[u8]>,
    ) -> Result<Box<dyn Guest>, Failure> {
        loop {
            match self.policies.start(plugin, tasks, slo, state) {
                Err(Failure::Busy { .. }) if self.make_room() => {}
                started => return started,
            }
        }
    }

    fn order(&self, plugin: &PolicyPlugin, task: &str, takers: &[Taker]) -> Result<Order, Failure> {
        loop {
            match self.policies.order(plugin, task, takers) {
                Err(Failure::Busy { .. }) if self.make_room() => {}
                ordered => return ordered,
            }
        }
    }

    fn place(
        &self,
        plugin: &PolicyPlugin,
        now: f64,
        jobs: &[Job],
        fleet: &Fleet,
    ) -> Result<Vec<Placement>, Failure> {
        loop {
            match self.policies.place(plugin, now, jobs, fleet) {
                Err(Failure::Busy { .. }) if self.make_room() => {}
                placed => return placed,
            }
        }
    }
}

/// Keeps the file of a plugin for as long as the log may have what it decided, also when the plugin goes. Blocks.
pub(in crate::drive) fn keep(tasks: &Inner, plugin: &Digest) {
    let store = tasks.runtime.home().store();
    let kept = store.and_then(|store| store.policies().keep(plugin).map_err(store_error));
    match kept {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(%plugin, "the file of a policy is not here: what it decides cannot be decided again")
        }
        Err(error) => tracing::warn!(%plugin, %error, "the file of a policy is not kept"),
    }
}
