use super::choice::{Choice, SelectBy};
use super::event::Request;
use super::{Router, Scenario, ScenarioError, Workload};
use crate::{Arrivals, Instant, Streams};
use karman_types::ByteSize;
use std::ops::Range;

/// A workload with its names looked up.
pub(super) struct Flow {
    /// The models that may serve, by their places in the scenario, each with the number of exits of those before it.
    models: Vec<(usize, usize)>,
    /// Which of them serves, where there are several.
    pub(super) choice: Option<Choice>,
    pub(super) arrivals: Arrivals,
    router: Router,
    candidates: Vec<Range<u32>>,
    pub(super) request: ByteSize,
    pub(super) answer: ByteSize,
}

/// The requests of a workload at one node.
pub(super) struct Stream {
    pub(super) workload: u32,
    pub(super) home: u32,
    pub(super) random: fastrand::Rng,
}

impl Flow {
    pub(super) fn new(
        scenario: &Scenario,
        workload: &Workload,
        seeds: &Streams,
        select: &mut SelectBy<'_>,
    ) -> Result<Self, ScenarioError> {
        let groups = match workload.to.is_empty() {
            true => std::slice::from_ref(&workload.at),
            false => &workload.to,
        };
        let candidates: Vec<Range<u32>> = groups.iter().map(|name| nodes_of(scenario, name)).collect();
        let mut exits = 0;
        let place = |name: &String| scenario.models.iter().position(|model| model.name == *name);
        let models = scenario.models_of(workload).into_iter().filter_map(|model| {
            let before = exits;
            exits += model.exits.len();
            Some((place(&model.name)?, before))
        });
        let candidate_count = candidates.iter().map(|range| range.end - range.start).sum();
        Ok(Self {
            models: models.collect(),
            choice: Choice::of(scenario, workload, seeds, select)?,
            arrivals: scenario.arrivals(workload)?,
            router: Router::new(workload.route, candidate_count),
            candidates,
            request: workload.request,
            answer: workload.answer,
        })
    }

    /// The model that serves a request, by its place in the scenario.
    pub(super) fn model(&self, candidate: u32) -> usize {
        self.models[candidate as usize].0
    }

    /// An exit of that model among those of all that may serve.
    pub(super) fn exit(&self, candidate: u32, exit: usize) -> usize {
        self.models[candidate as usize].1 + exit
    }

    /// The node that serves a request of this stream, where each has a load that is known of it.
    pub(super) fn route(&mut self, stream: &mut Stream, load: impl Fn(u32) -> f64) -> u32 {
        let candidates = &self.candidates;
        let chosen = self
            .router
            .choose(&mut stream.random, |place| load(nth(candidates, place)));
        chosen.map_or(stream.home, |place| nth(candidates, place))
    }
}

/// The number of the node that is the `place`th of those that may serve.
fn nth(candidates: &[Range<u32>], mut place: u32) -> u32 {
    for range in candidates {
        let count = range.end - range.start;
        if place < count {
            return range.start + place;
        }
        place -= count;
    }
    0
}

/// Tells the policy that chose the model of a request whether it was answered.
pub(super) fn heard(flows: &mut [Flow], now: Instant, request: Request, answered: bool) {
    if let Some(choice) = &mut flows[request.workload as usize].choice {
        choice.heard(now, request, answered);
    }
}

/// The numbers of the nodes of a group.
pub(super) fn nodes_of(scenario: &Scenario, name: &str) -> Range<u32> {
    let before = scenario.nodes.iter().take_while(|group| group.name != name);
    let first = before.map(|group| group.count).sum();
    let group = scenario.nodes.iter().find(|group| group.name == name);
    first..first + group.map_or(0, |group| group.count)
}
