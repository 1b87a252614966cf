#[cfg(test)]
mod tests;

use super::brought::decided;
use super::{BuiltIn, Candidate, Decision, Reason, Situation};
use crate::Why;
use crate::call::ByPlugin;
use crate::plugin::Strikes;
use crate::plugin::{Failed, Failure, Guests, PolicyPlugin};
use karman_types::{NodeId, format_duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::slice;
use std::sync::Arc;
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
        let Some(ByPlugin { name, plugin, said }) = &self.by_plugin else {
            return Ok(Self::by(self.policy, known));
        };
        let decided = match (plugin, said) {
            // That is of the past, and not for the plugin to say again.
            (_, Err(failure)) if failure.is_of_the_node() => Err(failure.clone()),
            (None, _) => Err(Failure::NotHere),
            (Some(plugin), _) => {
                let guests = guests.filter(|guests| guests.has(plugin)).ok_or(plugin)?;
                asked(plugin, guests, &known)
            }
        };
        Ok(placed((name.clone(), plugin.clone()), decided, known))
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

/// The policy that a plugin of this name brings, with FATE in reserve: where it fails, that decides, and the decision says so.
///
/// It is asked in an instance of its own each time, so that nothing counts but what is known. One that has failed three times in a row
/// is not asked for ten seconds.
pub struct ByName {
    name: String,
    plugin: Option<(PolicyPlugin, Arc<dyn Guests>)>,
    strikes: Strikes,
}

impl ByName {
    /// The policy of this name. FATE decides until there is a [plugin](Self::set_plugin).
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            plugin: None,
            strikes: Strikes::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The plugin that brings it now.
    pub fn plugin(&self) -> Option<&PolicyPlugin> {
        self.plugin.as_ref().map(|(plugin, _)| plugin)
    }

    /// From now on this plugin brings it, or none. What another one did is not held against it.
    pub fn set_plugin(&mut self, plugin: Option<(PolicyPlugin, Arc<dyn Guests>)>) {
        *self = Self {
            plugin,
            ..Self::new(std::mem::take(&mut self.name))
        };
    }

    /// Places a step. `now` is since some start.
    pub fn place(&mut self, now: Duration, known: Situation) -> Placed {
        let decided = self.ask(now, &known);
        self.strikes.count(now, decided.as_ref().err());
        placed((self.name.clone(), self.plugin().cloned()), decided, known)
    }

    fn ask(&self, now: Duration, known: &Situation) -> Result<Option<Decision>, Failure> {
        let (plugin, guests) = self.plugin.as_ref().ok_or(Failure::NotHere)?;
        self.strikes.check(now)?;
        asked(plugin, &**guests, known)
    }
}

impl fmt::Debug for ByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByName")
            .field("name", &self.name)
            .field("plugin", &self.plugin())
            .field("strikes", &self.strikes)
            .finish_non_exhaustive()
    }
}

/// What a built-in policy says of the step.
fn decision(policy: BuiltIn, known: &Situation) -> Option<Decision> {
    known.check().ok()?;
    let jobs = slice::from_ref(&known.job);
    let decisions = policy.policy().place(0.0, jobs, &known.fleet);
    decisions.into_iter().find(|decision| decision.task == 0)
}

/// What a plugin says of it, if that can be.
fn asked(plugin: &PolicyPlugin, guests: &dyn Guests, known: &Situation) -> Result<Option<Decision>, Failure> {
    known.check().map_err(|error| Failure::Host {
        why: error.to_string(),
    })?;
    let jobs = slice::from_ref(&known.job);
    let placements = guests.place(plugin, 0.0, jobs, &known.fleet)?;
    let decisions = decided(0.0, jobs, &known.fleet, placements)?;
    Ok(decisions.into_iter().next())
}

fn placed(
    (name, plugin): (String, Option<PolicyPlugin>),
    decided: Result<Option<Decision>, Failure>,
    known: Situation,
) -> Placed {
    let reserve = BuiltIn::default();
    let words = |decision: &Decision| match &decision.reason {
        Reason::Said(words) => words.clone(),
        _ => String::new(),
    };
    let (decision, said) = match decided {
        Ok(decision) => {
            let said = decision.as_ref().map(words).unwrap_or_default();
            (decision, Ok(said))
        }
        Err(failure) => (decision(reserve, &known), Err(failure)),
    };
    Placed {
        policy: reserve,
        by_plugin: Some(ByPlugin { name, plugin, said }),
        known,
        decision,
    }
}
