use super::draft::{Draft, Estimate};
use super::list::{Binding, List, Order, Rule};
use super::{Candidate, Decision, Fleet, Job, Place, Reason};

/// Each node in turn; one where the task cannot run is passed over.
#[derive(Clone, Debug)]
pub struct RoundRobin(List<Turn>);

#[derive(Clone, Debug, Default)]
struct Turn {
    next: usize,
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self(List {
            rule: Turn::default(),
            order: Order::Arrival,
            binding: Binding::Ready,
        })
    }
}

impl Place for RoundRobin {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        self.0.place(now, jobs, fleet)
    }
}

impl Rule for Turn {
    const NAME: &'static str = "round-robin";

    fn score(&self, draft: &Draft<'_>, _: (usize, usize), node: usize, _: &Estimate) -> [f64; 2] {
        let nodes = draft.fleet.nodes.len();
        [((node + nodes - self.next % nodes) % nodes) as f64, 0.0]
    }

    fn reason(&self, _: &Draft<'_>, _: (usize, usize), _: &Candidate) -> Reason {
        Reason::Turn
    }

    fn placed(&mut self, draft: &Draft<'_>, node: usize) {
        self.next = (node + 1) % draft.fleet.nodes.len();
    }
}
