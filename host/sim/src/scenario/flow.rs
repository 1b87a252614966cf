use super::{Route, Scenario, ScenarioError, Workload};
use crate::Arrivals;
use karman_types::ByteSize;
use std::ops::Range;

/// A workload with its names looked up.
pub(super) struct Flow {
    pub(super) model: usize,
    pub(super) arrivals: Arrivals,
    route: Route,
    candidates: Vec<Range<u32>>,
    candidate_count: u32,
    last: u32,
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
    pub(super) fn new(scenario: &Scenario, workload: &Workload) -> Result<Self, ScenarioError> {
        let groups = match workload.to.is_empty() {
            true => std::slice::from_ref(&workload.at),
            false => &workload.to,
        };
        let candidates: Vec<Range<u32>> = groups.iter().map(|name| nodes_of(scenario, name)).collect();
        let model = scenario
            .models
            .iter()
            .position(|model| model.name == workload.model);
        let candidate_count = candidates.iter().map(|range| range.end - range.start).sum();
        Ok(Self {
            model: model.unwrap_or_default(),
            arrivals: scenario.arrivals(workload)?,
            route: workload.route,
            candidates,
            candidate_count,
            // So that the first turn is the first one's.
            last: candidate_count - 1,
            request: workload.request,
            answer: workload.answer,
        })
    }

    /// The node that serves a request of this stream, where each has a load that is known of it.
    pub(super) fn route(&mut self, stream: &mut Stream, load: impl Fn(u32) -> f64) -> u32 {
        let count = self.candidate_count;
        self.last = match self.route {
            Route::Here => return stream.home,
            Route::Random => stream.random.u32(..count),
            Route::RoundRobin => (self.last + 1) % count,
            Route::LeastLoaded => {
                let order = (1..=count).map(|step| (self.last + step) % count);
                let loads = order.map(|index| (load(self.candidate(index)), index));
                loads
                    .min_by(|a, b| a.0.total_cmp(&b.0))
                    .map_or(0, |(_, index)| index)
            }
        };
        self.candidate(self.last)
    }

    /// The number of the node that is the `index`th of those that may serve.
    fn candidate(&self, mut index: u32) -> u32 {
        for range in &self.candidates {
            let count = range.end - range.start;
            if index < count {
                return range.start + index;
            }
            index -= count;
        }
        0
    }
}

/// The numbers of the nodes of a group.
pub(super) fn nodes_of(scenario: &Scenario, name: &str) -> Range<u32> {
    let before = scenario.nodes.iter().take_while(|group| group.name != name);
    let first = before.map(|group| group.count).sum();
    let group = scenario.nodes.iter().find(|group| group.name == name);
    first..first + group.map_or(0, |group| group.count)
}
