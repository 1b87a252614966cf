use crate::call::Picked;
use crate::place::Placed;
use crate::plugin::{Failed, Failure, Guests, PolicyPlugin};
use crate::select::{
    Ask, Asked, Brought, Call, Compass, Decision, Fixed, Greedy, Heard, NoChoice, Pixie, ReportError,
    Selector, Served, Task,
};
use karman_types::{Digest, TaskId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
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
    #[serde(deserialize_with = "whole")]
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

/// What a log has of a policy is none that was ever made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the state of the policy `{policy}` does not fit its tasks: the log is damaged")]
pub struct Damaged {
    /// The policy.
    pub policy: String,
}

/// A policy as it was written down: one that is damaged is refused here, for it would take places of candidates that there are not.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
    let policy = Policy::deserialize(deserializer)?;
    policy.check().map_err(D::Error::custom)?;
    Ok(policy)
}

impl Policy {
    /// Whether it can be one that was made. A [`Checkpoint`] that is read has been asked already.
    ///
    /// # Errors
    /// Names the policy that is damaged.
    pub fn check(&self) -> Result<(), Damaged> {
        let is_whole = match self {
            Self::Pixie(policy) => policy.is_whole(),
            Self::Greedy(policy) => policy.is_whole(),
            Self::Fixed(policy) => policy.is_whole(),
            Self::Brought(policy) => policy.is_whole(),
            Self::Compass(policy) => policy.is_whole(),
        };
        let damaged = || Damaged {
            policy: self.name().to_owned(),
        };
        is_whole.then_some(()).ok_or_else(damaged)
    }

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

#[cfg(test)]
mod tests {
    use super::super::testing::tasks;
    use super::*;
    use crate::select::BuiltIn;
    use crate::select::testing::millis;
    use karman_types::Slo;
    use serde_json::{Value, json};

    fn checkpoint(policy: BuiltIn) -> Value {
        let slo = Slo {
            latency_p95: Some(millis(100.0)),
            ..Slo::over(400)
        };
        let checkpoint = Checkpoint {
            state: policy.over(tasks(80.0), slo).unwrap(),
            tasks: tasks(80.0),
            known_by: None,
        };
        serde_json::to_value(checkpoint).unwrap()
    }

    #[test]
    fn a_policy_is_read_as_it_was_written() {
        for policy in BuiltIn::ALL {
            let read: Checkpoint = serde_json::from_value(checkpoint(policy)).unwrap();
            assert_eq!(read.state.check(), Ok(()), "{}", policy.name());
        }
    }

    #[test]
    fn one_that_is_damaged_is_refused_before_anybody_asks_it() {
        for (policy, part, damaged) in [
            (BuiltIn::Pixie, "Pixie/tasks", json!([])),
            (BuiltIn::Pixie, "Pixie/tasks/0/candidates", json!([])),
            (BuiltIn::Pixie, "Pixie/states", json!([])),
            (BuiltIn::Pixie, "Pixie/states/0/estimates", json!([])),
            (BuiltIn::Pixie, "Pixie/states/0/running", json!([1])),
            (BuiltIn::Pixie, "Pixie/states/0/allotted", json!([1.0])),
            (BuiltIn::Pixie, "Pixie/states/0/credit/current", json!(3)),
            (BuiltIn::Pixie, "Pixie/plan/shares/0", json!([1.0])),
            (BuiltIn::Pixie, "Pixie/ledger/answered", json!(400)),
            (BuiltIn::Pixie, "Pixie/settings/reserve", json!(-1.0)),
            (BuiltIn::Compass, "Compass/ladders", json!([])),
            (BuiltIn::Compass, "Compass/ladders/0/rungs", json!([])),
            (BuiltIn::Compass, "Compass/ladders/0/current", json!(9)),
            (BuiltIn::Compass, "Compass/ladders/0/rungs/0/candidate", json!(9)),
            (BuiltIn::ALL[2], "Greedy/tasks", json!([])),
        ] {
            let mut written = checkpoint(policy);
            let place = written.pointer_mut(&format!("/state/{part}"));
            *place.unwrap_or_else(|| panic!("no {part}")) = damaged;
            let error = serde_json::from_value::<Checkpoint>(written).unwrap_err();
            assert!(
                error.to_string().contains("the log is damaged"),
                "{part}: {error}"
            );
        }
    }
}
