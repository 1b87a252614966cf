//! Links that share a bottleneck: all that a node sends goes through the one access link that it has, as a rule, and so does what comes back.

use super::Replanner;
use crate::partition::Partitioner;
use crate::partition::conditions::Conditions;
use std::time::Duration;

/// Links that carry more megabits per second are fast, and which of them is the faster one says little: what was measured was processors.
const FAST_MBIT_S: f64 = 200.0;

/// A link whose rate goes with that of another one, its leader.
struct Bound {
    link: usize,
    /// How many times faster it is.
    faster: f64,
    /// Whether both of them are fast.
    are_fast: bool,
}

impl Bound {
    /// How fast it is when the leader is so fast.
    fn rate(&self, leader: f64) -> f64 {
        match self.are_fast && leader < FAST_MBIT_S {
            true => leader,
            false => leader * self.faster,
        }
    }
}

impl<P: Partitioner> Replanner<P> {
    /// Changes what is believed of a link, by a measurement of it, and of its way back: little comes back, as a rule, so that nothing else tells
    /// of that. Links from the same node that looked as fast change with it: what slows one down slows down the others, and each of them would
    /// have to keep a request waiting to show it. By a large change they are as fast as it, for what they differed by was told by small messages.
    /// Where that is a wrong guess the first measurement of its own corrects it, and tells nothing of others, but to look at them where it is
    /// faster: what slowed them all down may be over. Of a small change they take half: it may as well be this link's alone, and only then do
    /// measurements tell them apart.
    pub(super) fn measure<T>(
        &mut self,
        now: Duration,
        link: usize,
        change: impl FnOnce(&mut Conditions) -> T,
    ) -> T {
        let (alike, back) = (self.links_like(link), self.way_back(link));
        let before = self.conditions.links()[link].rate_mbit_s;
        let told = change(&mut self.conditions);
        let after = self.conditions.links()[link].rate_mbit_s;
        let deviates = self.tuning.deviates(before / after).is_some();
        let was_guessed = std::mem::take(&mut self.news[link].guessed);
        if deviates {
            self.news[link].looks = 0;
        }
        self.follow(back, after);
        if deviates && was_guessed {
            if after > before {
                alike
                    .iter()
                    .for_each(|(other, _)| self.look_again(other.link, now));
            }
            return told;
        }
        for (other, back) in alike {
            let rate = match deviates {
                true if self.looks_as_fast(&other) => after,
                true => other.rate(after),
                false => other.rate(f64::sqrt(before * after)),
            };
            let link = other.link;
            self.conditions.set_rate(link, rate);
            self.follow(back, rate);
            if deviates {
                self.news[link].guessed = true;
                self.news[link].looks = 0;
            }
        }
        told
    }

    /// The leader of a link is so fast now.
    fn follow(&mut self, bound: Option<Bound>, leader: f64) {
        if let Some(bound) = bound {
            self.conditions.set_rate(bound.link, bound.rate(leader));
        }
    }

    /// Other links from the same node that are believed to be about as fast, each with its way back.
    fn links_like(&self, link: usize) -> Vec<(Bound, Option<Bound>)> {
        let links = self.conditions.links();
        let one = links[link];
        let is_alike = |other: &Bound| {
            links[other.link].from == one.from
                && self.conditions.is_up(other.link)
                && (other.are_fast || self.looks_as_fast(other))
        };
        let others = (0..links.len()).filter(|other| *other != link);
        let alike = others.map(|other| self.bound(link, other)).filter(is_alike);
        alike
            .map(|other| {
                let back = self.way_back(other.link);
                (other, back)
            })
            .collect()
    }

    /// Whether a link is about as fast as its leader.
    fn looks_as_fast(&self, link: &Bound) -> bool {
        self.tuning.deviates(link.faster).is_none()
    }

    /// The way back of a link as one whose rate goes with its own.
    fn way_back(&self, link: usize) -> Option<Bound> {
        let back = self.conditions.way_back(link)?;
        Some(self.bound(link, back))
    }

    /// A link as one whose rate goes with that of another one.
    fn bound(&self, leader: usize, link: usize) -> Bound {
        let rate = |link: usize| self.conditions.links()[link].rate_mbit_s;
        Bound {
            link,
            faster: rate(link) / rate(leader),
            are_fast: rate(link).min(rate(leader)) >= FAST_MBIT_S,
        }
    }
}
