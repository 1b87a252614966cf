use super::event::Event;
use super::world::World;
use super::{ModelEntry, NodeGroup, Scenario, ScenarioError, Workload};
use crate::{Arrivals, Failures, Instant, Sampler, Shape, Simulation};
use karman_sched::serve::{Exit, ServedModel};
use karman_space::{Contact, ContactPlan, Time};
use karman_types::NodeId;

/// The time of day at which every run begins: contacts need one, and it must not come from a clock.
pub(super) const DAWN: Time = Time::from_unix_micros(0);

/// The id of the node of this name.
pub(super) fn node_id(name: &str) -> NodeId {
    NodeId::of_key(name.as_bytes())
}

/// Schedules what happens first: an arrival of each stream, samples, failures, the end of the warm-up.
pub(super) fn schedule(scenario: &Scenario, simulation: &mut Simulation<World>) {
    let schedule = simulation.schedule();
    schedule.at(scenario.warm_up.into(), Event::WarmedUp);
    schedule.at(Instant::START, Event::Sample);
    let streams = 0..simulation.model().streams() as u32;
    for stream in streams {
        if let Some(at) = simulation.model_mut().next_arrival(Instant::START, stream) {
            simulation.schedule().at(at, Event::Come { stream });
        }
    }
    for node in 0..simulation.model().nodes() as u32 {
        if let Some((at, event)) = simulation.model_mut().next_failure(node) {
            simulation.schedule().at(at, event);
        }
    }
}

/// When a node of this group fails, if it does.
pub(super) fn failures(group: &NodeGroup, random: fastrand::Rng) -> Option<Failures> {
    let entry = group.failures?;
    let shape = Shape::Exponential.sampler().expect("it has no numbers");
    Some(Failures::new(
        (entry.mean_up, shape),
        (entry.mean_down, shape),
        random,
    ))
}

impl Scenario {
    pub(super) fn arrivals(&self, workload: &Workload) -> Result<Arrivals, ScenarioError> {
        let of = || format!("workload {}", workload.name);
        let gaps = workload.gaps.sampler();
        let gaps = gaps.map_err(|error| ScenarioError::Shape { of: of(), error })?;
        let later = workload.steps.iter().map(|step| (step.at.into(), step.rate));
        let steps = [(Instant::START, workload.rate)].into_iter().chain(later);
        Arrivals::varying(steps.collect(), gaps).map_err(|error| ScenarioError::Arrivals { of: of(), error })
    }

    pub(super) fn plan(&self) -> Result<ContactPlan, ScenarioError> {
        let contacts = self.contacts.iter().flat_map(|entry| {
            let there = Contact {
                from: node_id(&entry.from),
                to: node_id(&entry.to),
                start: DAWN + entry.start,
                end: DAWN + entry.end,
                rate: entry.rate,
                delay: entry.delay,
            };
            let back = Contact {
                from: there.to,
                to: there.from,
                ..there
            };
            [there].into_iter().chain(entry.both_ways.then_some(back))
        });
        Ok(ContactPlan::new(contacts.collect())?)
    }
}

impl ModelEntry {
    pub(super) fn sampler(&self) -> Result<Sampler, ScenarioError> {
        self.variation.sampler().map_err(|error| ScenarioError::Shape {
            of: format!("model {}", self.name),
            error,
        })
    }

    /// How long a batch takes on average, in seconds at speed 1.
    pub(super) fn mean_seconds(&self, exit: usize, batch: usize) -> f64 {
        let exit = &self.exits[exit];
        exit.time.as_secs_f64() + batch.saturating_sub(1) as f64 * exit.each_more.as_secs_f64()
    }

    /// What a policy knows of it on a node of this speed.
    pub(super) fn profile(&self, speed: f64) -> Result<ServedModel, ScenarioError> {
        let planned = self.sampler()?.percentile_95() / speed;
        let largest = self.batch.min(ServedModel::MOST);
        let time = |exit, batch| crate::seconds(self.mean_seconds(exit, batch) * planned);
        let exits = (0..self.exits.len()).map(|index| Exit {
            depth: index as u32 + 1,
            accuracy: self.exits[index].accuracy,
            times: (1..=largest).map(|batch| (batch, time(index, batch))).collect(),
        });
        ServedModel::new(self.slo, self.batch, exits.collect()).map_err(|error| ScenarioError::Profile {
            of: format!("model {}", self.name),
            error,
        })
    }
}
