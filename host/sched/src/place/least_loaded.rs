use super::draft::{Draft, Estimate};
use super::list::{Binding, List, Order, Rule};
use super::{Candidate, Decision, Fleet, Job, Place, Reason};

/// Each task goes to the node with the least work waiting for each of its slots; among equals to where it is done first.
#[derive(Clone, Debug)]
pub struct LeastLoaded(List<LeastWork>);

#[derive(Clone, Debug)]
struct LeastWork;

impl LeastLoaded {
    /// With another order of tasks, or another moment at which they go to their node.
    pub const fn new(order: Order, binding: Binding) -> Self {
        Self(List {
            rule: LeastWork,
            order,
            binding,
        })
    }
}

impl Default for LeastLoaded {
    fn default() -> Self {
        Self::new(Order::Arrival, Binding::Ready)
    }
}

impl Place for LeastLoaded {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        self.0.place(now, jobs, fleet)
    }
}

impl Rule for LeastWork {
    const NAME: &'static str = "least-loaded";

    fn score(&self, draft: &Draft<'_>, _: (usize, usize), node: usize, estimate: &Estimate) -> [f64; 2] {
        let slots = &draft.node(node).slots;
        let waits = slots
            .iter()
            .map(|slot| (slot.free_at - draft.now).max(0.0))
            .sum::<f64>();
        [waits / slots.len() as f64, estimate.finish]
    }

    fn reason(&self, _: &Draft<'_>, _: (usize, usize), _: &Candidate) -> Reason {
        Reason::LeastLoaded
    }
}
