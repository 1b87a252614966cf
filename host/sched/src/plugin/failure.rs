use karman_types::{ByteSize, Digest, format_duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A failure of a policy that a plugin brings.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Failed {
    /// The plugin, with its version.
    pub plugin: String,
    /// What it was to do.
    pub during: During,
    /// Why it did not.
    pub failure: Failure,
}

/// What a policy was to do when it failed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum During {
    /// Decide: the default one decides instead.
    Choose,
    /// Hear what became of a request.
    Report,
    /// Say what the next instance has to know: that one knows what was said before.
    Save,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let did = match self.during {
            During::Choose => "did not decide, the default did",
            During::Report => "failed when it was told what became of a request",
            During::Save => "failed when it was saved",
        };
        let Self { plugin, failure, .. } = self;
        write!(f, "policy {plugin} {did}: {failure}")
    }
}

/// Why a policy did not do what it was to do.
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
    /// It called what is not there for it.
    #[error("it called `{import}`, which it does not have")]
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
    /// It had a task go where it cannot go, or placed one that is not to be placed.
    #[error("it placed task {task} of job {job}, which {problem}")]
    Placement {
        /// The job, by its id.
        job: u64,
        /// The task, by its place in the job.
        task: usize,
        /// What is wrong with that.
        problem: String,
    },
    /// It did not choose at all.
    #[error("it named nobody")]
    Nobody,
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
    /// It had failed too often, and has no checkpoints at which it begins anew.
    #[error("it had failed {failures} times in a row and is not asked for another {}", format_duration(*pause))]
    Paused {
        /// How often.
        failures: u32,
        /// For how long it is not asked.
        pause: Duration,
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
    /// There is none, or it is a plugin that brings something else.
    #[error("no plugin of this name brings one here")]
    NotHere,
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
        matches!(
            self,
            Self::Busy { .. } | Self::Host { .. } | Self::Paused { .. } | Self::NotHere
        )
    }
}
