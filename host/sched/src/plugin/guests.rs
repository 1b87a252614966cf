use super::Failure;
use crate::call::{Order, Taker};
use crate::place::{Fleet, Job, Placement};
use crate::select::{Guest, Task};
use karman_types::{ByteSize, Digest, Slo};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Runs policies that plugins bring. The same plugin that is asked the same, with the same state, has to decide the same.
pub trait Guests: Send + Sync {
    /// Whether the file of this plugin is here.
    fn has(&self, plugin: &PolicyPlugin) -> bool;

    /// An instance for these tasks and limits, which goes on from `state` where there is one.
    ///
    /// # Errors
    /// The plugin is not here, or does not begin.
    fn start(
        &self,
        plugin: &PolicyPlugin,
        tasks: &[Task],
        slo: &Slo,
        state: Option<&[u8]>,
    ) -> Result<Box<dyn Guest>, Failure>;

    /// In which order a plugin has the providers of a call tried: asked in an instance of its own, which knows nothing else. Who makes
    /// only instances that select has none that routes.
    ///
    /// # Errors
    /// The plugin is not here, or did not decide.
    fn order(&self, plugin: &PolicyPlugin, _task: &str, _takers: &[Taker]) -> Result<Order, Failure> {
        Err(Failure::Missing { id: plugin.id })
    }

    /// Where a plugin has tasks go, in the same way.
    ///
    /// # Errors
    /// The plugin is not here, or did not decide.
    fn place(
        &self,
        plugin: &PolicyPlugin,
        _now: f64,
        _jobs: &[Job],
        _fleet: &Fleet,
    ) -> Result<Vec<Placement>, Failure> {
        Err(Failure::Missing { id: plugin.id })
    }
}

/// A plugin that brings a policy, and what one call of it may use.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PolicyPlugin {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The digest of its file.
    pub id: Digest,
    /// Units of fuel for one call.
    pub fuel: u64,
    /// Memory of one instance.
    pub memory: ByteSize,
}

impl fmt::Display for PolicyPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}
