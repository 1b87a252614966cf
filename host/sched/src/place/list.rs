//! List scheduling: tasks in an order, each to the node that a rule likes best. What most comparators are made of.

use super::draft::{Draft, Estimate, Way, two_best};
use super::{Candidate, Decision, Fleet, Job, Place, Reason};
use serde::{Deserialize, Serialize};

/// Which of the tasks that are ready is placed first.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Order {
    /// In the order in which their jobs came, and in a job the one with the longest way to the end.
    #[default]
    Arrival,
    /// The one with the longest way to the end of its job.
    Rank,
    /// The one whose job has the least work left, and in a job the one with the longest way to the end.
    ShortestJob,
    /// The one whose job has the earliest deadline.
    Deadline,
}

/// When a task goes to the node that was found for it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Binding {
    /// At once; it waits there.
    #[default]
    Ready,
    /// When a slot is free there; until then, it is looked at again whenever something changes.
    Start,
}

/// What sets one list scheduler apart from another.
pub(super) trait Rule {
    const NAME: &'static str;

    /// How much it likes a node for a task: the least pair wins, ties go to the first node.
    fn score(&self, draft: &Draft<'_>, task: (usize, usize), node: usize, estimate: &Estimate) -> [f64; 2];

    /// Whether a task may go to a node at all.
    fn allows(&self, _draft: &Draft<'_>, _task: (usize, usize), _node: usize) -> bool {
        true
    }

    /// Why the node was chosen.
    fn reason(&self, draft: &Draft<'_>, task: (usize, usize), chosen: &Candidate) -> Reason;

    /// A task has gone to a node.
    fn placed(&mut self, _draft: &Draft<'_>, _node: usize) {}
}

/// A list scheduler.
#[derive(Clone, Debug)]
pub(super) struct List<R> {
    pub(super) rule: R,
    pub(super) order: Order,
    pub(super) binding: Binding,
}

impl<R: Rule> Place for List<R> {
    fn name(&self) -> &str {
        R::NAME
    }

    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision> {
        let mut draft = Draft::new(fleet, jobs, now);
        let tasks = ordered(&draft, self.order);
        let tasks = tasks.into_iter();
        tasks.filter_map(|task| self.one(&mut draft, task)).collect()
    }
}

impl<R: Rule> List<R> {
    /// Places one task. Nothing is said of it when every node that it may go to is busy, and it would not be bound to one.
    fn one(&mut self, draft: &mut Draft<'_>, task: (usize, usize)) -> Option<Decision> {
        let mut nodes = 0..draft.fleet.nodes.len();
        let goes_now = |node| self.rule.allows(draft, task, node) && draft.is_free(node);
        if self.binding == Binding::Start && !nodes.any(goes_now) {
            return None;
        }
        let nodes = (0..draft.fleet.nodes.len()).filter(|&node| self.rule.allows(draft, task, node));
        let [first, second] = two_best(nodes.filter_map(|node| {
            let estimate = draft.estimate(task.0, task.1, node)?;
            Some((self.rule.score(draft, task, node, &estimate), node, estimate))
        }));
        let candidate =
            |found: Option<Way<[f64; 2]>>| found.map(|(score, node, estimate)| estimate.at(node, score[0]));
        let decision = |chosen, reason| Decision {
            job: draft.jobs[task.0].id,
            task: task.1,
            chosen,
            runner_up: candidate(second),
            reason,
        };
        let Some((score, node, estimate)) = first else {
            return Some(decision(None, Reason::NoRoom));
        };
        let chosen = estimate.at(node, score[0]);
        let decision = match self.binding == Binding::Start && estimate.free_at > draft.now {
            true => decision(
                None,
                Reason::Waits {
                    node,
                    until: estimate.free_at,
                },
            ),
            false => {
                let reason = self.rule.reason(draft, task, &chosen);
                self.rule.placed(draft, node);
                decision(Some(chosen), reason)
            }
        };
        // Also a task that waits for the node takes it from those that come after.
        draft.book(task.0, task.1, node, &estimate);
        Some(decision)
    }
}

/// The tasks that are ready, in this order.
pub(super) fn ordered(draft: &Draft<'_>, order: Order) -> Vec<(usize, usize)> {
    let ready = draft.ready();
    let (speed, rate) = draft.means();
    let mut keyed = Vec::with_capacity(ready.len());
    let mut last: Option<(usize, Vec<f64>)> = None;
    for (job, task) in ready {
        let of = &draft.jobs[job];
        let ranks = match last.take_if(|(known, _)| *known == job) {
            Some((_, ranks)) => ranks,
            None => of.upward_ranks(speed, rate),
        };
        let rank = ranks[task];
        last = Some((job, ranks));
        let first = match order {
            Order::Arrival => of.arrived,
            Order::Rank => -rank,
            Order::ShortestJob => of.work_left(),
            Order::Deadline => of.deadline.unwrap_or(f64::INFINITY),
        };
        keyed.push(((first, -rank, of.id, task), (job, task)));
    }
    keyed.sort_by(|(a, _), (b, _)| {
        let floats = a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
        floats.then((a.2, a.3).cmp(&(b.2, b.3)))
    });
    keyed.into_iter().map(|(_, task)| task).collect()
}
