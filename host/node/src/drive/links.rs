//! How fast the links between this node and others are: measured, with as few bytes as a slow link can bear.

mod probes;
mod rates;

pub use rates::MeasuredRate;

pub(in crate::drive) use probes::Probed;

use self::probes::{Probes, Probing};
use self::rates::{RateTable, Way};
use super::mesh_of;
use crate::node::Node;
use bytes::Bytes;
use futures::FutureExt;
use karman_mesh::{Ask, CallHead, PeerId};
use karman_types::{NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// What is sent first. A link that takes longer than [`SLOW`] for its bytes is not asked for more.
const SMALL: usize = 32 << 10;
/// What a link is sent that is fast enough to make the small one a matter of its delay.
const LARGE: usize = 1 << 20;
const SLOW: Duration = Duration::from_millis(100);
/// The fastest that is told: beyond it, a transfer of this length says nothing of the link.
const MOST_MBIT_S: f64 = 100_000.0;
/// By what share of itself the time of an empty message may differ from one to the next.
const WAVERS: f64 = 0.1;
/// How often each length is sent at most; the fastest counts, for what made the others slower is no property of the link.
const TIMES: usize = 3;
/// One that takes so long, and so many times as long as an empty message, is not sent again: neither a moment's delay nor the slow start of a
/// transfer makes much of it.
const LONG: (Duration, u32) = (Duration::from_millis(500), 10);

/// What this node has measured of its links, and is measuring.
#[derive(Default)]
pub(crate) struct Links {
    pub(in crate::drive) rates: RateTable,
    probes: Probes,
}

/// A link from one node to another.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct LinkMeasure {
    /// Where it begins.
    pub from: NodeId,
    /// Where it ends.
    pub to: NodeId,
    /// Milliseconds until an empty message is there.
    pub latency_ms: f64,
    /// Megabits (10⁶) per second.
    pub rate_mbit_s: f64,
}

impl LinkMeasure {
    /// Whether a plan can be made with it.
    pub(in crate::drive) fn check(&self) -> Result<(), TaskError> {
        let wrong = |field: &str, value: f64| {
            let says = format!("it tells {value}, which is no measurement");
            Err(TaskError::invalid(says).with_field(field))
        };
        let Self {
            latency_ms,
            rate_mbit_s,
            ..
        } = *self;
        if !(latency_ms.is_finite() && latency_ms >= 0.0) {
            return wrong("latency_ms", latency_ms);
        }
        match rate_mbit_s.is_finite() && rate_mbit_s > 0.0 {
            true => Ok(()),
            false => wrong("rate_mbit_s", rate_mbit_s),
        }
    }
}

/// Measures the link from this node to another.
pub(in crate::drive) async fn measure(node: &Node, to: NodeId) -> Result<LinkMeasure, TaskError> {
    measured(node, to, Way::There).await
}

/// Measures the link from another node to this one, without a measurement of its own.
pub(in crate::drive) async fn measure_back(node: &Node, from: NodeId) -> Result<LinkMeasure, TaskError> {
    measured(node, from, Way::Back).await
}

async fn measured(node: &Node, other: NodeId, way: Way) -> Result<LinkMeasure, TaskError> {
    let peer = mesh_of(node)?.peer(other).await?;
    // The first one may set up a connection.
    send(node, peer, (way, 0)).await?;
    let empty = fastest(node, peer, (way, 0), Duration::MAX).await?;
    let mut bytes = SMALL;
    let mut transfer = fastest(node, peer, (way, SMALL), empty)
        .await?
        .saturating_sub(empty);
    if transfer < SLOW {
        bytes = LARGE;
        transfer = fastest(node, peer, (way, LARGE), empty)
            .await?
            .saturating_sub(empty);
    }
    let rate_mbit_s = rate_mbit_s(bytes, transfer, empty);
    node.links().rates.put(other, way, rate_mbit_s);
    let here = node.runtime().id();
    let (from, to) = match way {
        Way::There => (here, other),
        Way::Back => (other, here),
    };
    Ok(LinkMeasure {
        from,
        to,
        latency_ms: empty.as_secs_f64() * 1e3 / 2.0,
        rate_mbit_s,
    })
}

/// Remembers what another node has measured of its link to this one.
pub(in crate::drive) fn heard(node: &Node, link: &LinkMeasure) {
    if link.to == node.runtime().id() {
        node.links().rates.put(link.from, Way::Back, link.rate_mbit_s);
    }
}

/// The links from this node to others, measured one after the other: together they would measure each other.
pub(in crate::drive) async fn links_to(node: &Node, others: &[NodeId]) -> Vec<LinkMeasure> {
    let mut links = Vec::new();
    for other in others.iter().filter(|other| **other != node.runtime().id()) {
        match measure(node, *other).await {
            Ok(link) => links.push(link),
            Err(error) => tracing::debug!(to = %other, %error, "a link is not measured"),
        }
    }
    links
}

/// The rate of a link that takes so long for these bytes beyond what an empty message takes there and back. That wavers: of a transfer that is
/// short beside it nothing is known but that it is short.
fn rate_mbit_s(bytes: usize, transfer: Duration, empty: Duration) -> f64 {
    let seconds = transfer.max(empty.mul_f64(WAVERS)).as_secs_f64();
    (bytes as f64 * 8.0 / 1e6 / seconds).min(MOST_MBIT_S)
}

/// How many bytes a second the link from this node to another carries. One that is not measured within that time is told to be as fast as it can
/// be at most.
///
/// # Errors
/// The other node is not in reach.
pub(in crate::drive) async fn bytes_per_second(
    node: &Node,
    to: NodeId,
    within: Duration,
) -> Result<f64, TaskError> {
    match tokio::time::timeout(within, measure(node, to)).await {
        Ok(measured) => Ok(measured?.rate_mbit_s * 1e6 / 8.0),
        Err(_) => Ok((TIMES * SMALL) as f64 / within.as_secs_f64()),
    }
}

/// How long about so many bytes, at most [`LARGE`], take to another node and an empty answer back now, by sending them once: far less than it
/// takes to measure the link.
pub(in crate::drive) fn probe(node: &Node, to: NodeId, bytes: u64) -> Probing {
    let asking = node.clone();
    node.links().probes.join(to, bytes, || {
        async move {
            let peer = mesh_of(&asking)?.peer(to).await?;
            let took = send(&asking, peer, (Way::There, bytes as usize)).await?;
            Ok(Probed { bytes, took })
        }
        .boxed()
    })
}

/// How long so many bytes take one way and nothing the other, where an empty message takes that long.
async fn fastest(
    node: &Node,
    peer: PeerId,
    sent: (Way, usize),
    empty: Duration,
) -> Result<Duration, TaskError> {
    let mut fastest = Duration::MAX;
    for _ in 0..TIMES {
        fastest = fastest.min(send(node, peer, sent).await?);
        if is_long(fastest, empty) {
            break;
        }
    }
    Ok(fastest)
}

fn is_long(took: Duration, empty: Duration) -> bool {
    took >= LONG.0 && took >= empty.saturating_mul(LONG.1)
}

async fn send(node: &Node, peer: PeerId, (way, bytes): (Way, usize)) -> Result<Duration, TaskError> {
    let (ask, body, back) = match way {
        Way::There => (Ask::Measure, noise(bytes), 0),
        Way::Back => {
            let bytes = bytes as u64;
            (Ask::MeasureBack { bytes }, Bytes::new(), bytes)
        }
    };
    let head = CallHead::new(ask, "link", node.runtime().context(None).task);
    let started = Instant::now();
    let (answer, _) = mesh_of(node)?.call(peer, head, body).await?;
    let took = started.elapsed();
    match answer.body.len() as u64 == back {
        true => Ok(took),
        false => Err(TaskError::invalid(
            "it sent another number of bytes than it was asked for",
        )),
    }
}

/// The answer to another node that measures the link to itself.
///
/// # Errors
/// `limit` where it asks for more bytes than a measurement takes.
pub(in crate::drive) fn answer(bytes: u64) -> Result<Bytes, TaskError> {
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= LARGE => Ok(noise(bytes)),
        _ => Err(
            TaskError::limit(format!("a measurement takes {LARGE} bytes at most, not {bytes}"))
                .with_field("bytes"),
        ),
    }
}

/// No link packs what has no pattern. However many are measured at once, it is in memory once.
fn noise(bytes: usize) -> Bytes {
    static NOISE: LazyLock<Bytes> = LazyLock::new(|| {
        let mut noise = vec![0; LARGE];
        fastrand::fill(&mut noise);
        noise.into()
    });
    NOISE.slice(..bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wavers_is_no_rate() {
        let ms = Duration::from_millis;
        let megabyte = 1_000_000;
        assert_eq!(rate_mbit_s(megabyte, ms(80), ms(1)), 100.0);
        // Over a satellite a message may come sooner than an empty one before it.
        assert_eq!(rate_mbit_s(megabyte, ms(0), ms(800)), 100.0);
        assert_eq!(rate_mbit_s(megabyte, ms(0), ms(0)), MOST_MBIT_S);
    }

    #[test]
    fn a_long_transfer_is_measured_once() {
        let ms = Duration::from_millis;
        assert!(is_long(ms(1100), ms(26)));
        assert!(!is_long(ms(80), ms(1)));
        // The connection over a satellite has yet to learn how much it may send at once.
        assert!(!is_long(ms(5000), ms(800)));
        assert!(!is_long(ms(5000), Duration::MAX));
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        let link = |latency_ms, rate_mbit_s| LinkMeasure {
            from: NodeId::of_key(&[1; 32]),
            to: NodeId::of_key(&[2; 32]),
            latency_ms,
            rate_mbit_s,
        };
        assert_eq!(link(0.0, 1.0).check(), Ok(()));
        for (latency_ms, rate_mbit_s) in [(f64::NAN, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, f64::INFINITY)] {
            assert!(link(latency_ms, rate_mbit_s).check().is_err());
        }
    }
}
