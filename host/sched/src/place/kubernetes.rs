use super::draft::{Draft, Estimate};
use super::list::{Binding, List, Order, Rule};
use super::{Candidate, Decision, Fleet, Job, Place, Reason};

/// What the default scheduler of Kubernetes does with its default plugins: it filters by room, scores by how much of a node is free
/// (`NodeResourcesFit`, least allocated) and whether it holds the image (`ImageLocality`), and binds a pod when a node has room.
/// It knows neither deadlines nor how fast nodes are nor where data lie. A cluster's scheduler sees its own nodes only.
#[derive(Clone, Debug)]
pub struct Kubernetes(List<MostFree>);

#[derive(Clone, Debug)]
struct MostFree;

impl Default for Kubernetes {
    fn default() -> Self {
        Self(List {
            rule: MostFree,
            order: Order::Arrival,
            binding: Binding::Start,
        })
    }
}

impl Place for Kubernetes {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        self.0.place(now, jobs, fleet)
    }
}

impl Rule for MostFree {
    const NAME: &'static str = "kubernetes";

    fn score(
        &self,
        draft: &Draft<'_>,
        (job, task): (usize, usize),
        node: usize,
        estimate: &Estimate,
    ) -> [f64; 2] {
        let there = draft.node(node);
        let component = draft.jobs[job].tasks[task].component;
        let free = 1.0 - there.load(draft.now);
        // Both plugins have weight 1 and score up to 100; the locality of an image grows with its size and the share of nodes
        // that hold it, and counts from 23 MB on.
        let size = draft.fleet.components[component].bytes as f64;
        let locality = match there.holds(component) {
            true => ((size - 23e6) / (1e9 - 23e6)).clamp(0.0, 1.0),
            false => 0.0,
        };
        let full = if estimate.free_at > draft.now { 1.0 } else { 0.0 };
        [full, -(free + locality)]
    }

    fn allows(&self, draft: &Draft<'_>, (job, _): (usize, usize), node: usize) -> bool {
        let home = draft.fleet.nodes[draft.jobs[job].origin].cluster;
        draft.fleet.nodes[node].cluster == home
    }

    fn reason(&self, _: &Draft<'_>, _: (usize, usize), _: &Candidate) -> Reason {
        Reason::MostFree
    }
}
