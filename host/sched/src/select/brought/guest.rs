use super::super::{Ask, Served, Task};
use super::Failure;
use crate::call::{Order, Taker};
use crate::place::{Fleet, Job, Placement};
use karman_types::{ByteSize, Digest, Slo, is_steering};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One instance of a policy that a plugin brings, in its sandbox. After a failure it is not asked again.
pub trait Guest: Send {
    /// Which candidate serves the next call of a task.
    ///
    /// # Errors
    /// It did not decide.
    fn choose(&mut self, ask: &Ask<'_>) -> Result<Choice, Failure>;

    /// What became of a request.
    ///
    /// # Errors
    /// It did not take that in.
    fn report(&mut self, served: &Served<'_>) -> Result<(), Failure>;

    /// All that the next instance has to know.
    ///
    /// # Errors
    /// It did not say.
    fn save(&mut self) -> Result<Vec<u8>, Failure>;
}

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

/// What a policy answers, before anybody has looked whether it can be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// The candidate that serves, by its place in the task.
    pub chosen: usize,
    /// The one that would have served otherwise.
    pub runner_up: Option<usize>,
    /// Why, as the end of a sentence.
    pub because: String,
}

/// Whether people see this character of a text that a guest wrote, and read what is beside it as it stands there: it is no control
/// character, has a width, and does not turn the direction of writing.
pub fn is_shown(c: char) -> bool {
    let hidden = matches!(
        c,
        '\u{ad}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200d}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !is_steering(c) && !hidden
}
