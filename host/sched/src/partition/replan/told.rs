//! What an event tells a re-planner of tiers, links and weights.

use super::Replanner;
use crate::partition::{Cause, Event, EventError, Partitioner};
use std::time::Duration;

/// Sizes that differ by less than this share are the same: what a camera sees differs from picture to picture.
const SAME_SIZE: f64 = 0.05;
/// By less than so many milliseconds, or so many times, a tier may be late or early once: its thread was kept waiting for something else, or
/// found all that it needs at hand. Twice in a row it is slow, or fast.
const HICCUP_MS: f64 = 10.0;
const HICCUP: f64 = 3.0;
/// By less than so many milliseconds a message may be late once: something else was on the link. Twice in a row the link is slow.
const CROSSING_MS: f64 = 25.0;

/// A message that no answer has come to: the next one over its link tells whether that was slow, or the tier behind it.
#[derive(Clone)]
pub(super) struct Unanswered {
    bytes: u64,
    layers: Vec<usize>,
    ms: f64,
}

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
                self.measured[link] = now;
                if self.has_met_others(link, bytes, ms) {
                    // Another look, soon, tells.
                    self.measured[link] = now.saturating_sub(self.tuning.probe_at_most);
                    return Ok(None);
                }
                Ok(self.sent(link, to, bytes, ms))
            }
            Event::Overdue {
                from,
                to,
                arrived,
                ms,
            } => {
                let (link, ms) = (self.link(from, to)?, time(ms)?);
                self.measured[link] = now;
                // The link is slow itself, then.
                self.unanswered[link] = None;
                Ok(Some(self.overdue(link, arrived, ms)))
            }
            Event::Back { from, to } => {
                let link = self.link(from, to)?;
                self.is_back(link, now);
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
                self.measured[link] = now;
                self.unanswered[link] = Some(Unanswered { bytes, layers, ms });
                if self.links_are_stated {
                    let ms_per_byte = self.conditions.links()[link].ms_per_byte();
                    return Ok(self.judge(link, to, ms_per_byte));
                }
                Ok(Some(self.overdue(link, 0, ms)))
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
        let into = |link: &usize| self.conditions.links()[*link].to == tier;
        for link in (0..self.unanswered.len()).filter(into) {
            self.unanswered[link] = None;
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

    fn overdue(&mut self, link: usize, arrived: u64, ms: f64) -> Cause {
        let gain = self.tuning.deviating_gain;
        let ratio = self.measure(link, |conditions| conditions.crawls(link, arrived, ms, gain));
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

    /// Whether a message was late as one is that has met others on its way, and none before it was that no other one has disproved since. A much
    /// smaller one does not: it would hardly be late where the link is somewhat slower.
    fn has_met_others(&mut self, link: usize, bytes: u64, ms: f64) -> bool {
        let expected = self.conditions.links()[link].ms(bytes);
        let is_late = ms > expected && self.tuning.deviates(ms / expected).is_some();
        let was_late = self.late[link];
        if is_late {
            self.late[link] = Some(bytes);
        } else if was_late.is_some_and(|late| bytes >= late.min(self.tuning.probe_bytes) / 2) {
            self.late[link] = None;
        }
        is_late && was_late.is_none() && ms - expected < CROSSING_MS
    }

    fn sent(&mut self, link: usize, to: usize, bytes: u64, ms: f64) -> Option<Cause> {
        if !self.conditions.tells(link, bytes, ms) {
            return None;
        }
        let ratio = ms / self.conditions.links()[link].ms(bytes);
        let gain = self.tuning.gain(ratio, self.tuning.link_gain);
        self.measure(link, |conditions| conditions.sent(link, bytes, ms, gain));
        let cause = self.tuning.deviates(ratio);
        let of_tier = self.judge(link, to, ms / bytes as f64);
        cause.or(of_tier)
    }

    /// What was waited for a tier beyond what its link takes, which a message has come over at this pace, was the tier's.
    fn judge(&mut self, link: usize, tier: usize, ms_per_byte: f64) -> Option<Cause> {
        let Unanswered { bytes, layers, ms } = self.unanswered[link].take()?;
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
