use super::super::{Ask, Served, Task};
use karman_types::{ByteSize, Digest, Slo};
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

/// Makes instances of policies. The same plugin with the same state has to decide the same.
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

/// Why a policy did not decide.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Failure {
    /// Its fuel was over.
    #[error("it used up its {fuel} units of fuel")]
    Fuel {
        /// What one call has.
        fuel: u64,
    },
    /// It wanted more memory than it may have.
    #[error("it needed more than its {memory} of memory")]
    Memory {
        /// What an instance has.
        memory: ByteSize,
    },
    /// It ran into a wall of its own.
    #[error("it trapped: {trap}")]
    Trapped {
        /// The trap, and what it wrote to standard error before.
        trap: String,
    },
    /// It called what no policy has.
    #[error("it called `{import}`, which no policy has")]
    Forbidden {
        /// The function of the host.
        import: String,
    },
    /// It said so.
    #[error("it says: {why}")]
    Refused {
        /// Its words.
        why: String,
    },
    /// It chose what cannot be chosen.
    #[error("it named candidate {candidate}, which {problem}")]
    Answer {
        /// The candidate.
        candidate: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// It wants more kept than there is room for.
    #[error("its state has {bytes} bytes; {most} are kept at most")]
    State {
        /// What it gave.
        bytes: usize,
        /// What is kept.
        most: usize,
    },
    /// It had failed too often.
    #[error("it had failed {failures} times in a row and is left out until the next checkpoint")]
    LeftOut {
        /// How often.
        failures: u32,
    },
    /// It is to run by limits that nobody has here: so says somebody's log.
    #[error("it is to have a `{limit}` of {asked}; {most} is the most here")]
    OverLimit {
        /// Which limit.
        limit: String,
        /// What it is to have.
        asked: String,
        /// What there is.
        most: String,
    },
    /// Its file is not here.
    #[error("its component {} is not here", id.short())]
    Missing {
        /// The digest of the file.
        id: Digest,
    },
    /// What it gave cannot be read: a list that is too long, a text that is none.
    #[error("it gave what cannot be read: {why}")]
    Unreadable {
        /// Why.
        why: String,
    },
    /// There was no place for another instance.
    #[error("{most} policies run on this node already")]
    Busy {
        /// How many may.
        most: usize,
    },
    /// The host could not run it.
    #[error("the host could not run it: {why}")]
    Host {
        /// Why.
        why: String,
    },
}

impl Failure {
    /// Whether it says nothing of the policy: a replay takes it from the log.
    pub(crate) const fn is_of_the_node(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Host { .. })
    }
}
