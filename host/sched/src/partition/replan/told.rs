//! What an event tells a re-planner of tiers, links and weights.

use super::Replanner;
use super::link::Unanswered;
use crate::partition::{Cause, Event, EventError, Partitioner};
use std::time::Duration;

/// Sizes that differ by less than this share are the same: what a camera sees differs from picture to picture.
const SAME_SIZE: f64 = 0.05;
/// By less than so many milliseconds, or so many times, a tier may be late or early once: its thread was kept waiting for something else, or
/// found all that it needs at hand. Twice in a row it is slow, or fast.
const HICCUP_MS: f64 = 10.0;
const HICCUP: f64 = 3.0;
/// A link that is so many times faster than it was believed to be is another one.
const MANY_TIMES: f64 = 4.0;

impl<P: Partitioner> Replanner<P> {
    /// Takes what an event tells; why to look for a plan, if at all.
    pub(super) fn take(&mut self, now: Duration, event: Event) -> Result<Option<Cause>, EventError> {
        if self.is_known(&event) {
            return Ok(None);
        }
        match event {
            Event::Computed { tier, layers, ms } => self.computed(now, tier, &layers, time(ms)?),
            Event::Sent { from, to, bytes, ms } => {
                let (link, ms) = (self.link(from, to)?, time(ms)?);
                Ok(self.arrived(now, link, bytes, ms))
            }
            Event::Answered {
                from,
                to,
                bytes,
                answer,
                ms,
            } => {
                let (link, ms) = (self.link(from, to)?, time(ms)?);
                let (bytes, ms) = self.as_one(link, bytes, answer, ms);
                Ok(self.arrived(now, link, bytes, ms))
            }
            Event::Overdue {
                from,
                to,
                arrived,
                ms,
            } => {
                let (link, ms) = (self.link(from, to)?, time(ms)?);
                self.heard_of(link, now);
                // The link is slow itself, then.
                self.news[link].unanswered = None;
                Ok(Some(self.overdue(now, link, arrived, ms)))
            }
            Event::Back { from, to } => {
                let link = self.link(from, to)?;
                if self.news[link].is_back(&self.tuning, now) {
                    self.look_again(link, now);
                }
                Ok(None)
            }
            Event::Unanswered {
                from,
                to,
                bytes,
                layers,
                ms,
            } => {
                let (link, ms) = (self.link(from, to)?, time(ms)?);
                self.runs(to, &layers)?;
                self.was_asked(now);
                self.heard_of(link, now);
                self.news[link].unanswered = Some(Unanswered { bytes, layers, ms });
                if self.links_are_stated {
                    let ms_per_byte = self.conditions.links()[link].ms_per_byte();
                    return Ok(self.judge(link, to, ms_per_byte));
                }
                Ok(Some(self.overdue(now, link, 0, ms)))
            }
            Event::Sized { tensor, bytes } => self.sized(tensor, bytes),
            Event::Tier { tier, available } => {
                self.tier(tier)?;
                let was = std::mem::replace(&mut self.conditions.tiers_mut()[tier].available, available);
                Ok((was != available).then_some(Cause::Topology))
            }
            Event::Link { from, to, up } => {
                let link = self.link(from, to)?;
                let was = self.conditions.is_up(link);
                self.conditions.set_up(link, up);
                Ok((was != up).then_some(Cause::Topology))
            }
            Event::Weights { tier, layers, held } => self.weights(tier, &layers, held),
            Event::Tick => Ok(None),
        }
    }

    fn computed(
        &mut self,
        now: Duration,
        tier: usize,
        layers: &[usize],
        ms: f64,
    ) -> Result<Option<Cause>, EventError> {
        self.runs(tier, layers)?;
        if layers.is_empty() {
            return Err(EventError::NoLayers);
        }
        self.was_asked(now);
        for (news, link) in self.news.iter_mut().zip(self.conditions.links()) {
            if link.to == tier {
                news.unanswered = None;
            }
        }
        Ok(self.took(tier, layers, ms))
    }

    /// A tier that does these layers takes so long for them now.
    fn took(&mut self, tier: usize, layers: &[usize], ms: f64) -> Option<Cause> {
        let expected = self.conditions.compute_ms(tier, layers);
        let expected = expected.filter(|expected| *expected > 0.0)?;
        self.heard.extend(layers.iter().map(|layer| (tier, *layer)));
        let ratio = ms / expected;
        let cause = self.tuning.deviates(ratio);
        let off = cause.as_ref().map(|_| ms.total_cmp(&expected));
        let before = std::mem::replace(&mut self.off[tier], off);
        let is_small = (ms - expected).abs() < HICCUP_MS || (1.0 / HICCUP..HICCUP).contains(&ratio);
        let is_hiccup = off.is_some() && off != before && is_small;
        let usual = self.tuning.tier_gain;
        let gain = match is_hiccup {
            true => usual,
            false => self.tuning.gain(ratio, usual),
        };
        self.conditions.computed(tier, layers, ratio, gain);
        cause.filter(|_| !is_hiccup)
    }

    fn overdue(&mut self, now: Duration, link: usize, arrived: u64, ms: f64) -> Cause {
        let gain = self.tuning.deviating_gain;
        let ratio = self.measure(now, link, |conditions| conditions.crawls(link, arrived, ms, gain));
        Cause::Deviation(ratio)
    }

    fn weights(&mut self, tier: usize, layers: &[usize], held: bool) -> Result<Option<Cause>, EventError> {
        self.tier(tier)?;
        if let Some(layer) = layers
            .iter()
            .copied()
            .find(|layer| *layer >= self.held[tier].len())
        {
            return Err(EventError::NoSuchLayer { tier, layer });
        }
        for layer in layers {
            self.held[tier][*layer] |= held;
        }
        self.under_way
            .retain(|way| way.0 != tier || !layers.contains(&way.1));
        // What failed is not tried again before the period is over.
        Ok(held.then_some(Cause::Weights))
    }

    /// A message and its answer as one message there that takes as long as both: they mostly go over the same medium, and then both are off by
    /// the same factor.
    fn as_one(&self, link: usize, bytes: u64, answer: u64, ms: f64) -> (u64, f64) {
        let links = self.conditions.links();
        let Some(back) = self.conditions.way_back(link) else {
            return (bytes, ms);
        };
        let slower = links[back].ms_per_byte() / links[link].ms_per_byte();
        let bytes = bytes.saturating_add((answer as f64 * slower) as u64);
        (bytes, (ms - links[back].ms(0)).max(0.0))
    }

    /// A message took so long over its link: what that tells of it, and of a tier that was waited for behind it.
    fn arrived(&mut self, now: Duration, link: usize, bytes: u64, ms: f64) -> Option<Cause> {
        let expected = self.conditions.links()[link].ms(bytes);
        self.heard_of(link, now);
        let news = &mut self.news[link];
        if news.has_met_others(&self.tuning, bytes, ms, expected) {
            // Another look, soon, tells.
            self.look_again(link, now);
            return None;
        }
        if !self.conditions.tells(link, bytes, ms) {
            return None;
        }
        let ratio = ms / expected;
        let gain = self.tuning.gain(ratio, self.tuning.link_gain);
        self.measure(now, link, |conditions| conditions.sent(link, bytes, ms, gain));
        if ratio * MANY_TIMES < 1.0 {
            // A probe of a link that was so slow is small, and may have met others that were held up. Now a larger one tells more.
            self.look_again(link, now);
        }
        let to = self.conditions.links()[link].to;
        let of_tier = self.judge(link, to, ms / bytes as f64);
        self.tuning.deviates(ratio).or(of_tier)
    }

    /// There is news of a link, and with it of its way back.
    fn heard_of(&mut self, link: usize, at: Duration) {
        self.news[link].measured = at;
        if let Some(back) = self.conditions.way_back(link) {
            self.news[back].measured = at;
        }
    }

    /// A link is free to be looked at from now on.
    pub(super) fn look_again(&mut self, link: usize, now: Duration) {
        self.heard_of(link, now.saturating_sub(self.tuning.probe_at_most));
    }

    /// What was waited for a tier beyond what its link takes, which a message has come over at this pace, was the tier's.
    fn judge(&mut self, link: usize, tier: usize, ms_per_byte: f64) -> Option<Cause> {
        let Unanswered { bytes, layers, ms } = self.news[link].unanswered.take()?;
        let left = ms - ms_per_byte * bytes as f64;
        let expected = self.conditions.compute_ms(tier, &layers)?;
        (left > expected)
            .then(|| self.took(tier, &layers, left))
            .flatten()
    }

    fn sized(&mut self, tensor: usize, bytes: u64) -> Result<Option<Cause>, EventError> {
        let known = self.conditions.graph().tensors().get(tensor);
        let before = known.ok_or(EventError::NoSuchTensor(tensor))?.bytes;
        let ratio = bytes as f64 / before.max(1) as f64;
        if (ratio - 1.0).abs() < SAME_SIZE {
            return Ok(None);
        }
        self.conditions.sized(tensor, bytes);
        Ok(self.tuning.deviates(ratio))
    }

    /// Whether a tier does all of these layers.
    fn runs(&self, tier: usize, layers: &[usize]) -> Result<(), EventError> {
        self.tier(tier)?;
        let runs = |layer: &usize| self.conditions.compute_ms(tier, &[*layer]).is_some();
        match layers.iter().copied().find(|layer| !runs(layer)) {
            Some(layer) => Err(EventError::NoSuchLayer { tier, layer }),
            None => Ok(()),
        }
    }

    fn tier(&self, tier: usize) -> Result<(), EventError> {
        match tier < self.nominal.tiers().len() {
            true => Ok(()),
            false => Err(EventError::NoSuchTier(tier)),
        }
    }

    fn link(&self, from: usize, to: usize) -> Result<usize, EventError> {
        self.conditions
            .link(from, to)
            .ok_or(EventError::NoSuchLink { from, to })
    }
}

fn time(ms: f64) -> Result<f64, EventError> {
    match ms.is_finite() && ms >= 0.0 {
        true => Ok(ms),
        false => Err(EventError::Time(ms)),
    }
}
