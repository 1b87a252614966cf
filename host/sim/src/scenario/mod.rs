//! Scenarios: nodes, links, models and workloads written down in a TOML file, run, and summed up.
//!
//! | file | what |
//! |---|---|
//! | `describe` | what is written in the file |
//! | `check` | what must fit together before it runs |
//! | `event`, `world`, `build` | the model: requests come, are routed, wait, are served by the policy of their node, and are answered |
//! | `choice` | which of several models serves a request |
//! | `flow`, `router`, `host` | a workload, and where its requests go; one simulated node |
//! | `tally`, `outcome`, `files` | what is counted, what came of it, as tables and plots |

mod build;
mod check;
mod choice;
mod describe;
mod event;
mod files;
mod flow;
mod host;
mod outcome;
mod router;
mod tally;
mod world;

pub use check::ScenarioError;
pub use choice::SelectBy;
pub use describe::{
    ContactEntry, ExitEntry, FailureEntry, ModelEntry, NodeGroup, RateStep, Route, Scenario, ServePolicy,
    TelemetryEntry, Workload,
};
pub use event::Event;
pub use outcome::{Answer, GroupOutcome, Outcome, PolicyFailure, Verdict, WorkloadOutcome};
pub use router::Router;

use crate::{Instant, Simulation};
use karman_sched::select::{NotBuiltIn, Selector, Task};
use karman_sched::serve::Serve;
use karman_types::Slo;
use world::World;

/// Runs a scenario from its file, and returns the files that hold its outcome, each with its name: what
/// `karman sim run` writes into a folder. `seed` replaces the one in the text.
///
/// ```
/// let text = r#"
///     length = "60 s"
///
///     [[model]]
///     name = "digits"
///     slo = "50 ms"
///     batch = 8
///     exit = [
///         { accuracy = 0.6, time = "2 ms", each-more = "1 ms" },
///         { accuracy = 0.8, time = "6 ms", each-more = "2 ms" },
///     ]
///
///     [[node]]
///     name = "board"
///     serve = "edgeserving"
///
///     [[workload]]
///     name = "camera"
///     model = "digits"
///     at = "board"
///     rate = 400.0
/// "#;
/// let (outcome, files) = karman_sim::run_scenario(text, Some(7))?;
/// // The deep exit alone could not keep up with 400 requests a second.
/// let camera = &outcome.workloads[0];
/// assert!(camera.violations() < 0.01 && camera.answered_by_exit[0] > 0);
/// assert!(files.iter().any(|(name, _)| name == "responses.svg"));
/// # Ok::<(), karman_sim::ScenarioError>(())
/// ```
///
/// # Errors
/// [`ScenarioError`] says what in the text does not fit, or which policy chose what is not there.
pub fn run_scenario(
    text: &str,
    seed: Option<u64>,
) -> Result<(Outcome, Vec<(String, String)>), ScenarioError> {
    let instead = Instead { seed, select: None };
    let outcome = run_scenario_with(text, &instead, &mut no_plugin)?;
    let files = outcome.files();
    Ok((outcome, files))
}

/// What stands in the place of what a scenario says, in one run of it.
#[derive(Clone, Debug, Default)]
pub struct Instead {
    /// Of its seed.
    pub seed: Option<u64>,
    /// Of the policies that choose a model, in all workloads where there is a choice.
    pub select: Option<String>,
}

/// Runs a scenario from its file with policies that plugins bring: `select` makes the one of a name that no built-in one has.
///
/// # Errors
/// As [`run_scenario`], and those of `select`; [`ScenarioError::NoChoice`] where a policy is named and none chooses.
pub fn run_scenario_with(
    text: &str,
    instead: &Instead,
    select: &mut SelectBy<'_>,
) -> Result<Outcome, ScenarioError> {
    let mut scenario = Scenario::from_toml(text)?;
    scenario.seed = instead.seed.unwrap_or(scenario.seed);
    if let Some(policy) = &instead.select {
        scenario.select_by(policy)?;
    }
    let serve = |group: &NodeGroup| group.serve.policy(group.refuse_late);
    scenario.run_by(serve, select, |_, _| ())
}

/// There is no other policy than the built-in ones.
fn no_plugin(named: NotBuiltIn, _: Vec<Task>, _: Slo) -> Result<Box<dyn Selector>, String> {
    Err(named.to_string())
}

impl Scenario {
    /// Runs it, each node with the policy that the scenario names.
    ///
    /// # Errors
    /// As [`run_scenario`].
    pub fn run(&self) -> Result<Outcome, ScenarioError> {
        self.run_with(|group| group.serve.policy(group.refuse_late))
    }

    /// Runs it with a policy for each node that the caller makes.
    ///
    /// # Errors
    /// As [`run_scenario`].
    pub fn run_with(
        &self,
        policy: impl FnMut(&NodeGroup) -> Box<dyn Serve>,
    ) -> Result<Outcome, ScenarioError> {
        self.run_traced(policy, |_, _| ())
    }

    /// The same, while someone looks at every event.
    ///
    /// # Errors
    /// As [`run_scenario`].
    pub fn run_traced(
        &self,
        policy: impl FnMut(&NodeGroup) -> Box<dyn Serve>,
        look: impl FnMut(Instant, &Event),
    ) -> Result<Outcome, ScenarioError> {
        self.run_by(policy, &mut no_plugin, look)
    }

    /// Has this policy choose wherever there is a choice.
    fn select_by(&mut self, policy: &str) -> Result<(), ScenarioError> {
        let choosing = self.workloads.iter_mut().filter(|of| !of.others.is_empty());
        let chosen = choosing.map(|of| of.select = Some(policy.into())).count();
        match chosen {
            0 => Err(ScenarioError::NoChoice(policy.into())),
            _ => Ok(()),
        }
    }

    fn run_by(
        &self,
        policy: impl FnMut(&NodeGroup) -> Box<dyn Serve>,
        select: &mut SelectBy<'_>,
        look: impl FnMut(Instant, &Event),
    ) -> Result<Outcome, ScenarioError> {
        self.check()?;
        let mut simulation = Simulation::new(World::new(self, policy, select)?);
        build::schedule(self, &mut simulation);
        simulation.run_observed(self.length.into(), look);
        let events = simulation.events();
        simulation.into_model().outcome(events)
    }
}

#[cfg(test)]
mod tests;
