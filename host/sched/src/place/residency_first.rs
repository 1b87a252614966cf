use super::draft::{Draft, Estimate};
use super::list::{Binding, List, Order, Rule};
use super::{Candidate, Decision, Fleet, Job, Mode, Place, Reason};

/// Each task goes to a node that holds its component, to the one of them where it is done first; to where it is done first if
/// nobody holds it.
#[derive(Clone, Debug)]
pub struct ResidencyFirst(List<HoldsIt>);

#[derive(Clone, Debug)]
struct HoldsIt;

impl ResidencyFirst {
    /// With another order of tasks, or another moment at which they go to their node.
    pub const fn new(order: Order, binding: Binding) -> Self {
        Self(List {
            rule: HoldsIt,
            order,
            binding,
        })
    }
}

impl Default for ResidencyFirst {
    fn default() -> Self {
        Self::new(Order::Arrival, Binding::Ready)
    }
}

impl Place for ResidencyFirst {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        self.0.place(now, jobs, fleet)
    }
}

impl Rule for HoldsIt {
    const NAME: &'static str = "residency-first";

    fn score(&self, _: &Draft<'_>, _: (usize, usize), _: usize, estimate: &Estimate) -> [f64; 2] {
        let absent = if estimate.mode == Mode::Cold { 1.0 } else { 0.0 };
        [absent, estimate.finish]
    }

    fn reason(&self, _: &Draft<'_>, _: (usize, usize), chosen: &Candidate) -> Reason {
        match chosen.mode {
            Mode::Cold => Reason::EarliestFinish,
            Mode::Warm | Mode::ScaleOut => Reason::Resident,
        }
    }
}
