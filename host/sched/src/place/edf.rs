use super::draft::{Draft, Estimate};
use super::list::{Binding, List, Order, Rule};
use super::{Candidate, Decision, Fleet, Job, Place, Reason};

/// Tasks of the job with the earliest deadline first, each to where it is done first.
#[derive(Clone, Debug)]
pub struct EarliestDeadline(List<Earliest>);

#[derive(Clone, Debug)]
struct Earliest;

impl EarliestDeadline {
    /// With another moment at which tasks go to their node.
    pub const fn new(binding: Binding) -> Self {
        Self(List {
            rule: Earliest,
            order: Order::Deadline,
            binding,
        })
    }
}

impl Default for EarliestDeadline {
    /// A task waits until its node is free: one with an earlier deadline may come.
    fn default() -> Self {
        Self::new(Binding::Start)
    }
}

impl Place for EarliestDeadline {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        self.0.place(now, jobs, fleet)
    }
}

impl Rule for Earliest {
    const NAME: &'static str = "edf";

    fn score(&self, _: &Draft<'_>, _: (usize, usize), _: usize, estimate: &Estimate) -> [f64; 2] {
        [estimate.finish, 0.0]
    }

    fn reason(&self, _: &Draft<'_>, _: (usize, usize), _: &Candidate) -> Reason {
        Reason::EarliestDeadline
    }
}
