#[cfg(test)]
mod tests;

use super::brought::asked;
use super::{BuiltIn, Candidate, Decision, Reason, Situation};
use crate::Why;
use crate::plugin::{ByPlugin, Decided, Failed, Failure, Guests, PolicyPlugin};
use karman_types::{NodeId, format_duration};
use serde::{Deserialize, Serialize};
use std::slice;
use std::time::Duration;

/// Where a step of a workflow goes, with all that it was decided by.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Placed {
    /// The policy. Where a plugin brings one, the one that decides where that does not.
    pub policy: BuiltIn,
    /// What a plugin had to do with it, where one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_plugin: Option<ByPlugin>,
    /// What was known.
    pub known: Situation,
    /// Where it goes; nothing where the policy did not say.
    pub decision: Option<Decision>,
}

impl Placed {
    /// Places a step.
    pub fn by(policy: BuiltIn, known: Situation) -> Self {
        Self {
            policy,
            by_plugin: None,
            decision: decision(policy, &known),
            known,
        }
    }

    /// The same, decided once more.
    ///
    /// # Errors
    /// The plugin that it takes, which is not here.
    pub fn again(&self, guests: Option<&dyn Guests>) -> Result<Self, &PolicyPlugin> {
        let known = self.known.clone();
        match &self.by_plugin {
            Some(by_plugin) => by_plugin.again(guests, known),
            None => Ok(Self::by(self.policy, known)),
        }
    }

    /// By which name the policy is known.
    pub fn policy(&self) -> &str {
        let by_plugin = self.by_plugin.as_ref();
        by_plugin.map_or_else(|| self.policy.name(), |by_plugin| by_plugin.name.as_str())
    }

    /// The plugin that was asked, where one was.
    pub fn plugin(&self) -> Option<&PolicyPlugin> {
        self.by_plugin.as_ref()?.plugin.as_ref()
    }

    /// Why the default decided in the place of a plugin, where it did.
    pub fn failed(&self) -> Option<Failed> {
        self.by_plugin.as_ref()?.failed()
    }

    /// The place of the node that it goes to, among those that were known. One that is busy is worth waiting for: nobody looks again, and
    /// what is asked there waits.
    pub fn chosen(&self) -> Option<usize> {
        let decision = self.decision.as_ref()?;
        match (&decision.chosen, &decision.reason) {
            (Some(chosen), _) => Some(chosen.node),
            (None, Reason::Waits { node, .. }) => Some(*node),
            (None, _) => None,
        }
    }

    /// The node that it goes to.
    pub fn node(&self) -> Option<NodeId> {
        self.node_at(self.chosen()?)
    }

    /// The decision in plain words.
    pub fn why(&self) -> Why {
        let question = format!("where `{}` runs", self.known.step);
        let Some(node) = self.node() else {
            return Why::new(question, "where a call of it goes", self.because());
        };
        let why = Why::new(question, node.short(), self.because());
        match self.runner_up().and_then(|other| self.node_at(other.node)) {
            Some(other) => why.rather_than(other.short()),
            None => why,
        }
    }

    /// The same, and what failed in a plugin.
    pub fn told(&self) -> String {
        let why = self.why();
        match self.failed() {
            Some(failed) => format!("{why}; {failed}"),
            None => why.to_string(),
        }
    }

    /// A log from elsewhere may name places that are not there.
    fn node_at(&self, place: usize) -> Option<NodeId> {
        self.known.fleet.nodes.get(place).map(|node| node.id)
    }

    fn runner_up(&self) -> Option<Candidate> {
        self.decision.as_ref()?.runner_up
    }

    fn because(&self) -> String {
        let Some(decision) = &self.decision else {
            return "the policy names no node for it now".into();
        };
        let other = self.runner_up();
        let other = other.and_then(|other| Some((self.node_at(other.node)?.short(), other)));
        match (&decision.reason, &decision.chosen, other) {
            (Reason::Said(words), ..) => words.clone(),
            (Reason::NoRoom, ..) => "no node that can be reached holds what it takes".into(),
            (Reason::Waits { node, until }, ..) => {
                let node = self
                    .node_at(*node)
                    .map_or_else(|| "the best".into(), |node| node.short());
                format!(
                    "{node}, which would be best, is busy for another {}",
                    time(*until)
                )
            }
            (Reason::FutureState { cost, future }, _, other) => {
                let there = format!("it is done there within {}", time(*cost));
                let after = format!("what comes after counts as {} more", time(*future));
                match other {
                    Some((other, candidate)) => format!(
                        "{there} and {after}, which is {} in all, and {} at {other}",
                        time(cost + future),
                        time(candidate.score)
                    ),
                    None => format!("{there}, {after}, and no other holds what it takes"),
                }
            }
            (Reason::LeastLoaded, ..) => "the least waits there".into(),
            (_, Some(chosen), Some((other, candidate))) => format!(
                "it is done there within {}, and within {} at {other}",
                time(chosen.finish),
                time(candidate.finish)
            ),
            (..) => "no other holds what it takes".into(),
        }
    }
}

fn time(seconds: f64) -> String {
    format_duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// By a plugin that places. What it cannot, [`BuiltIn::default`] does.
impl Decided for Placed {
    type Known = Situation;
    /// Where the step goes; nothing where the plugin does not say.
    type Answer = Option<Decision>;

    fn ask(
        known: &Situation,
        plugin: &PolicyPlugin,
        guests: &dyn Guests,
    ) -> Result<(Option<Decision>, String), Failure> {
        known.check().map_err(|error| Failure::Host {
            why: error.to_string(),
        })?;
        let jobs = slice::from_ref(&known.job);
        let decision = asked((plugin, guests), 0.0, jobs, &known.fleet)?
            .into_iter()
            .next();
        let because = match &decision {
            Some(Decision {
                reason: Reason::Said(words),
                ..
            }) => words.clone(),
            _ => String::new(),
        };
        Ok((decision, because))
    }

    fn made(known: Situation, answer: Option<Option<Decision>>, by_plugin: ByPlugin) -> Self {
        let reserve = BuiltIn::default();
        Self {
            policy: reserve,
            by_plugin: Some(by_plugin),
            decision: answer.unwrap_or_else(|| decision(reserve, &known)),
            known,
        }
    }
}

/// What a built-in policy says of the step.
fn decision(policy: BuiltIn, known: &Situation) -> Option<Decision> {
    known.check().ok()?;
    let jobs = slice::from_ref(&known.job);
    let decisions = policy.policy().place(0.0, jobs, &known.fleet);
    decisions.into_iter().find(|decision| decision.task == 0)
}
