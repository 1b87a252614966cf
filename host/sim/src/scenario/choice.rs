use super::event::Request;
use super::{ModelEntry, Scenario, ScenarioError, Workload};
use crate::{Instant, Samples, Streams};
use karman_sched::select::{Ask, Bounds, BuiltIn, Call, NotBuiltIn, Selector, Served, Task};
use karman_types::{Binding, Implementation, Profile, Slo};
use std::time::Duration;

/// Calls by which the profile of a model is measured before the run, each alone on an idle node.
const MEASURED: usize = 2_000;

/// Makes the policy of a name that no built-in one has, for a task within limits, or says why not.
pub type SelectBy<'a> = dyn FnMut(NotBuiltIn, Vec<Task>, Slo) -> Result<Box<dyn Selector>, String> + 'a;

/// Which of several models serves each request of a workload.
pub(super) struct Choice {
    /// The name of the workload.
    of: String,
    policy: Box<dyn Selector>,
    /// The place of each candidate among the models of the workload, and its money for a request.
    candidates: Vec<(u32, f64)>,
    /// How long a request may take, where that is limited.
    limit: Option<Duration>,
    under_way: usize,
}

impl Choice {
    /// For a workload with other models besides its own; nothing where there are none.
    pub(super) fn of(
        scenario: &Scenario,
        workload: &Workload,
        seeds: &Streams,
        select: &mut SelectBy<'_>,
    ) -> Result<Option<Self>, ScenarioError> {
        if workload.others.is_empty() {
            return Ok(None);
        }
        let models = scenario.models_of(workload);
        let speed = scenario.speed_for(workload);
        let mut candidates = Vec::new();
        for model in &models {
            let mut random = seeds.stream(&format!("profile {}", model.name), 0);
            candidates.push(Implementation {
                name: model.name.clone(),
                binding: Binding::Model(model.name.clone()),
                profile: measured(model, speed, &mut random)?,
            });
        }
        let slo = workload
            .slo
            .clone()
            .unwrap_or_else(|| Slo::over(Slo::USUAL_REQUESTS));
        let wrong = |error: String| ScenarioError::Select {
            of: workload.name.clone(),
            error,
        };
        // As on a node: who is not as accurate as is wanted is no candidate.
        let met = Bounds::of_each(&slo).met_by(candidates);
        let task = Task {
            name: workload.name.clone(),
            visits: 1.0,
            within: 1.0,
            candidates: met.map_err(|unmet| wrong(unmet.to_string()))?,
        };
        let of_task = (0..).zip(&models);
        let of_task =
            of_task.filter(|(_, model)| task.candidates.iter().any(|known| known.name == model.name));
        let candidates = of_task.map(|(place, model)| (place, model.cost)).collect();
        let limit = slo.latency_p95;
        let name = workload.select.as_deref().unwrap_or(BuiltIn::Pixie.name());
        let policy = match name.parse::<BuiltIn>() {
            Ok(policy) => built_in(policy, vec![task], slo),
            Err(other) => select(other, vec![task], slo),
        };
        Ok(Some(Self {
            of: workload.name.clone(),
            policy: policy.map_err(wrong)?,
            candidates,
            limit,
            under_way: 0,
        }))
    }

    /// The place among the models of the one that serves.
    ///
    /// # Errors
    /// The policy chose none, or one that there is not.
    pub(super) fn choose(&mut self, now: Instant) -> Result<u32, ScenarioError> {
        self.under_way += 1;
        let ask = Ask {
            now: now.since_start(),
            task: 0,
            queue: self.under_way,
            unreachable: &[],
        };
        let error = match self.policy.choose(&ask) {
            Ok(decision) => match self.candidates.get(decision.chosen) {
                Some((model, _)) => return Ok(*model),
                None => {
                    let candidates = self.candidates.len();
                    format!("chose candidate {} of {candidates}", decision.chosen)
                }
            },
            Err(error) => error.to_string(),
        };
        Err(ScenarioError::Select {
            of: self.of.clone(),
            error: format!("{}: {error}", self.policy.name()),
        })
    }

    /// A request has been answered, or refused or lost.
    pub(super) fn heard(&mut self, now: Instant, request: Request, answered: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        let place = |(model, _): &(u32, f64)| *model == request.candidate;
        let Some(candidate) = self.candidates.iter().position(place) else {
            return;
        };
        let call = Call {
            task: 0,
            candidate,
            latency: now.since(request.came),
            cost: self.candidates[candidate].1,
            energy: None,
            right: None,
        };
        let call = match answered {
            true => call,
            false => Call {
                right: Some(false),
                ..call.unanswered(self.limit)
            },
        };
        let served = Served {
            now: now.since_start(),
            queue: self.under_way,
            latency: call.latency,
            calls: &[call],
        };
        let taken_in = self.policy.report(&served);
        debug_assert!(taken_in.is_ok(), "{taken_in:?}");
    }
}

fn built_in(policy: BuiltIn, tasks: Vec<Task>, slo: Slo) -> Result<Box<dyn Selector>, String> {
    let policy = policy.over(tasks, slo).map_err(|error| error.to_string())?;
    Ok(Box::new(policy))
}

/// What `karman flow measure` would find of a model: its deepest exit, one request at a time.
fn measured(model: &ModelEntry, speed: f64, random: &mut fastrand::Rng) -> Result<Profile, ScenarioError> {
    let sampler = model.sampler()?;
    let deepest = model.exits.len().saturating_sub(1);
    let mean = model.mean_seconds(deepest, 1) / speed;
    let mut times = Samples::default();
    for _ in 0..MEASURED {
        times.push(mean * sampler.draw(random));
    }
    let least = Duration::from_nanos(1);
    let time = |seconds: Option<f64>| crate::seconds(seconds.unwrap_or_default()).max(least);
    Ok(Profile {
        accuracy: model.exits.last().map(|exit| exit.accuracy),
        mean: time(times.mean()),
        p50: time(times.percentile(0.5)),
        p95: time(times.percentile(0.95)),
        p99: time(times.percentile(0.99)),
        cost: model.cost,
        energy: None,
        samples: MEASURED as u64,
    })
}

impl Scenario {
    /// The models that may serve a workload, its own first.
    pub(super) fn models_of(&self, workload: &Workload) -> Vec<&ModelEntry> {
        let names = std::iter::once(&workload.model).chain(&workload.others);
        names
            .filter_map(|name| self.models.iter().find(|model| model.name == *name))
            .collect()
    }

    /// How fast the slowest node is that may serve a workload.
    fn speed_for(&self, workload: &Workload) -> f64 {
        let serves = |name: &String| match workload.to.is_empty() {
            true => workload.at == *name,
            false => workload.to.contains(name),
        };
        let speeds = self.nodes.iter().filter(|group| serves(&group.name));
        speeds.map(|group| group.speed).fold(f64::INFINITY, f64::min)
    }
}

#[cfg(test)]
mod tests;
