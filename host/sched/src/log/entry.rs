use crate::select::{
    Ask, Asked, Decision, Fixed, Greedy, Heard, NoChoice, Pixie, ReportError, Selector, Served, Task,
};
use karman_types::TaskId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One line of the log.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Entry {
    /// Which policy it is about: the name of its workflow, say. A later policy of the same name begins with a checkpoint.
    pub policy: String,
    /// Which of several with that name.
    pub instance: u64,
    /// The time of day in milliseconds since 1970, as its node had it.
    pub at_ms: u64,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum What {
    /// The policy as it was then; what follows goes on from it.
    Checkpoint(Box<Checkpoint>),
    /// It decided.
    Chosen(Chosen),
    /// It was told what became of a request.
    Served {
        /// The request.
        request: TaskId,
        /// What became of it.
        heard: Heard,
    },
}

/// A policy and what it decides about.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Checkpoint {
    /// The policy.
    pub state: Policy,
    /// The tasks and their candidates.
    pub tasks: Vec<Task>,
}

/// One decision.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Chosen {
    /// For which request.
    pub request: TaskId,
    /// What was asked.
    pub asked: Asked,
    /// How long ago each candidate was last heard of; nothing for one that only its profile speaks for.
    pub known: Vec<Option<Duration>>,
    /// What was decided.
    pub decision: Decision,
}

/// A policy whose whole state can be written down.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Policy {
    /// See [`Pixie`].
    Pixie(Box<Pixie>),
    /// See [`Greedy`].
    Greedy(Box<Greedy>),
    /// See [`Fixed`].
    Fixed(Box<Fixed>),
}

impl Policy {
    fn selector(&mut self) -> &mut dyn Selector {
        match self {
            Self::Pixie(policy) => &mut **policy,
            Self::Greedy(policy) => &mut **policy,
            Self::Fixed(policy) => &mut **policy,
        }
    }

    /// What it decides.
    ///
    /// # Errors
    /// Those of [`Selector::choose`].
    pub fn choose(&mut self, asked: &Asked) -> Result<Decision, NoChoice> {
        self.selector().choose(&Ask {
            now: asked.now,
            task: asked.task,
            queue: asked.queue,
            unreachable: &asked.unreachable,
        })
    }

    /// Tells it what became of a request.
    ///
    /// # Errors
    /// Those of [`Selector::report`].
    pub fn report(&mut self, heard: &Heard) -> Result<(), ReportError> {
        self.selector().report(&Served {
            now: heard.now,
            queue: heard.queue,
            latency: heard.latency,
            calls: &heard.calls,
        })
    }
}
