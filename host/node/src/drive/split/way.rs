//! The route that requests take, with what is known of it.

use super::plan::Route;
use super::policy::Policy;
use super::wire::Station;
use karman_mesh::BEGINNING;
use karman_sched::partition::{Prediction, Replanner};
use karman_types::NodeId;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A node is late when it takes this many times what is expected, and at least this many milliseconds more.
const LATE: (f64, f64) = (1.5, 25.0);
/// A word that data have begun to come is late after as many times what is expected, and at least this many milliseconds more.
const LATE_WORD_MS: f64 = 10.0;
/// A word is asked for where the want of it shows so many milliseconds before that of a result, at least.
const WORTH_A_WORD_MS: u64 = 25;

/// How many times longer than by its plan a stage is waited for at most, where it is known to take longer now.
const MORE_PATIENCE: f64 = 10.0;

/// What requests go by.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) route: Arc<Route>,
    /// Where its stages run, with what was known of links and times when that was last looked at.
    pub(super) stations: Arc<[Station]>,
    /// How many times longer than by its plan it is known to take.
    pub(super) slower: f64,
}

/// Nodes that do not answer as they should.
#[derive(Default)]
pub(super) struct Absent {
    /// Those that are gone: they are not asked.
    pub(super) lost: Vec<NodeId>,
    /// Those that let a stage time out a moment ago: they are asked last.
    pub(super) late: Vec<NodeId>,
    /// How many times longer than by its plan the route took before one of its nodes timed out; nothing where none did. That it has not
    /// answered says that it is late, and not how long to wait for it.
    pub(super) slower: Option<f64>,
}

impl Way {
    /// By what is known now.
    pub(super) fn of(replanner: &Replanner<Policy>, route: Arc<Route>, absent: &Absent) -> Self {
        let now = now(replanner, &route);
        let expected_ms = route.expected_ms.max(f64::MIN_POSITIVE);
        let learnt = || now.as_ref().map_or(1.0, |now| now.latency_ms / expected_ms);
        let slower = absent.slower.unwrap_or_else(learnt);
        let stations = stations(replanner, &route, absent, now.as_ref(), slower);
        Self {
            route,
            stations,
            slower,
        }
    }
}

/// Where the stages of a route run, with what is known now of the links between them.
fn stations(
    replanner: &Replanner<Policy>,
    route: &Route,
    absent: &Absent,
    now: Option<&Prediction>,
    slower: f64,
) -> Arc<[Station]> {
    const PROBE: u64 = 1 << 20;
    let rate = |from, to| {
        let ms = |bytes| replanner.expected_ms(from, to, bytes);
        let busy = || Some(ms(PROBE)? - ms(0)?);
        busy().map_or(f64::INFINITY, |busy| PROBE as f64 * 8.0 / (busy * 1e3))
    };
    let known = |(station, pair): (&Station, &[usize])| {
        let mut nodes = station.nodes.clone();
        // The last one is here.
        let here = nodes.pop();
        nodes.retain(|node| !absent.lost.contains(node));
        nodes.extend(here);
        nodes.sort_by_key(|node| absent.late.contains(node));
        Station {
            nodes,
            patience_ms: (station.patience_ms as f64 * slower.clamp(1.0, MORE_PATIENCE)) as u64,
            rate_mbit_s: rate(pair[0], pair[1]),
            back_mbit_s: rate(pair[1], pair[0]),
            ..station.clone()
        }
    };
    let stations = route.stations.iter().zip(route.tiers.windows(2));
    let mut stations: Vec<Station> = stations.map(known).collect();
    if let Some(first) = stations
        .first_mut()
        .filter(|_| route.spare.load(Ordering::Relaxed))
    {
        first.late_ms = now.and_then(late_ms);
        let to = route.tiers.get(1).copied().unwrap_or_default();
        first.silent_ms =
            silent_ms(replanner, to).filter(|silent| first.late_ms >= Some(silent + WORTH_A_WORD_MS));
    }
    stations.into()
}

fn now(replanner: &Replanner<Policy>, route: &Route) -> Option<Prediction> {
    replanner.problem().ok()?.predict(&route.assignment).ok()
}

/// When a word that the first of the data have come to this tier is late.
fn silent_ms(replanner: &Replanner<Policy>, to: usize) -> Option<u64> {
    let there = replanner.expected_ms(0, to, BEGINNING)?;
    let word = there + replanner.expected_ms(to, 0, 0)?;
    Some((word * LATE.0).max(word + LATE_WORD_MS) as u64)
}

/// When those after the first stage are late, by what is known now of how long they take.
fn late_ms(now: &Prediction) -> Option<u64> {
    let here = now.tiers.first()?.compute_ms;
    let rest = now.latency_ms - here;
    Some((rest * LATE.0).max(rest + LATE.1) as u64)
}
