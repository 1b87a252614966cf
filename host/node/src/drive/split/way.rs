//! The route that requests take, with what is known of it.

use super::plan::Route;
use super::policy::Policy;
use super::wire::Station;
use karman_sched::partition::Replanner;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A node is late when it takes this many times what is expected, and at least this many milliseconds more.
const LATE: (f64, f64) = (1.5, 50.0);

/// What requests go by.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) route: Arc<Route>,
    /// Where its stages run, with what was known of links and times when that was last looked at.
    pub(super) stations: Arc<[Station]>,
}

impl Way {
    /// By what is known now.
    pub(super) fn of(replanner: &Replanner<Policy>, route: Arc<Route>) -> Self {
        let stations = stations(replanner, &route);
        Self { route, stations }
    }
}

/// Where the stages of a route run, with what is known now of the links between them.
fn stations(replanner: &Replanner<Policy>, route: &Route) -> Arc<[Station]> {
    const PROBE: u64 = 1 << 20;
    let rate = |pair: &[usize]| {
        let ms = |bytes| replanner.expected_ms(pair[0], pair[1], bytes);
        let busy = ms(PROBE)? - ms(0)?;
        Some(PROBE as f64 * 8.0 / (busy * 1e3))
    };
    let stations = route.stations.iter().zip(route.tiers.windows(2));
    let with_rate = |(station, pair): (&Station, &[usize])| Station {
        rate_mbit_s: rate(pair).unwrap_or(f64::INFINITY),
        ..station.clone()
    };
    let mut stations: Vec<Station> = stations.map(with_rate).collect();
    if let Some(first) = stations
        .first_mut()
        .filter(|_| route.spare.load(Ordering::Relaxed))
    {
        first.late_ms = late_ms(replanner, route);
    }
    stations.into()
}

/// When those after the first stage are late, by what is known now of how long they take.
fn late_ms(replanner: &Replanner<Policy>, route: &Route) -> Option<u64> {
    let now = replanner.problem().ok()?.predict(&route.assignment).ok()?;
    let here = now.tiers.first()?.compute_ms;
    let rest = now.latency_ms - here;
    Some((rest * LATE.0).max(rest + LATE.1) as u64)
}
