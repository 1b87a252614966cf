//! Policies that plugins bring and tasks that they do, as `cargo xtask guests` has built them: the very components that nodes run.

use anyhow::{Context, Result};
use karman_engine::policy::Policies;
use karman_engine::{Engine, EngineOptions, Plugin};
use karman_sched::plugin::{Guests, PolicyPlugin};
use karman_sched::select::{Brought, FailureCounts, Task, Unlogged};
use karman_types::{CallContext, GrantSet, Manifest, NodeId, Slo, TaskId, TaskRequest, Tier};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// A plugin that brings a policy.
pub(crate) struct Loaded {
    policy: PolicyPlugin,
    guests: Arc<dyn Guests>,
}

/// A plugin that does a task.
pub(crate) struct Tool {
    plugin: Arc<Plugin>,
    runtime: Runtime,
}

/// The policy of the plugin of this name; nothing where it was not built.
pub(crate) fn load(engine: &Engine, name: &str) -> Result<Option<Loaded>> {
    let Some(plugin) = built(engine, name)? else {
        return Ok(None);
    };
    Ok(Some(Loaded {
        policy: plugin.select_policy()?,
        guests: Arc::new([plugin].into_iter().collect::<Policies>()),
    }))
}

/// The plugin of this name; nothing where it was not built.
pub(crate) fn built(engine: &Engine, name: &str) -> Result<Option<Arc<Plugin>>> {
    let path = Path::new("target/guests").join(format!("{name}.wasm"));
    if !path.exists() {
        return Ok(None);
    }
    let file = std::fs::read(&path)?;
    let foreign = |world| Manifest::foreign(name, world);
    let plugin = engine
        .load(&file, &GrantSet::default(), foreign)
        .with_context(|| path.display().to_string())?;
    Ok(Some(plugin))
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

impl Tool {
    /// The plugin of this name; nothing where it was not built.
    pub(crate) fn load(engine: &Engine, name: &str) -> Result<Option<Self>> {
        let Some(plugin) = built(engine, name)? else {
            return Ok(None);
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Some(Self { plugin, runtime }))
    }

    /// What it answers to this.
    pub(crate) fn answer(&self, body: Vec<u8>) -> Result<Vec<u8>> {
        let request = TaskRequest {
            body: body.into(),
            ..TaskRequest::default()
        };
        let context = CallContext {
            task: TaskId::from_parts(0, 0),
            attempt: 1,
            idempotency_key: None,
            within: None,
            node: NodeId::of_key(b"evidence"),
            tier: Tier::Edge,
            chain: Arc::default(),
        };
        let (response, _) = self.runtime.block_on(self.plugin.call(request, context))?;
        Ok(response.body.to_vec())
    }
}
