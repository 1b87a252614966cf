use crate::call::Picked;
use crate::place::Placed;
use crate::select::{
    Ask, Asked, Brought, Call, Compass, Decision, Failed, Failure, Fixed, Greedy, Guests, Heard, NoChoice,
    Pixie, PolicyPlugin, ReportError, Selector, Served, Task,
};
use karman_types::{Digest, TaskId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// One line of the log.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Entry {
    /// Which policy it is about: the name of its workflow, say, or that by which the providers of a call are put in order. A later policy of
    /// the same name begins with a checkpoint.
    pub policy: String,
    /// Which of several with that name.
    pub instance: u64,
    /// The time of day in milliseconds since 1970, as its node had it.
    pub at_ms: u64,
    /// What happened.
    pub what: What,
}

/// The content of a log entry.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum What {
    /// The policy as it was then; what follows goes on from it.
    Checkpoint(Box<Checkpoint>),
    /// It decided.
    Chosen(Chosen),
    /// The policy that a plugin brings failed: if it was to decide, the default one does, in the next entry of its kind.
    PolicyFailed {
        /// For which request it was asked or told, or is asked next.
        request: TaskId,
        /// In what, and why.
        failed: Failed,
    },
    /// It was told what became of a request.
    Served {
        /// The request.
        request: TaskId,
        /// What became of it.
        heard: Heard,
    },
    /// The providers of a call were put in order. That takes no checkpoint: all that it was decided by is here. Once the call has been
    /// answered, what it took is [`What::Served`], with the place of who answered as the candidate of task 0.
    Picked {
        /// The request, or the accepted task.
        request: TaskId,
        /// What was decided.
        picked: Picked,
    },
    /// A step of a workflow was placed, in the same way. What it took is [`What::Served`], with the place of the node that ran it.
    Placed {
        /// The run of the workflow.
        request: TaskId,
        /// What was decided.
        placed: Box<Placed>,
    },
}

impl Entry {
    /// The providers of a call were put in order.
    pub fn picked(at_ms: u64, request: TaskId, picked: Picked) -> Self {
        Self {
            policy: picked.policy().into(),
            instance: 0,
            at_ms,
            what: What::Picked { request, picked },
        }
    }

    /// A step of a workflow was placed.
    pub fn placed(at_ms: u64, request: TaskId, placed: Placed) -> Self {
        Self {
            policy: placed.policy().into(),
            instance: 0,
            at_ms,
            what: What::Placed {
                request,
                placed: Box::new(placed),
            },
        }
    }

    /// The node in this place answered the call, or has done the step, this long after that began. The policy by which it was asked is named
    /// as in the [order](Picked::policy), or the [decision](Placed::policy).
    pub fn answered(at_ms: u64, request: TaskId, (policy, place): (&str, usize), took: Duration) -> Self {
        let call = Call {
            task: 0,
            candidate: place,
            latency: took,
            cost: 0.0,
            energy: None,
            right: None,
        };
        let heard = Heard {
            latency: took,
            calls: vec![call],
            ..Heard::default()
        };
        Self {
            policy: policy.into(),
            instance: 0,
            at_ms,
            what: What::Served { request, heard },
        }
    }

    /// The plugin by which later decisions are made again, or this one: a log is whole with its file.
    pub fn plugin(&self) -> Option<&PolicyPlugin> {
        match &self.what {
            What::Checkpoint(checkpoint) => checkpoint.state.plugin(),
            What::Picked { picked, .. } => picked.plugin(),
            What::Placed { placed, .. } => placed.plugin(),
            What::Chosen(_) | What::PolicyFailed { .. } | What::Served { .. } => None,
        }
    }

    /// The same, of this one of the calls that were made for a request: it tells which answer is to which order.
    #[must_use]
    pub fn of_call(self, instance: u64) -> Self {
        Self { instance, ..self }
    }
}

/// A policy and what it decides about.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Checkpoint {
    /// The policy.
    pub state: Policy,
    /// The tasks and their candidates.
    pub tasks: Vec<Task>,
    /// What it is found again by when its node has started again ([`tails`](super::tails())); nothing for one that nobody goes on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<Digest>,
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
    /// See [`Brought`].
    Brought(Box<Brought>),
    /// See [`Compass`].
    Compass(Box<Compass>),
}

impl Policy {
    /// The plugin that brings it, if one does.
    pub fn plugin(&self) -> Option<&PolicyPlugin> {
        match self {
            Self::Brought(policy) => Some(policy.plugin()),
            _ => None,
        }
    }

    /// As it is now, to be written down: what comes next, it decides the same.
    pub(super) fn checkpoint(&mut self) -> Self {
        match self {
            Self::Brought(policy) => policy.renew(),
            Self::Pixie(_) | Self::Greedy(_) | Self::Fixed(_) | Self::Compass(_) => {}
        }
        self.clone()
    }

    /// Gives up what it holds while nobody asks it. Whether that was anything; then the next decision needs a checkpoint.
    pub(super) fn rest(&mut self) -> bool {
        match self {
            Self::Brought(policy) => policy.rest(),
            Self::Pixie(_) | Self::Greedy(_) | Self::Fixed(_) | Self::Compass(_) => false,
        }
    }

    /// Whether it decides by the same rules as another one, whatever either has seen.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let plugin = |policy: &Self| policy.plugin().map(|plugin| plugin.id);
        self.name() == other.name() && plugin(self) == plugin(other)
    }

    /// What plugins are run by, where one brings it.
    pub(super) fn guests(&self) -> Option<&Arc<dyn Guests>> {
        match self {
            Self::Brought(policy) => policy.guests(),
            _ => None,
        }
    }

    /// Gives a policy that was read from a log what plugins are run by.
    pub(super) fn attach(&mut self, guests: &Arc<dyn Guests>) {
        if let Self::Brought(policy) = self {
            policy.attach(guests.clone());
        }
    }

    /// Lets a policy fail as it did then, where that was not its own fault.
    pub(super) fn force(&mut self, failure: &Failure) {
        if let Self::Brought(policy) = self
            && failure.is_of_the_node()
        {
            policy.force(failure.clone());
        }
    }

    /// What failed since it was last asked.
    pub(super) fn failures(&mut self) -> Vec<Failed> {
        match self {
            Self::Brought(policy) => policy.failures(),
            _ => Vec::new(),
        }
    }

    fn selector(&mut self) -> &mut dyn Selector {
        match self {
            Self::Pixie(policy) => &mut **policy,
            Self::Greedy(policy) => &mut **policy,
            Self::Fixed(policy) => &mut **policy,
            Self::Brought(policy) => &mut **policy,
            Self::Compass(policy) => &mut **policy,
        }
    }
}

impl Selector for Policy {
    fn name(&self) -> &str {
        match self {
            Self::Pixie(policy) => policy.name(),
            Self::Greedy(policy) => policy.name(),
            Self::Fixed(policy) => policy.name(),
            Self::Brought(policy) => policy.name(),
            Self::Compass(policy) => policy.name(),
        }
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        self.selector().choose(ask)
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError> {
        self.selector().report(served)
    }
}
