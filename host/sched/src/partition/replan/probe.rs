//! Which links are looked at, and when: requests tell only of those that they take, and only when they have taken them.

use super::Replanner;
use crate::partition::{Action, LinkUse, Partitioner};
use std::time::Duration;

/// A probe is given up after this many times what it would take on a link as fast as hoped for, or as believed: its pace tells enough by then.
const PATIENCE: f64 = 4.0;
/// So many looks at a link follow each other at the same distance, from a request or from news of the link on; each one after them at twice
/// that of the one before.
const LOOKS: u32 = 2;

impl<P: Partitioner> Replanner<P> {
    /// Has links measured of which nothing was heard for long.
    pub(super) fn look_at_links(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.links_are_stated || !self.policy.moves() {
            return;
        }
        let silent: Vec<bool> = (0..self.measured.len())
            .map(|link| self.is_silent(link, now))
            .collect();
        if silent.contains(&true) {
            self.watch(&silent, actions);
            self.hope(&silent, actions);
        }
    }

    /// There was a request. The next one will want to know of the links that the plan takes; where that takes none, all of them are free to be
    /// looked at.
    pub(super) fn was_asked(&mut self) {
        let used = &self.plan.prediction.links;
        for (looks, link) in self.looks.iter_mut().zip(self.conditions.links()) {
            let is_used = || {
                used.iter()
                    .any(|used| (used.from, used.to) == (link.from, link.to))
            };
            if used.is_empty() || is_used() {
                *looks = 0;
            }
        }
    }

    fn is_silent(&self, link: usize, now: Duration) -> bool {
        let longer = self.looks[link].saturating_sub(LOOKS - 1).min(u32::BITS - 1);
        let patience = self.tuning.probe_after.saturating_mul(1 << longer);
        let silence = now.saturating_sub(self.measured[link]);
        self.conditions.is_up(link) && silence >= patience.min(self.tuning.probe_at_most)
    }

    /// Those that the plan takes, soon after a request: the next one should not have to find out that they have become slow.
    fn watch(&mut self, silent: &[bool], actions: &mut Vec<Action>) {
        let plan = self.plan.clone();
        for used in &plan.prediction.links {
            let link = self.conditions.link(used.from, used.to);
            let is_due = |link: &usize| silent[*link] && self.looks[*link] < LOOKS;
            if let Some(link) = link.filter(is_due) {
                let bytes = self.tuning.watch_size(&self.conditions.links()[link]);
                let patience_ms = self.conditions.links()[link].ms(bytes) * PATIENCE;
                self.ask(link, bytes, patience_ms, actions);
            }
        }
    }

    /// Those that a better plan would use if they were as fast as they ever were, and some more.
    fn hope(&mut self, silent: &[bool], actions: &mut Vec<Action>) {
        let hopeful = self.conditions.hopeful(|link| silent[link], self.tuning.optimism);
        let (Ok(now), Ok(hoped)) = (self.problem(), hopeful.problem(&self.nominal, self.ready())) else {
            return;
        };
        let current = self.current(&now);
        let Ok(better) = self.policy.plan(&hoped) else {
            return;
        };
        if !self.tuning.worth(better.cost, current) {
            return;
        }
        for LinkUse { from, to, .. } in better.prediction.links {
            if let Some(link) = self.conditions.link(from, to).filter(|link| silent[*link]) {
                let bytes = self.tuning.probe_size(&self.conditions.links()[link]);
                let patience_ms = hopeful.links()[link].ms(bytes) * PATIENCE;
                self.ask(link, bytes, patience_ms, actions);
            }
        }
    }

    fn ask(&mut self, link: usize, bytes: u64, patience_ms: f64, actions: &mut Vec<Action>) {
        let of = self.conditions.links()[link];
        let (from, to) = (of.from, of.to);
        let is_this = |action: &Action| matches!(action, Action::Probe { from: a, to: b, .. } if (*a, *b) == (from, to));
        if !actions.iter().any(is_this) {
            self.looks[link] += 1;
            actions.push(Action::Probe {
                from,
                to,
                bytes,
                patience_ms,
            });
        }
    }
}
