//! The best assignment of the tasks at the front, together.

use super::{FateSettings, Scored, Stage};
use crate::place::draft::Draft;

/// The assignment of the front: depth first over the best nodes of each task, cut where it cannot become better any more.
pub(super) struct Search<'a> {
    pub(super) settings: FateSettings,
    pub(super) stages: Vec<Stage>,
    pub(super) looks: usize,
    pub(super) best: Option<Found<'a>>,
}

/// An assignment: for each task its placement and the runner-up.
pub(super) struct Found<'a> {
    pub(super) total: f64,
    pub(super) steps: Vec<Vec<Scored>>,
    pub(super) draft: Draft<'a>,
}

impl<'a> Search<'a> {
    pub(super) fn descend(&mut self, draft: &Draft<'a>, steps: &mut Vec<Vec<Scored>>, total: f64) {
        let Some(stage) = self.stages.get(steps.len()) else {
            if self.best.as_ref().is_none_or(|best| total < best.total) {
                self.best = Some(Found {
                    total,
                    steps: steps.clone(),
                    draft: draft.clone(),
                });
            }
            return;
        };
        let task = stage.task;
        let options = stage.options(draft, self.settings.candidates.max(1));
        if options.is_empty() {
            steps.push(Vec::new());
            self.descend(draft, steps, total);
            steps.pop();
            return;
        }
        let bound: f64 = self.stages[steps.len() + 1..]
            .iter()
            .map(|stage| stage.least)
            .sum();
        for (place, option) in options.iter().enumerate() {
            // The first way down is the greedy assignment, which is always finished.
            let found = self.best.as_ref().map(|best| best.total);
            let cut = found.is_some_and(|found| total + option.score + bound >= found);
            if cut || (found.is_some() && self.looks >= self.settings.looks) {
                return;
            }
            self.looks += 1;
            let mut next = draft.clone();
            next.book(task.0, task.1, option.node, &option.estimate);
            let mut step = vec![*option];
            step.extend(
                options
                    .iter()
                    .enumerate()
                    .find(|(other, _)| *other != place)
                    .map(|(_, other)| *other),
            );
            steps.push(step);
            self.descend(&next, steps, total + option.score);
            steps.pop();
        }
    }
}
