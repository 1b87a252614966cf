//! By which policy it is chosen who does a task: a built-in one, or one that a plugin of this node brings.

use super::Flows;
use super::choosers::Choosers;
use crate::drive::plugin_policy::Kind;
use crate::drive::tasks::Inner;
use karman_engine::Plugin;
use karman_engine::policy::Policies;
use karman_sched::call::{Order, Taker};
use karman_sched::log::Policy;
use karman_sched::place::{Fleet, Job, Placement};
use karman_sched::plugin::{Failure, Guests, PolicyPlugin};
use karman_sched::select::{Brought, BuiltIn, Guest, SelectError, Task};
use karman_types::{Digest, Slo, TaskError};
use std::sync::{Arc, Weak};

/// Policies that choose who does a task.
const SELECTS: Kind = Kind {
    key: "select",
    does: "",
    of: Plugin::select_policy,
    others: BuiltIn::names,
};

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
    let (plugin, policy) = SELECTS.brought_by(name, tasks.plugins.find(name))?;
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

    /// What comes of asking for an instance: again, as long as somebody else gives up the place that it takes.
    fn with_room<T>(&self, ask: impl Fn(&Policies) -> Result<T, Failure>) -> Result<T, Failure> {
        let make_room = || self.choosers.upgrade().is_some_and(|all| all.rest_one());
        loop {
            match ask(&self.policies) {
                Err(Failure::Busy { .. }) if make_room() => {}
                asked => return asked,
            }
        }
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
        self.with_room(|policies| policies.start(plugin, tasks, slo, state))
    }

    fn order(&self, plugin: &PolicyPlugin, task: &str, takers: &[Taker]) -> Result<Order, Failure> {
        self.with_room(|policies| policies.order(plugin, task, takers))
    }

    fn place(
        &self,
        plugin: &PolicyPlugin,
        now: f64,
        jobs: &[Job],
        fleet: &Fleet,
    ) -> Result<Vec<Placement>, Failure> {
        self.with_room(|policies| policies.place(plugin, now, jobs, fleet))
    }
}

/// Keeps the file of a plugin for as long as the log may have what it decided, also when the plugin goes. Blocks.
pub(in crate::drive) fn keep(tasks: &Inner, plugin: &Digest) {
    let store = tasks.runtime.home().store();
    let kept = store.and_then(|store| store.policies().keep(plugin).map_err(TaskError::from));
    match kept {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(%plugin, "the file of a policy is not here: what it decides cannot be decided again")
        }
        Err(error) => tracing::warn!(%plugin, %error, "the file of a policy is not kept"),
    }
}
