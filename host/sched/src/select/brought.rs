mod guest;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod unlogged;

pub use guest::{Choice, Guest};
pub use unlogged::{FailureCounts, Unlogged};

use super::task::check;
use super::{
    Ask, Decision, NoChoice, Pixie, PixieSettings, Reason, ReportError, SelectError, Selector, Served, Task,
    task_of,
};
use crate::plugin::{During, Failed, Failure, Guests, PolicyPlugin, words_of};
use karman_types::Slo;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Failures one after the other after which a policy is left out until the next checkpoint: each costs all the fuel that it has.
const MOST_IN_A_ROW: u32 = 3;
/// The most bytes of what it may save.
const MOST_STATE: usize = 1 << 20;

/// A policy that a plugin brings, with Pixie in reserve: where it fails, Pixie decides, and the failure is told
/// ([`Brought::failures`]).
///
/// Pixie hears everything that the policy hears, so that it knows what is left of the budgets when it is needed. A policy that
/// failed begins again, in an instance of its own, from where it was at the last [checkpoint](Brought::renew).
#[derive(Deserialize, Serialize)]
pub struct Brought {
    plugin: PolicyPlugin,
    tasks: Vec<Task>,
    slo: Slo,
    reserve: Box<Pixie>,
    /// What it saved at the last checkpoint; nothing before the first.
    #[serde(with = "serde_bytes")]
    state: Option<Vec<u8>>,
    /// Failures of its own since it last decided.
    in_a_row: u32,
    #[serde(skip)]
    failures: Vec<Failed>,
    /// How it is to fail when it is next asked or told.
    #[serde(skip)]
    forced: Option<Failure>,
    #[serde(skip)]
    guest: Option<Box<dyn Guest>>,
    #[serde(skip)]
    guests: Option<Arc<dyn Guests>>,
}

impl Brought {
    /// The policy of a plugin for a workflow of these tasks within these limits. It is started when it is first asked.
    ///
    /// # Errors
    /// Names what is wrong with a task, a profile or a limit.
    pub fn new(
        plugin: PolicyPlugin,
        guests: Arc<dyn Guests>,
        tasks: Vec<Task>,
        slo: Slo,
    ) -> Result<Self, SelectError> {
        Ok(Self {
            reserve: Box::new(Pixie::new(tasks.clone(), slo.clone(), PixieSettings::default())?),
            plugin,
            tasks,
            slo,
            state: None,
            in_a_row: 0,
            failures: Vec::new(),
            forced: None,
            guest: None,
            guests: Some(guests),
        })
    }

    /// The plugin.
    pub const fn plugin(&self) -> &PolicyPlugin {
        &self.plugin
    }

    /// What its instances are made by.
    pub(crate) const fn guests(&self) -> Option<&Arc<dyn Guests>> {
        self.guests.as_ref()
    }

    /// Gives one that was read from a log what its instances are made by.
    pub fn attach(&mut self, guests: Arc<dyn Guests>) {
        self.guests = Some(guests);
    }

    /// Whether it can be one that was made: what is read may be anything.
    pub(crate) fn is_whole(&self) -> bool {
        check(&self.tasks, &self.slo).is_ok() && self.reserve.is_whole() && self.reserve.tasks() == self.tasks
    }

    /// The failures since this was last asked, the oldest first.
    pub fn failures(&mut self) -> Vec<Failed> {
        std::mem::take(&mut self.failures)
    }

    /// Lets it fail as it did when it was not its own fault.
    pub(crate) fn force(&mut self, failure: Failure) {
        self.forced = Some(failure);
    }

    /// From here on a new instance decides, which knows what the last one saved and nothing else: so what is written down of this
    /// decides the same. One that was left out is given another chance.
    pub fn renew(&mut self) {
        if let Some(mut guest) = self.guest.take() {
            let saved = guest.save().and_then(|state| match state.len() {
                0..=MOST_STATE => Ok(state),
                bytes => Err(Failure::State {
                    bytes,
                    most: MOST_STATE,
                }),
            });
            match saved {
                Ok(state) => self.state = Some(state),
                Err(failure) => self.failed(During::Save, failure),
            }
        }
        self.in_a_row = 0;
    }

    /// Lets its instance go, where there is one; the next goes on from what this one saved. Whether there was one.
    pub(crate) fn rest(&mut self) -> bool {
        let has_instance = self.guest.is_some();
        if has_instance {
            self.renew();
        }
        has_instance
    }

    /// What the policy decides; nothing where it fails.
    fn decide(&mut self, ask: &Ask<'_>) -> Option<Decision> {
        if self.in_a_row >= MOST_IN_A_ROW {
            let failures = self.in_a_row;
            self.failed(During::Choose, Failure::LeftOut { failures });
            return None;
        }
        let asked = self.running().and_then(|guest| guest.choose(ask));
        match asked.and_then(|choice| self.checked(ask, choice)) {
            Ok(decision) => {
                self.in_a_row = 0;
                Some(decision)
            }
            Err(failure) => {
                self.end(During::Choose, failure);
                None
            }
        }
    }

    fn checked(&self, ask: &Ask<'_>, choice: Choice) -> Result<Decision, Failure> {
        let candidates = self.tasks[ask.task].candidates.len();
        let wrong = |candidate, problem: &str| Failure::Answer {
            candidate,
            problem: problem.into(),
        };
        match choice.chosen {
            chosen if chosen >= candidates => return Err(wrong(chosen, "is none of the task")),
            chosen if !ask.reaches(chosen) => return Err(wrong(chosen, "cannot be reached")),
            _ => {}
        }
        if let Some(runner_up) = choice.runner_up.filter(|other| *other >= candidates) {
            return Err(wrong(runner_up, "is none of the task"));
        }
        Ok(Decision {
            task: ask.task,
            chosen: choice.chosen,
            runner_up: choice.runner_up.filter(|other| *other != choice.chosen),
            reason: Reason::Said(words_of(&choice.because)),
        })
    }

    fn running(&mut self) -> Result<&mut Box<dyn Guest>, Failure> {
        if let Some(failure) = self.forced.take() {
            return Err(failure);
        }
        let guest = match self.guest.take() {
            Some(guest) => guest,
            None => {
                let missing = || Failure::Missing { id: self.plugin.id };
                let guests = self.guests.as_ref().ok_or_else(missing)?;
                guests.start(&self.plugin, &self.tasks, &self.slo, self.state.as_deref())?
            }
        };
        Ok(self.guest.insert(guest))
    }

    /// An instance that failed is not asked again. What the node could not do is not held against the policy.
    fn end(&mut self, during: During, failure: Failure) {
        self.guest = None;
        if !failure.is_of_the_node() {
            self.in_a_row += 1;
        }
        self.failed(during, failure);
    }

    fn failed(&mut self, during: During, failure: Failure) {
        self.failures.push(Failed {
            plugin: self.plugin.to_string(),
            during,
            failure,
        });
    }
}

impl Selector for Brought {
    fn name(&self) -> &str {
        &self.plugin.name
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        task_of(&self.tasks, ask)?;
        match self.decide(ask) {
            Some(decision) => Ok(decision),
            None => self.reserve.choose(ask),
        }
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError> {
        self.reserve.report(served)?;
        if self.in_a_row < MOST_IN_A_ROW {
            let told = self.running().and_then(|guest| guest.report(served));
            if let Err(failure) = told {
                self.end(During::Report, failure);
            }
        }
        Ok(())
    }
}

/// A clone has no instance: it begins at the last checkpoint.
impl Clone for Brought {
    fn clone(&self) -> Self {
        Self {
            plugin: self.plugin.clone(),
            tasks: self.tasks.clone(),
            slo: self.slo.clone(),
            reserve: self.reserve.clone(),
            state: self.state.clone(),
            in_a_row: self.in_a_row,
            failures: Vec::new(),
            forced: None,
            guest: None,
            guests: self.guests.clone(),
        }
    }
}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brought")
            .field("plugin", &self.plugin)
            .field("in_a_row", &self.in_a_row)
            .finish_non_exhaustive()
    }
}
