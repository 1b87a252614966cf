//! Links that share a bottleneck: all that a node sends goes through the one access link that it has, as a rule.

use super::Replanner;
use crate::partition::Partitioner;
use crate::partition::conditions::Conditions;

impl<P: Partitioner> Replanner<P> {
    /// Changes what is believed of a link, by a measurement of it. Links from the same node that looked as fast change by the same factor: what
    /// slows one down slows down the others, and each of them would have to keep a request waiting to show it. Where that is a wrong
    /// guess the first measurement of its own corrects it, and tells nothing of others.
    pub(super) fn measure<T>(&mut self, link: usize, change: impl FnOnce(&mut Conditions) -> T) -> T {
        let alike = self.links_like(link);
        let before = self.conditions.links()[link].ms_per_byte();
        let told = change(&mut self.conditions);
        let factor = self.conditions.links()[link].ms_per_byte() / before;
        let deviates = self.tuning.deviates(factor).is_some();
        let was_guessed = std::mem::take(&mut self.guessed[link]);
        if deviates {
            self.looks[link] = 0;
        }
        if deviates && was_guessed {
            return told;
        }
        for other in alike {
            self.conditions.slow_link(other, factor);
            if deviates {
                self.guessed[other] = true;
                self.looks[other] = 0;
            }
        }
        told
    }

    /// Other links from the same node that are believed to be about as fast.
    fn links_like(&self, link: usize) -> Vec<usize> {
        let links = self.conditions.links();
        let one = links[link];
        let alike = |other: &usize| {
            let (at, other) = (*other, links[*other]);
            at != link
                && other.from == one.from
                && self.conditions.is_up(at)
                && self
                    .tuning
                    .deviates(other.rate_mbit_s / one.rate_mbit_s)
                    .is_none()
        };
        (0..links.len()).filter(alike).collect()
    }
}
