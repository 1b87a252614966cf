use super::route::{fastest, takes};
use super::{Route, Taker};
use crate::Why;
use crate::plugin::{ByPlugin, Failed, Guests, PolicyPlugin};
use karman_types::{NodeId, format_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The order in which the providers of a call are tried, with all that it was decided by.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Picked {
    /// The policy. Where a plugin brings one, the default, which has the places that the plugin does not name.
    pub route: Route,
    /// What a plugin had to do with it, where one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_plugin: Option<ByPlugin>,
    /// The task, as it was asked for.
    pub task: String,
    /// The providers, as they were known.
    pub takers: Vec<Taker>,
    /// Their places, in the order in which they are tried.
    pub order: Vec<usize>,
}

impl Picked {
    /// Puts the providers of a task in order.
    pub fn by(route: Route, task: impl Into<String>, takers: Vec<Taker>) -> Self {
        Self {
            route,
            by_plugin: None,
            task: task.into(),
            order: route.order(&takers),
            takers,
        }
    }

    /// The same, decided once more.
    ///
    /// # Errors
    /// The plugin that it takes, which is not here.
    pub fn again(&self, guests: Option<&dyn Guests>) -> Result<Self, &PolicyPlugin> {
        match &self.by_plugin {
            Some(by_plugin) => by_plugin.again(guests, (self.task.clone(), self.takers.clone())),
            None => Ok(Self::by(self.route, self.task.as_str(), self.takers.clone())),
        }
    }

    /// By which name the policy is known.
    pub fn policy(&self) -> &str {
        let by_plugin = self.by_plugin.as_ref();
        by_plugin.map_or_else(|| self.route.name(), |by_plugin| by_plugin.name.as_str())
    }

    /// The plugin that was asked, where one was.
    pub fn plugin(&self) -> Option<&PolicyPlugin> {
        self.by_plugin.as_ref()?.plugin.as_ref()
    }

    /// Why the default decided in the place of a plugin, where it did.
    pub fn failed(&self) -> Option<Failed> {
        self.by_plugin.as_ref()?.failed()
    }

    /// The one that is tried first.
    pub fn first(&self) -> Option<&Taker> {
        self.tried().next()
    }

    /// The decision in plain words.
    pub fn why(&self) -> Why {
        let question = format!("who runs `{}`", self.task);
        let mut tried = self.tried();
        match (tried.next(), tried.next()) {
            (None, _) => Why::new(question, "nobody", "nobody offers it"),
            (Some(first), None) => Why::new(question, first.node.short(), "no other offers it"),
            (Some(first), Some(second)) => {
                Why::new(question, first.node.short(), self.because(first, second))
                    .rather_than(second.node.short())
            }
        }
    }

    /// The same, what failed in a plugin, and who answered, if that was not the first.
    pub fn told(&self, answered: NodeId) -> String {
        let mut told = self.why().to_string();
        if let Some(failed) = self.failed() {
            told = format!("{told}; {failed}");
        }
        match self.first() {
            Some(first) if first.node != answered => {
                format!("{told}; {} answered instead", answered.short())
            }
            _ => told,
        }
    }

    /// A log from elsewhere may name places that are not there.
    fn tried(&self) -> impl Iterator<Item = &Taker> {
        self.order.iter().filter_map(move |place| self.takers.get(*place))
    }

    fn because(&self, first: &Taker, second: &Taker) -> String {
        if let Some(ByPlugin { said: Ok(words), .. }) = &self.by_plugin {
            return words.clone();
        }
        let other = second.node.short();
        if let (None, Some(ago)) = (first.failed, second.failed) {
            return format!("{other} did not answer {} before", format_duration(ago));
        }
        let fastest = fastest(&self.takers);
        let (backlog, time) = self.route.rank(first, fastest);
        let (others_backlog, others_time) = self.route.rank(second, fastest);
        if backlog != others_backlog {
            let calls = |taker: &Taker| format!("{} calls on {} cores", taker.busy, taker.cores);
            return format!("it has {} and {other} has {}", calls(first), calls(second));
        }
        let (time, others_time) = (told(time), told(others_time));
        let is_least = |taker: &Taker| taker.outlasted == Some(takes(taker, fastest));
        let is_hoped = first.takes.is_none() && !is_least(first);
        let (when, others_when) = (bound(is_least(first)), bound(is_least(second)));
        match self.route {
            _ if time == others_time => "nothing that is known tells them apart".to_owned(),
            Route::NearestFree => format!("it is {time} away and {other} is {others_time}"),
            _ if is_hoped && fastest.is_some() => {
                format!(
                    "it was not measured lately and may answer within {time}, {other} {others_when} {others_time}"
                )
            }
            _ => format!(
                "its answer is expected {when} {time} and that of {other} {others_when} {others_time}"
            ),
        }
    }
}

/// What a time is to an answer that was waited for so long in vain, and to others.
const fn bound(is_least: bool) -> &'static str {
    match is_least {
        true => "not before",
        false => "within",
    }
}

fn told(time: Duration) -> String {
    match time == Duration::MAX {
        true => "an unknown time".to_owned(),
        false => format_duration(time),
    }
}
