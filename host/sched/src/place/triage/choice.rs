use super::TriageSettings;
use super::best::Best;
use crate::place::Candidate;
use crate::place::draft::{Draft, Estimate, two_best};

/// The share of the fleet's speed from which on it is full: what is busy ends, and the next has to come.
const FULL: f64 = 0.9;

/// What a task's nodes are chosen by.
pub(super) struct Nodes {
    settings: TriageSettings,
    fastest: f64,
    /// The power of a node's speed by which its seconds are dear now.
    price: f64,
}

/// What ranks a node, less is better: whether it is taken only where no other is left, what it costs, and when the task is done, which
/// of nodes that are alike is the earliest where its input lies.
type Rank = (bool, f64, f64);

impl Nodes {
    pub(super) fn of(draft: &Draft<'_>, settings: &TriageSettings) -> Self {
        let (mut held, mut all) = (0.0, 0.0);
        for node in &draft.fleet.nodes {
            let speed = node.speed * node.slots.len() as f64;
            held += speed * node.load(draft.now);
            all += speed;
        }
        let busy: f64 = (held / f64::max(all, f64::MIN_POSITIVE) / FULL).min(1.0);
        Self {
            settings: *settings,
            fastest: draft.fleet.fastest(),
            price: settings.price * busy * busy,
        }
    }

    pub(super) const fn fastest(&self) -> f64 {
        self.fastest
    }

    /// Whether there is room for jobs that are set aside.
    pub(super) fn has_room(&self, draft: &Draft<'_>) -> bool {
        let nodes = (0..draft.fleet.nodes.len()).map(|node| draft.node(node));
        let (mut free, mut all) = (0.0, 0.0);
        for node in nodes.filter(|node| self.settings.counts(node, self.fastest)) {
            all += node.slots.len() as f64;
            free += (1.0 - node.load(draft.now)) * node.slots.len() as f64;
        }
        free > self.settings.reserve * all
    }

    /// The cheapest node on which a task is done in time, with care; the one on which it is done first where only less care leaves any. With
    /// the runner-up.
    pub(super) fn in_time(
        &self,
        draft: &mut Draft<'_>,
        job: usize,
        task: usize,
        best: &Best,
    ) -> Option<(Candidate, Option<Candidate>)> {
        let TriageSettings {
            spread, care, away, ..
        } = self.settings;
        let of = &draft.jobs[job];
        let after = best.after(of, task);
        let deadline = of.deadline.unwrap_or(f64::INFINITY);
        let spare = (deadline - draft.now - best.from(task)).max(0.0);
        // The tasks after it get their share of the time to spare.
        let with_spare = match after > 0.0 && spare.is_finite() {
            true => after + spread * spare * after / best.from(task),
            false => after,
        };
        take(draft, job, task, |draft, node, way| {
            let takes = way.finish - way.begin;
            let longer = care * (takes + after);
            if way.finish + with_spare + longer <= deadline {
                let there = &draft.fleet.nodes[node];
                let is_home = there.cluster == draft.fleet.nodes[of.origin].cluster;
                let price = there.speed.powf(self.price) * if is_home { 1.0 } else { away };
                let held = way.finish - way.free_at.max(draft.now);
                return Some((false, held * price, way.finish));
            }
            (way.finish + after + longer / 2.0 <= deadline).then_some((true, way.finish, way.finish))
        })
    }
}

/// The slowest node on which nothing runs, for a task whose job will be late. With the runner-up.
pub(super) fn left_over(
    draft: &mut Draft<'_>,
    job: usize,
    task: usize,
) -> Option<(Candidate, Option<Candidate>)> {
    take(draft, job, task, |draft, node, way| {
        let there = draft.node(node);
        (there.load(draft.now) == 0.0).then_some((true, there.speed, way.finish))
    })
}

/// Takes the best of the nodes that are free by the time a task's input is there into the plan.
fn take(
    draft: &mut Draft<'_>,
    job: usize,
    task: usize,
    rank: impl Fn(&Draft<'_>, usize, &Estimate) -> Option<Rank>,
) -> Option<(Candidate, Option<Candidate>)> {
    let [best, second] = two_best((0..draft.fleet.nodes.len()).filter_map(|node| {
        let way = draft.estimate(job, task, node)?;
        match way.free_at <= way.data_at.max(draft.now) {
            true => Some((rank(draft, node, &way)?, node, way)),
            false => None,
        }
    }));
    let ((_, score, _), node, way) = best?;
    draft.book(job, task, node, &way);
    let second = second.map(|((_, score, _), node, way)| way.at(node, score));
    Some((way.at(node, score), second))
}
