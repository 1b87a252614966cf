use super::strikes::Strikes;
use super::{During, Failed, Failure, Guests, PolicyPlugin, words_of};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The policy that a plugin of this name brings, whichever that is at the time.
///
/// It is asked in an instance of its own each time, so that nothing counts but what it is shown. One that has failed three times in a row
/// is not asked for ten seconds.
pub struct ByName {
    name: String,
    plugin: Option<(PolicyPlugin, Arc<dyn Guests>)>,
    strikes: Strikes,
}

/// A decision that can be left to a plugin: where that fails, the default decides, and the decision says so. It holds all that it was
/// decided by, so that the plugin's file alone makes it again.
pub trait Decided: Sized {
    /// All that it is decided by.
    type Known;
    /// What a plugin answers.
    type Answer;

    /// What a plugin answers, if that can be, and why, as the end of a sentence.
    ///
    /// # Errors
    /// The plugin is not here, or did not decide.
    fn ask(
        known: &Self::Known,
        plugin: &PolicyPlugin,
        guests: &dyn Guests,
    ) -> Result<(Self::Answer, String), Failure>;

    /// The decision by what the plugin answered, or by the default where there is no answer.
    fn made(known: Self::Known, answer: Option<Self::Answer>, by_plugin: ByPlugin) -> Self;
}

/// What a plugin had to do with a decision.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ByPlugin {
    /// By which name the policy was asked for.
    pub name: String,
    /// The plugin; nothing where there was none of that name.
    pub plugin: Option<PolicyPlugin>,
    /// Why it decided as it did, or why the default did.
    pub said: Result<String, Failure>,
}

impl ByName {
    /// The policy of this name. The default decides until there is a [plugin](Self::set_plugin).
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

    /// Decides by the plugin, or by the default. `now` is since some start.
    pub fn decide<D: Decided>(&mut self, now: Duration, known: D::Known) -> D {
        let asked = self.ask(now, |plugin, guests| D::ask(&known, plugin, guests));
        decided((self.name.clone(), self.plugin().cloned()), asked, known)
    }

    /// What the plugin says to a question, unless it is left alone for a while.
    pub(crate) fn ask<T>(
        &mut self,
        now: Duration,
        question: impl FnOnce(&PolicyPlugin, &dyn Guests) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (plugin, guests) = self.plugin.as_ref().ok_or(Failure::NotHere)?;
        let asked = self.strikes.check(now).and_then(|()| question(plugin, &**guests));
        self.strikes.count(now, asked.as_ref().err());
        asked
    }

    /// A failure of it to decide.
    pub(crate) fn failed(&self, failure: Failure) -> Failed {
        failed((&self.name, self.plugin()), failure)
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

impl ByPlugin {
    /// Why the default decided, where it did.
    pub fn failed(&self) -> Option<Failed> {
        let failure = self.said.as_ref().err()?.clone();
        Some(failed((&self.name, self.plugin.as_ref()), failure))
    }

    /// The same decision, made once more by the plugin. What was not the plugin's own fault is taken as it was written down.
    ///
    /// # Errors
    /// The plugin that is not here.
    pub(crate) fn again<D: Decided>(
        &self,
        guests: Option<&dyn Guests>,
        known: D::Known,
    ) -> Result<D, &PolicyPlugin> {
        let asked = match (&self.plugin, &self.said) {
            (_, Err(failure)) if failure.is_of_the_node() => Err(failure.clone()),
            (None, _) => Err(Failure::NotHere),
            (Some(plugin), _) => {
                let guests = guests.filter(|guests| guests.has(plugin)).ok_or(plugin)?;
                D::ask(&known, plugin, guests)
            }
        };
        Ok(decided((self.name.clone(), self.plugin.clone()), asked, known))
    }
}

fn decided<D: Decided>(
    (name, plugin): (String, Option<PolicyPlugin>),
    asked: Result<(D::Answer, String), Failure>,
    known: D::Known,
) -> D {
    let (answer, said) = match asked {
        Ok((answer, because)) => (Some(answer), Ok(words_of(&because))),
        Err(failure) => (None, Err(failure)),
    };
    D::made(known, answer, ByPlugin { name, plugin, said })
}

/// The plugin is named with its version, where there is one.
fn failed((name, plugin): (&str, Option<&PolicyPlugin>), failure: Failure) -> Failed {
    Failed {
        plugin: plugin.map_or_else(|| name.to_owned(), ToString::to_string),
        during: During::Choose,
        failure,
    }
}
