//! When a plan is looked at again, and what it takes to move.

use super::problem::not_negative;
use super::{Cause, Link, ProblemError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The smallest probe, in bytes: two packets.
const LEAST_PROBE: u64 = 2 << 10;
/// How much longer the bytes of a probe take than what a message takes without them: less would tell little of the rate.
const BYTES_OVER_FIXED: f64 = 1.5;

/// The numbers of a [`Replanner`](super::Replanner).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Tuning {
    /// How often to look again when nothing happens. 0.25 s.
    pub period: Duration,
    /// After how long without a request it is idle: no link is probed, and it looks again only as often as every `idle_period`. 60 s.
    pub idle_after: Duration,
    /// How often to look again then. 2 s.
    pub idle_period: Duration,
    /// By what share a measurement may differ from its prediction before it is a reason to look again. 0.3.
    pub deviation: f64,
    /// By what share a plan has to be better before it replaces the current one, when its weights are in place. Such a move
    /// costs requests nothing, but nodes load parts for it, and two plans that are about as good would take turns. 0.005.
    pub hysteresis: f64,
    /// By what share it has to be better, the sending included, before weights are sent for it. 0.05.
    pub shipping_hysteresis: f64,
    /// For how long a plan is expected to serve, when the sending of weights is weighed against its gain. 60 s.
    pub horizon: Duration,
    /// What one measurement counts against the estimate of a link that is about right. 0.6.
    pub link_gain: f64,
    /// The same for a tier. 0.2.
    pub tier_gain: f64,
    /// The same for one that deviates: conditions have changed, and what was before is no guide. 1.
    pub deviating_gain: f64,
    /// How long it takes until only a third (1/e) is left of what was believed of a tier of which nothing is heard, or of a link that is
    /// not probed: it was left because it looked slow, and would look so for ever. Load passes; its profile stays. 20 s.
    pub forget: Duration,
    /// For how long nothing is heard of a link before it is probed. 0.5 s.
    pub probe_after: Duration,
    /// That time doubles with each probe after the second that tells nothing new, up to this. 2 s.
    pub probe_at_most: Duration,
    /// How many times faster than it ever was a link may be that is worth a probe. 2.
    pub optimism: f64,
    /// How long a probe takes where the link is as slow as it looked, or half as long again as a message without bytes, if that is
    /// more: what is sent meanwhile shares the link with it. 20 ms.
    pub probe_time: Duration,
    /// How long the bytes of a probe take that only asks whether a link that the plan takes is as fast as it was. 5 ms.
    pub watch_time: Duration,
    /// The largest probe. 32 KiB.
    pub probe_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(250),
            idle_after: Duration::from_secs(60),
            idle_period: Duration::from_secs(2),
            deviation: 0.3,
            hysteresis: 0.005,
            shipping_hysteresis: 0.05,
            horizon: Duration::from_secs(60),
            link_gain: 0.6,
            tier_gain: 0.2,
            deviating_gain: 1.0,
            forget: Duration::from_secs(20),
            probe_after: Duration::from_millis(500),
            probe_at_most: Duration::from_secs(2),
            optimism: 2.0,
            probe_time: Duration::from_millis(20),
            watch_time: Duration::from_millis(5),
            probe_bytes: 32 << 10,
        }
    }
}

impl Tuning {
    pub(crate) fn check(&self) -> Result<(), ProblemError> {
        let of = || "the tuning".into();
        let numbers = [
            ("deviation", self.deviation),
            ("hysteresis", self.hysteresis),
            ("shipping_hysteresis", self.shipping_hysteresis),
            ("link_gain", self.link_gain),
            ("tier_gain", self.tier_gain),
            ("deviating_gain", self.deviating_gain),
            ("optimism", self.optimism),
            ("period", self.period.as_secs_f64() - f64::MIN_POSITIVE),
            ("idle_period", self.idle_period.as_secs_f64() - f64::MIN_POSITIVE),
            ("forget", self.forget.as_secs_f64() - f64::MIN_POSITIVE),
        ];
        numbers
            .into_iter()
            .try_for_each(|(field, value)| not_negative(field, of, value))
    }

    /// Whether this measured/predicted ratio is a reason to look again.
    pub(crate) fn deviates(&self, ratio: f64) -> Option<Cause> {
        let far = ratio > 1.0 + self.deviation || ratio < 1.0 / (1.0 + self.deviation);
        far.then_some(Cause::Deviation(ratio))
    }

    pub(crate) fn gain(&self, ratio: f64, usual: f64) -> f64 {
        match self.deviates(ratio) {
            Some(_) => self.deviating_gain,
            None => usual,
        }
    }

    /// How long a probe of this link is to be.
    pub(crate) fn probe_size(&self, link: &Link) -> u64 {
        let ms =
            (self.probe_time.as_secs_f64() * 1e3).max(BYTES_OVER_FIXED * (link.latency_ms + link.message_ms));
        self.size(link, ms)
    }

    /// The same of one that is to find out no more than whether the link has become much slower.
    pub(crate) fn watch_size(&self, link: &Link) -> u64 {
        self.size(link, self.watch_time.as_secs_f64() * 1e3)
    }

    fn size(&self, link: &Link, ms: f64) -> u64 {
        let bytes = ms / link.ms_per_byte();
        (bytes as u64).clamp(LEAST_PROBE, self.probe_bytes.max(LEAST_PROBE))
    }

    /// What share of a belief is gone after so long without news.
    pub(crate) fn forgotten(&self, silence: Duration) -> f64 {
        1.0 - (-silence.as_secs_f64() / self.forget.as_secs_f64()).exp()
    }

    /// Whether this cost, shipping included, is enough below the current one.
    pub(crate) fn worth_shipping(&self, cost: f64, current: f64) -> bool {
        cost < current * (1.0 - self.shipping_hysteresis)
    }

    /// Whether this cost is enough below the current one.
    pub(crate) fn worth(&self, cost: f64, current: f64) -> bool {
        cost < current * (1.0 - self.hysteresis)
    }
}
