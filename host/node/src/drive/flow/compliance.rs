//! How far workflows have kept what is wanted of them, minute by minute, as this node has seen their runs end.

use karman_types::Slo;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// Workflows that are remembered; for one more, the one goes that nobody ran for longest.
const MOST_WORKFLOWS: usize = 64;
/// Minutes that are remembered.
const MINUTES: u64 = 60;
const MINUTE_MS: u64 = 60_000;

/// The last hour of workflows with objectives, as far as the node has been up.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SloHour {
    /// The beginning of the minute that it is now, in milliseconds since 1970.
    pub minute_ms: u64,
    /// The workflows of which runs have ended, by name.
    pub workflows: Vec<SloHistory>,
}

/// How far a workflow has kept its objectives.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SloHistory {
    /// The workflow.
    pub workflow: String,
    /// What is wanted of it. The same workflow with other objectives has a history of its own.
    pub slo: Slo,
    /// The minutes in which runs of it ended, the oldest first.
    pub minutes: Vec<SloMinute>,
}

/// What ended within one minute.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct SloMinute {
    /// Its beginning, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Runs that ended, those that were withdrawn left out.
    pub runs: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Of those that did not, those that took longer than the 95th percentile may.
    pub late: u64,
    /// Money for all of them.
    pub cost: f64,
}

/// A run that has ended.
pub(super) struct EndedRun {
    /// From when it was asked for.
    pub(super) latency: Duration,
    pub(super) cost: f64,
    pub(super) failed: bool,
}

/// What is remembered; the workflow that was run last stands last.
#[derive(Default)]
pub(super) struct Compliance(Mutex<VecDeque<SloHistory>>);

impl Compliance {
    /// Remembers how a run of a workflow with objectives has ended.
    pub(super) fn ended(&self, now_ms: u64, (workflow, slo): (&str, &Slo), run: &EndedRun) {
        let mut all = self.0.lock();
        let place = all
            .iter()
            .position(|known| known.workflow == workflow && known.slo == *slo);
        let mut history = place
            .and_then(|place| all.remove(place))
            .unwrap_or_else(|| SloHistory {
                workflow: workflow.to_owned(),
                slo: slo.clone(),
                minutes: Vec::new(),
            });
        history.add(now_ms, run);
        all.push_back(history);
        if all.len() > MOST_WORKFLOWS {
            all.pop_front();
        }
    }

    /// What is remembered of the last hour.
    pub(super) fn last_hour(&self, now_ms: u64) -> SloHour {
        let mut all: Vec<SloHistory> = self.0.lock().iter().cloned().collect();
        all.iter_mut().for_each(|history| history.forget(now_ms));
        all.retain(|history| !history.minutes.is_empty());
        all.sort_by(|one, other| one.workflow.cmp(&other.workflow));
        SloHour {
            minute_ms: begun(now_ms),
            workflows: all,
        }
    }
}

impl SloHistory {
    fn add(&mut self, now_ms: u64, run: &EndedRun) {
        self.forget(now_ms);
        let unix_ms = begun(now_ms);
        if self.minutes.last().is_none_or(|last| last.unix_ms != unix_ms) {
            self.minutes.push(SloMinute {
                unix_ms,
                runs: 0,
                failed: 0,
                late: 0,
                cost: 0.0,
            });
        }
        let late = self.slo.latency_p95.is_some_and(|limit| run.latency > limit);
        if let Some(minute) = self.minutes.last_mut() {
            minute.runs += 1;
            minute.failed += u64::from(run.failed);
            minute.late += u64::from(late && !run.failed);
            minute.cost += run.cost;
        }
    }

    /// What is older than an hour goes; so does what would be in the future, after the clock was set back.
    fn forget(&mut self, now_ms: u64) {
        let first = (now_ms / MINUTE_MS).saturating_sub(MINUTES - 1) * MINUTE_MS;
        self.minutes
            .retain(|minute| (first..=now_ms).contains(&minute.unix_ms));
    }
}

/// The beginning of the minute of this moment.
const fn begun(now_ms: u64) -> u64 {
    now_ms - now_ms % MINUTE_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    // The beginning of a minute.
    const NOW: u64 = 1_800_000_000_000;

    fn wanted(ms: u64) -> Slo {
        Slo {
            latency_p95: Some(Duration::from_millis(ms)),
            ..Slo::over(100)
        }
    }

    fn run(ms: u64, failed: bool) -> EndedRun {
        EndedRun {
            latency: Duration::from_millis(ms),
            cost: 0.5,
            failed,
        }
    }

    #[test]
    fn runs_count_in_the_minute_in_which_they_end() {
        let (all, slo) = (Compliance::default(), wanted(50));
        for (after, ms, failed) in [
            (0, 50, false),
            (1, 51, false),
            (2, 900, true),
            (MINUTE_MS, 1, false),
        ] {
            all.ended(NOW + after, ("tally", &slo), &run(ms, failed));
        }
        let SloHour {
            minute_ms,
            workflows: history,
        } = all.last_hour(NOW + MINUTE_MS + 7);
        assert_eq!(minute_ms, NOW + MINUTE_MS);
        let counts = history[0].minutes.iter();
        let counts: Vec<_> = counts
            .map(|minute| (minute.runs, minute.failed, minute.late, minute.cost))
            .collect();
        assert_eq!(counts, [(3, 1, 1, 1.5), (1, 0, 0, 0.5)]);
        assert_eq!(history[0].minutes[0].unix_ms, NOW);
    }

    #[test]
    fn an_hour_is_remembered_and_other_objectives_are_another_history() {
        let all = Compliance::default();
        all.ended(NOW, ("tally", &wanted(50)), &run(1, false));
        all.ended(NOW + 1, ("tally", &wanted(60)), &run(1, false));
        let hour = |now_ms| all.last_hour(now_ms).workflows;
        assert_eq!(hour(NOW + 1).len(), 2);
        for minute in 1..=2 * MINUTES {
            all.ended(NOW + minute * MINUTE_MS, ("tally", &wanted(50)), &run(1, false));
        }
        let history = hour(NOW + 2 * MINUTES * MINUTE_MS);
        assert_eq!((history.len(), history[0].minutes.len()), (1, MINUTES as usize));
        assert!(hour(NOW + 4 * MINUTES * MINUTE_MS).is_empty());
        // The clock was set back: nothing is shown of what is to come.
        assert!(hour(NOW - MINUTE_MS).is_empty());
    }

    #[test]
    fn only_so_many_workflows_are_remembered() {
        let (all, slo) = (Compliance::default(), wanted(50));
        for n in 0..=MOST_WORKFLOWS {
            all.ended(NOW, (&format!("flow-{n:03}"), &slo), &run(1, false));
        }
        let history = all.last_hour(NOW).workflows;
        assert_eq!(
            (history.len(), history[0].workflow.as_str()),
            (MOST_WORKFLOWS, "flow-001")
        );
    }
}
