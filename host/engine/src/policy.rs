//! Policies that plugins bring: `karman:policy`, run so that the same questions get the same answers.
//!
//! A policy has a wasmtime engine of its own, in which numbers are the same on every machine and nothing depends on time: not on a
//! clock, and not on how fast the machine is, because a call is held by its fuel (which counts bytes that are copied, too) and by
//! its memory. It reaches nothing: what its language's library imports is there and traps, but for text on standard error.
//!
//! `karman-sched` has the traits, and decides what happens where a policy fails ([`karman_sched::plugin`]).

mod convert;
mod guest;
mod placer;
mod router;
mod sandbox;
mod text;

pub(crate) use sandbox::{Allowance, Instance, Sandbox, engine, link};

use crate::plugin::{Export, Plugin};
use crate::strategy;
use karman_sched::call::{Order, Taker};
use karman_sched::place::{Fleet, Job, Placement};
use karman_sched::plugin::{Failure, Guests, PolicyPlugin};
use karman_sched::select::{Guest, Task};
use karman_types::{Digest, Limits, Slo, TaskError, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Instances of policies that run at once where [`EngineOptions`](crate::EngineOptions) do not say: each holds its memory.
pub const DEFAULT_INSTANCES: u16 = 64;

/// Units of fuel of one call where the manifest does not say: some 50 ms of a desktop processor, if all of it is used.
pub const DEFAULT_FUEL: u64 = 100_000_000;

/// The most units of fuel of one call: some 5 s of a desktop processor. Nothing else ends a call.
pub const MOST_FUEL: u64 = 10_000_000_000;

/// The fuel that a plugin asks for whose calls nothing but fuel ends, and the most that it may have, where that is less.
pub(crate) fn over(world: World, limits: &Limits) -> Option<(&'static str, String, String)> {
    let most = match world {
        World::PolicySelect | World::PolicyRoute | World::PolicyPlace => MOST_FUEL,
        World::Strategy => strategy::MOST_FUEL,
        _ => return None,
    };
    let fuel = limits.fuel.filter(|fuel| *fuel > most)?;
    Some(("fuel", fuel.to_string(), most.to_string()))
}

impl Plugin {
    /// The policy that it brings, with the limits of its manifest.
    ///
    /// # Errors
    /// `invalid` when it is no policy that selects models.
    pub fn select_policy(&self) -> Result<PolicyPlugin, TaskError> {
        if !matches!(self.export, Export::Select(_)) {
            return Err(self.wrong_world("karman:policy/select"));
        }
        Ok(self.policy())
    }

    /// The same of a policy that puts the nodes that could run a call in order.
    ///
    /// # Errors
    /// `invalid` when it is none.
    pub fn route_policy(&self) -> Result<PolicyPlugin, TaskError> {
        if !matches!(self.export, Export::Route(_)) {
            return Err(self.wrong_world("karman:policy/route"));
        }
        Ok(self.policy())
    }

    /// The same of a policy that places tasks.
    ///
    /// # Errors
    /// `invalid` when it is none.
    pub fn place_policy(&self) -> Result<PolicyPlugin, TaskError> {
        if !matches!(self.export, Export::Place(_)) {
            return Err(self.wrong_world("karman:policy/place"));
        }
        Ok(self.policy())
    }

    fn policy(&self) -> PolicyPlugin {
        let manifest = self.manifest();
        PolicyPlugin {
            name: manifest.name.clone(),
            version: manifest.version.to_string(),
            id: self.package().id,
            fuel: self.limits().fuel.unwrap_or(DEFAULT_FUEL),
            memory: self.limits().memory,
        }
    }

    /// What an instance of a policy is held to, and a place for it.
    fn admit(&self, policy: &PolicyPlugin) -> Result<(Limits, OwnedSemaphorePermit), Failure> {
        // A log says by what limits its policies ran, and may come from anybody.
        let limits = Limits {
            memory: policy.memory,
            fuel: Some(policy.fuel),
            ..self.limits().clone()
        };
        if let Some((limit, asked, most)) = self.engine.over(self.package().world, &limits) {
            let limit = limit.into();
            return Err(Failure::OverLimit { limit, asked, most });
        }
        let place = self.engine.policy_places().clone().try_acquire_owned();
        let most = self.engine.policy_instances();
        let place = place.map_err(|_| Failure::Busy { most })?;
        self.stats.instantiated();
        Ok((limits, place))
    }
}

/// Plugins that bring policies, by the digests of their files.
#[derive(Clone, Debug, Default)]
pub struct Policies(BTreeMap<Digest, Arc<Plugin>>);

impl FromIterator<Arc<Plugin>> for Policies {
    fn from_iter<I: IntoIterator<Item = Arc<Plugin>>>(plugins: I) -> Self {
        let by_id = |plugin: Arc<Plugin>| (plugin.package().id, plugin);
        Self(plugins.into_iter().map(by_id).collect())
    }
}

impl Guests for Policies {
    fn has(&self, plugin: &PolicyPlugin) -> bool {
        self.0.contains_key(&plugin.id)
    }

    fn start(
        &self,
        plugin: &PolicyPlugin,
        tasks: &[Task],
        slo: &Slo,
        state: Option<&[u8]>,
    ) -> Result<Box<dyn Guest>, Failure> {
        let found = self.0.get(&plugin.id).map(|found| (found, &found.export));
        let Some((found, Export::Select(pre))) = found else {
            return Err(Failure::Missing { id: plugin.id });
        };
        let (limits, place) = found.admit(plugin)?;
        let policy = guest::Policy::start(pre, plugin, (&limits, place), (tasks, slo), state)?;
        Ok(Box::new(policy))
    }

    fn order(&self, plugin: &PolicyPlugin, task: &str, takers: &[Taker]) -> Result<Order, Failure> {
        let found = self.0.get(&plugin.id).map(|found| (found, &found.export));
        let Some((found, Export::Route(pre))) = found else {
            return Err(Failure::Missing { id: plugin.id });
        };
        let (limits, _place) = found.admit(plugin)?;
        router::order(pre, (&limits, plugin.fuel), task, takers)
    }

    fn place(
        &self,
        plugin: &PolicyPlugin,
        now: f64,
        jobs: &[Job],
        fleet: &Fleet,
    ) -> Result<Vec<Placement>, Failure> {
        let found = self.0.get(&plugin.id).map(|found| (found, &found.export));
        let Some((found, Export::Place(pre))) = found else {
            return Err(Failure::Missing { id: plugin.id });
        };
        let (limits, _place) = found.admit(plugin)?;
        placer::place(pre, (&limits, plugin.fuel), now, jobs, fleet)
    }
}
