use super::draft::{Draft, Estimate};
use super::list::{Binding, List, Order, Rule};
use super::{Candidate, Decision, Fleet, Job, Place, Reason};

/// Each task goes where it is done first, the one with the longest way to the end of its job first (HEFT: Topcuoglu, Hariri and
/// Wu 2002). On line: it looks at the tasks that are ready, not at whole jobs; and it knows what nodes hold and what loading costs,
/// without which no deployed one would be a match here.
#[derive(Clone, Debug)]
pub struct Heft(List<EarliestFinish>);

#[derive(Clone, Debug)]
struct EarliestFinish;

impl Heft {
    /// With another order of tasks, or another moment at which they go to their node.
    pub const fn new(order: Order, binding: Binding) -> Self {
        Self(List {
            rule: EarliestFinish,
            order,
            binding,
        })
    }
}

impl Default for Heft {
    /// As published: by rank, to its node as soon as it is ready.
    fn default() -> Self {
        Self::new(Order::Rank, Binding::Ready)
    }
}

impl Place for Heft {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        self.0.place(now, jobs, fleet)
    }
}

impl Rule for EarliestFinish {
    const NAME: &'static str = "heft";

    fn score(&self, _: &Draft<'_>, _: (usize, usize), _: usize, estimate: &Estimate) -> [f64; 2] {
        [estimate.finish, 0.0]
    }

    fn reason(&self, _: &Draft<'_>, _: (usize, usize), _: &Candidate) -> Reason {
        Reason::EarliestFinish
    }
}
