use super::TriageSettings;
use super::best::Best;
use crate::place::draft::{Draft, Estimate};
use crate::place::{Candidate, Fleet, Node};

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
type Ranked = (Rank, usize, Estimate);

/// The speed of the fastest node, and the nodes with at least this share of it.
pub(super) fn counted(fleet: &Fleet, slowest: f64) -> (f64, impl Iterator<Item = &Node>) {
    let fastest = fleet.nodes.iter().map(|node| node.speed).fold(0.0, f64::max);
    let counted = fleet
        .nodes
        .iter()
        .filter(move |node| node.speed >= slowest * fastest);
    (fastest, counted)
}

impl Nodes {
    pub(super) fn of(draft: &Draft<'_>, settings: &TriageSettings) -> Self {
        let nodes = draft.fleet.nodes.iter();
        let (mut held, mut all) = (0.0, 0.0);
        for node in nodes {
            let speed = node.speed * node.slots.len() as f64;
            held += speed * node.load(draft.now);
            all += speed;
        }
        let busy: f64 = (held / f64::max(all, f64::MIN_POSITIVE) / FULL).min(1.0);
        Self {
            settings: *settings,
            fastest: counted(draft.fleet, settings.slowest).0,
            price: settings.price * busy * busy,
        }
    }

    pub(super) const fn fastest(&self) -> f64 {
        self.fastest
    }

    /// Whether there is room for jobs that are set aside.
    pub(super) fn has_room(&self, draft: &Draft<'_>) -> bool {
        let nodes = 0..draft.fleet.nodes.len();
        let counts = |node: &Node| node.speed >= self.settings.slowest * self.fastest;
        let (mut free, mut all) = (0.0, 0.0);
        for node in nodes.map(|node| draft.node(node)).filter(|node| counts(node)) {
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
        let rank = |node: usize, way: &Estimate| {
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
        };
        let found = two(draft, job, task, rank);
        take(draft, job, task, found)
    }

    /// The slowest node on which nothing runs, for a task whose job will be late.
    pub(super) fn left_over(
        &self,
        draft: &mut Draft<'_>,
        job: usize,
        task: usize,
    ) -> Option<(Candidate, Option<Candidate>)> {
        let rank = |node: usize, way: &Estimate| {
            let there = draft.node(node);
            (there.load(draft.now) == 0.0).then_some((true, there.speed, way.finish))
        };
        let found = two(draft, job, task, rank);
        take(draft, job, task, found)
    }
}

/// The best node and the runner-up for a task, of those that are free by the time its input is there.
fn two(
    draft: &Draft<'_>,
    job: usize,
    task: usize,
    rank: impl Fn(usize, &Estimate) -> Option<Rank>,
) -> [Option<Ranked>; 2] {
    let mut found: [Option<Ranked>; 2] = [None, None];
    for node in 0..draft.fleet.nodes.len() {
        let Some(way) = draft.estimate(job, task, node) else {
            continue;
        };
        if way.free_at > way.data_at.max(draft.now) {
            continue;
        }
        let Some(rank) = rank(node, &way) else { continue };
        let beats = |other: &Option<Ranked>| other.is_none_or(|(other, ..)| rank < other);
        if beats(&found[0]) {
            found[1] = found[0].replace((rank, node, way));
        } else if beats(&found[1]) {
            found[1] = Some((rank, node, way));
        }
    }
    found
}

fn take(
    draft: &mut Draft<'_>,
    job: usize,
    task: usize,
    [best, second]: [Option<Ranked>; 2],
) -> Option<(Candidate, Option<Candidate>)> {
    let ((_, score, _), node, way) = best?;
    draft.book(job, task, node, &way);
    let second = second.map(|((_, score, _), node, way)| way.at(node, score));
    Some((way.at(node, score), second))
}
