//! What became of the captures that were ordered, by their answers and by the log of decisions.

use super::alert::Alert;
use super::continuum::{Continuum, Who};
use super::mission::{shot, status};
use super::report::Run;
use super::truth::known;
use bytes::Bytes;
use http::Method;
use karman_node::{DecisionLog, FlowStatus};
use karman_sched::log::{Entry, What, explain};
use karman_types::{TaskError, TaskId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long what has reached the dish in the last pass may take to be an end: nothing new comes through after it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whom the satellite reached when it took a picture and looked at it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Taken {
    /// Nobody, until it had been looked at.
    Alone,
    /// Nobody when it was ordered; a pass came before it had been looked at.
    Overtaken,
    /// The dish: it was ordered in a pass.
    InContact,
}

/// A capture that was ordered.
pub(super) struct Ordered {
    pub(super) act: usize,
    pub(super) run: TaskId,
    pub(super) number: usize,
    pub(super) taken: Taken,
}

/// What became of every capture, once all have ended or no more is to be expected.
///
/// # Errors
/// What the satellite says.
pub(super) fn outcomes(continuum: &Continuum, ordered: &[Ordered]) -> Result<Vec<Run>, TaskError> {
    let until = Instant::now() + PATIENCE;
    let mut ended = Vec::new();
    for ordered in ordered {
        let left = until.saturating_duration_since(Instant::now());
        ended.push(status(continuum, ordered.run, left)?);
    }
    let log = decisions(continuum)?;
    let runs = ordered.iter().zip(ended);
    runs.map(|(ordered, status)| outcome(continuum, ordered, status, &log))
        .collect()
}

fn outcome(
    continuum: &Continuum,
    ordered: &Ordered,
    status: FlowStatus,
    log: &[Entry],
) -> Result<Run, TaskError> {
    let told = explain(log, ordered.run);
    let mut by = BTreeMap::new();
    for told in &told {
        *by.entry(continuum.named(&told.why.chosen)).or_insert(0) += 1;
    }
    let mut why: Vec<String> = told
        .iter()
        .map(|told| continuum.named(&told.why.to_string()))
        .collect();
    why.dedup();
    let alert = Alert::of(status.output);
    let picture = shot(ordered.number);
    let overlap = match &alert {
        Some(alert) => Some(known(continuum, &picture)?.overlap(&alert.tiles)),
        None => None,
    };
    Ok(Run {
        run: ordered.run,
        act: ordered.act,
        taken: ordered.taken,
        level: picture.level,
        latency: latency(log, ordered.run),
        to_alert: alert.as_ref().and_then(Alert::time),
        flooded_km2: alert.as_ref().map(|alert| alert.flooded_km2),
        seen_km2: alert.as_ref().map(|alert| alert.seen_km2),
        overlap,
        siren: alert.as_ref().and_then(|alert| alert.siren.clone()),
        by,
        why,
        error: status.error.map(|error| error.message),
    })
}

/// The time that the policy was told a run took.
pub(super) fn latency(log: &[Entry], run: TaskId) -> Option<Duration> {
    log.iter().find_map(|entry| match &entry.what {
        What::Served { request, heard } if *request == run => Some(heard.latency),
        _ => None,
    })
}

/// The satellite's log of decisions.
///
/// # Errors
/// What the satellite says.
pub(super) fn decisions(continuum: &Continuum) -> Result<Vec<Entry>, TaskError> {
    let control = continuum.node(Who::Sat).control();
    let answer = control.send(Method::GET, "/decisions", &[], Bytes::new())?;
    Ok(DecisionLog::read(answer.body())?.entries)
}
