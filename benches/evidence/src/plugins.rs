//! Policies that plugins bring, as `cargo xtask guests` has built them: the very components that nodes run.

use anyhow::{Context, Result};
use karman_engine::policy::Policies;
use karman_engine::{Engine, EngineOptions, Plugin};
use karman_sched::select::{Brought, FailureCounts, Guests, PolicyPlugin, Task, Unlogged};
use karman_types::{GrantSet, Manifest, Slo};
use std::path::Path;
use std::sync::Arc;

/// A plugin that brings a policy.
pub(crate) struct Loaded {
    policy: PolicyPlugin,
    guests: Arc<dyn Guests>,
}

/// The plugin of this name; nothing where it was not built.
pub(crate) fn load(engine: &Engine, name: &str) -> Result<Option<Loaded>> {
    let path = Path::new("target/guests").join(format!("{name}.wasm"));
    if !path.exists() {
        return Ok(None);
    }
    let file = std::fs::read(&path)?;
    let foreign = |world| Manifest::foreign(name, world);
    let plugin: Arc<Plugin> = engine
        .load(&file, &GrantSet::default(), foreign)
        .with_context(|| path.display().to_string())?;
    Ok(Some(Loaded {
        policy: plugin.select_policy()?,
        guests: Arc::new([plugin].into_iter().collect::<Policies>()),
    }))
}

/// What plugins run in.
pub(crate) fn engine() -> Result<Engine> {
    Ok(Engine::new(EngineOptions::default())?)
}

impl Loaded {
    /// Its policy for these tasks within these limits; failures are counted.
    pub(crate) fn over(&self, tasks: &[Task], slo: &Slo, failures: &FailureCounts) -> Result<Unlogged> {
        let policy = Brought::new(
            self.policy.clone(),
            self.guests.clone(),
            tasks.to_vec(),
            slo.clone(),
        )?;
        Ok(Unlogged::new(policy, failures.clone()))
    }
}
