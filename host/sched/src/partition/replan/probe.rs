//! Which links are looked at, and when: requests tell only of those that they take, and only when they have taken them.

use super::Replanner;
use crate::partition::{Action, LinkUse, Partitioner};
use std::time::Duration;

/// A probe is given up after this many times what it would take on a link as fast as hoped for, or as believed: its pace tells enough by then.
const PATIENCE: f64 = 4.0;
/// So many looks at a link that a better plan would take follow each other at the same distance, from a request or from news of the link on;
/// each one after them at twice that of the one before.
const HOPES: u32 = 2;
/// So many looks at a link that the plan takes follow a request, all at the same distance.
const WATCHES: u32 = 10;

impl<P: Partitioner> Replanner<P> {
    /// Has links measured of which nothing was heard for long.
    pub(super) fn look_at_links(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.links_are_stated || !self.policy.moves() || self.is_idle(now) {
            return;
        }
        self.watch(now, actions);
        let silent: Vec<bool> = (0..self.news.len())
            .map(|link| {
                let longer = self.news[link].looks.saturating_sub(HOPES - 1).min(u32::BITS - 1);
                let patience = self.tuning.probe_after.saturating_mul(1 << longer);
                self.is_silent(link, patience.min(self.tuning.probe_at_most), now)
            })
            .collect();
        if silent.contains(&true) {
            self.hope(&silent, actions);
        }
    }

    /// There was a request. The next one will want to know of the links that the plan takes; where that takes none, all of them are free to be
    /// looked at.
    pub(super) fn was_asked(&mut self, now: Duration) {
        self.asked = now;
        if now + self.tuning.period < self.due {
            // It was idle.
            self.due = now + self.tuning.period;
        }
        let used = &self.plan.prediction.links;
        for (news, link) in self.news.iter_mut().zip(self.conditions.links()) {
            let is_used = || {
                used.iter()
                    .any(|used| (used.from, used.to) == (link.from, link.to))
            };
            if used.is_empty() || is_used() {
                news.looks = 0;
            }
        }
    }

    fn is_silent(&self, link: usize, patience: Duration, now: Duration) -> bool {
        self.conditions.is_up(link) && self.news[link].is_silent(patience, now)
    }

    /// Those that the plan takes, as long as another request may follow the last: it should not have to find out that they have become slow.
    fn watch(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let used = self.plan.prediction.links.iter();
        let due: Vec<usize> = used
            .filter_map(|used| self.conditions.link(used.from, used.to))
            .filter(|link| self.news[*link].looks < WATCHES)
            .filter(|link| self.is_silent(*link, self.tuning.probe_after, now))
            .collect();
        for link in due {
            let of = &self.conditions.links()[link];
            let bytes = match self.news[link].is_suspect() {
                true => self.tuning.probe_size(of),
                false => self.tuning.watch_size(of),
            };
            let patience_ms = of.ms(bytes) * PATIENCE;
            self.ask(link, bytes, patience_ms, actions);
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

    /// A look at a link tells of its way back as well.
    fn ask(&mut self, link: usize, bytes: u64, patience_ms: f64, actions: &mut Vec<Action>) {
        let of = self.conditions.links()[link];
        let (from, to) = (of.from, of.to);
        let tells = |action: &Action| matches!(action, Action::Probe { from: a, to: b, .. } if [(from, to), (to, from)].contains(&(*a, *b)));
        if actions.iter().any(tells) {
            return;
        }
        for link in std::iter::once(link).chain(self.conditions.way_back(link)) {
            self.news[link].looks += 1;
        }
        actions.push(Action::Probe {
            from,
            to,
            bytes,
            patience_ms,
        });
    }
}
