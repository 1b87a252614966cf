use super::{Checkpoint, Chosen, Entry, Policy, What};
use crate::call::Picked;
use crate::place::Placed;
use crate::plugin::{Failed, Guests, PolicyPlugin};
use crate::select::{Decision, Selector};
use karman_types::{Digest, TaskId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replay {
    /// Decisions that came out the same, to the last bit.
    pub same: usize,
    /// Those that did not.
    pub different: Vec<Difference>,
    /// Decisions before the first checkpoint of their policy, which the ring has dropped: they cannot be made again.
    pub without_checkpoint: usize,
    /// Calls whose providers are put in another order now.
    pub repicked: Vec<Repicked>,
    /// Steps of workflows that are placed in another way now.
    pub replaced: Vec<Replaced>,
    /// Plugins that are not here, without which decisions cannot be made again.
    pub without_plugin: Vec<Absent>,
}

/// A plugin that is not here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Absent {
    /// Its name and version.
    pub plugin: String,
    /// The digest of its file.
    pub id: Digest,
    /// Its decisions in the log.
    pub decisions: usize,
}

/// A call whose providers are put in another order now, each order as places among them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repicked {
    /// Its place in the log.
    pub entry: usize,
    /// The request.
    pub request: TaskId,
    /// What was decided.
    pub logged: Vec<usize>,
    /// What is decided now.
    pub now: Vec<usize>,
    /// What the policy of a plugin said to it then and says now, or why it fails, where that is not the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<[String; 2]>,
}

/// A step of a workflow that is placed in another way now, each node as its place among those that were known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replaced {
    /// Its place in the log.
    pub entry: usize,
    /// The run of the workflow.
    pub request: TaskId,
    /// Where it went; nothing where the policy did not say.
    pub logged: Option<usize>,
    /// Where it goes now.
    pub now: Option<usize>,
    /// What was told of it then, and is now.
    pub told: [String; 2],
}

/// A decision that did not come out the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its place in the log.
    pub entry: usize,
    /// For which request.
    pub request: TaskId,
    /// What was decided.
    pub logged: Decision,
    /// What is decided now; nothing where the policy refuses.
    pub now: Option<Decision>,
    /// What failed before it, and what fails now.
    pub failures: [Vec<Failed>; 2],
}

impl Replay {
    /// Whether every decision after a checkpoint came out the same.
    pub fn holds(&self) -> bool {
        let same = self.different.is_empty() && self.repicked.is_empty() && self.replaced.is_empty();
        same && self.without_plugin.is_empty()
    }

    /// Decides once more what is in these entries of one policy, each with its place in the log.
    fn add(&mut self, entries: &[(usize, &What)], guests: Option<&Arc<dyn Guests>>) {
        let mut again: Option<Again> = None;
        for (place, what) in entries {
            match (what, &mut again) {
                (What::Checkpoint(checkpoint), _) => again = Some(Again::from(checkpoint, guests)),
                (What::Served { heard, .. }, Some(again)) => {
                    // It was taken in then, so it is now.
                    let _ = again.policy.report(&heard.as_served());
                }
                (What::PolicyFailed { failed, .. }, Some(again)) => {
                    again.policy.force(&failed.failure);
                    again.failed_then.push(failed.clone());
                }
                (What::Picked { request, picked }, _) => {
                    self.pick(*place, *request, (picked, guests));
                }
                (What::Placed { request, placed }, _) => {
                    self.place(*place, *request, placed, guests);
                }
                (What::Served { .. } | What::PolicyFailed { .. }, None) => {}
                (What::Chosen(_), None) => self.without_checkpoint += 1,
                (What::Chosen(chosen), Some(again)) => again.choose(*place, chosen, self),
            }
        }
    }

    fn pick(&mut self, entry: usize, request: TaskId, (picked, guests): (&Picked, Option<&Arc<dyn Guests>>)) {
        let now = match picked.again(guests.map(|guests| &**guests)) {
            Ok(now) => now,
            Err(plugin) => return self.absent(plugin),
        };
        if now == *picked {
            self.same += 1;
            return;
        }
        let said = [picked, &now].map(said);
        self.repicked.push(Repicked {
            entry,
            request,
            logged: picked.order.clone(),
            now: now.order.clone(),
            said: (said[0] != said[1]).then_some(said),
        });
    }

    fn place(&mut self, entry: usize, request: TaskId, placed: &Placed, guests: Option<&Arc<dyn Guests>>) {
        let now = match placed.again(guests.map(|guests| &**guests)) {
            Ok(now) => now,
            Err(plugin) => return self.absent(plugin),
        };
        if now == *placed {
            self.same += 1;
            return;
        }
        self.replaced.push(Replaced {
            entry,
            request,
            logged: placed.chosen(),
            now: now.chosen(),
            told: [placed.told(), now.told()],
        });
    }

    fn absent(&mut self, plugin: &PolicyPlugin) {
        match self
            .without_plugin
            .iter_mut()
            .find(|absent| absent.id == plugin.id)
        {
            Some(absent) => absent.decisions += 1,
            None => self.without_plugin.push(Absent {
                plugin: plugin.to_string(),
                id: plugin.id,
                decisions: 1,
            }),
        }
    }
}

/// What the policy of a plugin said to an order, or why it failed.
fn said(picked: &Picked) -> String {
    match picked.by_plugin.as_ref().map(|by_plugin| &by_plugin.said) {
        Some(Ok(words)) => words.clone(),
        Some(Err(failure)) => failure.to_string(),
        None => String::new(),
    }
}

/// Lets the policies of a log decide everything again, each from its checkpoints. There are no plugins here.
pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Replay {
    replay_by(entries, None)
}

/// The same with plugins, from whom those decisions come that theirs were.
pub fn replay_with<'a>(entries: impl IntoIterator<Item = &'a Entry>, guests: &Arc<dyn Guests>) -> Replay {
    replay_by(entries, Some(guests))
}

fn replay_by<'a>(entries: impl IntoIterator<Item = &'a Entry>, guests: Option<&Arc<dyn Guests>>) -> Replay {
    let mut policies: BTreeMap<(&str, u64), Vec<(usize, &What)>> = BTreeMap::new();
    for (place, entry) in entries.into_iter().enumerate() {
        let of = (entry.policy.as_str(), entry.instance);
        policies.entry(of).or_default().push((place, &entry.what));
    }
    let mut replay = Replay::default();
    // One policy after the other, so that they share the place that a plugin takes.
    for entries in policies.into_values() {
        replay.add(&entries, guests);
    }
    replay.different.sort_by_key(|different| different.entry);
    replay.repicked.sort_by_key(|repicked| repicked.entry);
    replay.replaced.sort_by_key(|replaced| replaced.entry);
    replay
}

/// A policy that decides once more.
struct Again {
    policy: Policy,
    /// Whether all that it needs is here.
    whole: bool,
    /// What failed, by the log, since the last decision.
    failed_then: Vec<Failed>,
}

impl Again {
    fn from(checkpoint: &Checkpoint, guests: Option<&Arc<dyn Guests>>) -> Self {
        let mut policy = checkpoint.state.clone();
        if let Some(guests) = guests {
            policy.attach(guests);
        }
        let here = |plugin| guests.is_some_and(|guests| guests.has(plugin));
        Self {
            whole: policy.plugin().is_none_or(here),
            policy,
            failed_then: Vec::new(),
        }
    }

    fn choose(&mut self, place: usize, chosen: &Chosen, replay: &mut Replay) {
        let then = std::mem::take(&mut self.failed_then);
        if let Some(plugin) = self.policy.plugin().filter(|_| !self.whole) {
            return replay.absent(plugin);
        }
        let now = self.policy.choose(&chosen.asked.as_ask());
        let failed_now = self.policy.failures();
        match now {
            Ok(now) if now == chosen.decision && failed_now == then => replay.same += 1,
            now => replay.different.push(Difference {
                entry: place,
                request: chosen.request,
                logged: chosen.decision.clone(),
                now: now.ok(),
                failures: [then, failed_now],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Logged;
    use super::super::testing::{request, tasks};
    use super::*;
    use crate::call::{Route, Taker};
    use crate::select::BuiltIn;
    use crate::select::testing::millis;
    use karman_types::{NodeId, Slo};

    /// A policy under a load that changes in the middle, with a candidate that comes and goes.
    fn recorded(requests: u64) -> Vec<Entry> {
        recorded_by(BuiltIn::Pixie, requests)
    }

    fn recorded_by(policy: BuiltIn, requests: u64) -> Vec<Entry> {
        let tasks = tasks(80.0);
        let slo = Slo {
            latency_p95: Some(millis(100.0)),
            cost: Some(requests as f64 * 0.7),
            ..Slo::over(requests)
        };
        let policy = policy.over(tasks.clone(), slo).unwrap();
        let mut policy = Logged::new("digits", policy, tasks, 1);
        let mut rng = fastrand::Rng::with_seed(3);
        let slow = |n: u64| if n > requests / 2 { 4.0 } else { 1.0 };
        (0..requests)
            .flat_map(|n| request(&mut policy, n, &mut rng, slow(n)))
            .collect()
    }

    #[test]
    fn every_decision_comes_out_the_same_also_from_the_middle() {
        let log = recorded(900);
        let whole = replay(&log);
        assert_eq!(
            (whole.same, whole.holds(), whole.without_checkpoint),
            (900, true, 0)
        );
        // The ring has dropped the beginning: what is left begins at the next checkpoint.
        let rest = replay(&log[150..]);
        assert!(rest.holds() && rest.without_checkpoint > 0, "{rest:?}");
        assert_eq!(rest.same + rest.without_checkpoint + 75, 900);
    }

    #[test]
    fn so_does_every_decision_of_each_built_in_policy() {
        for policy in BuiltIn::ALL {
            let replayed = replay(&recorded_by(policy, 300));
            assert_eq!(
                (replayed.same, replayed.holds()),
                (300, true),
                "{}",
                policy.name()
            );
        }
    }

    #[test]
    fn a_decision_that_was_tampered_with_is_found() {
        let mut log = recorded(300);
        let place = log.len() - 2;
        let What::Chosen(chosen) = &mut log[place].what else {
            panic!("no decision")
        };
        chosen.decision.chosen = (chosen.decision.chosen + 1) % 3;
        let found = replay(&log);
        assert_eq!((found.different.len(), found.different[0].entry), (1, place));
    }

    #[test]
    fn who_is_asked_to_run_a_call_comes_out_the_same_beside_other_decisions() {
        let taker = |name: &str, way| Taker {
            round_trip: Some(millis(way)),
            ..Taker::new(NodeId::of_key(name.as_bytes()), 2)
        };
        let picked = Picked::by(Route::Soonest, "echo", vec![taker("a", 9.0), taker("b", 3.0)]);
        let request = TaskId::from_parts(7, 7);
        let mut log = recorded(20);
        log.push(Entry::picked(5, request, picked));
        log.push(Entry::answered(
            6,
            request,
            (Route::Soonest.name(), 1),
            millis(4.0),
        ));
        let replayed = replay(&log);
        assert_eq!((replayed.same, replayed.holds()), (21, true));

        let place = log.len() - 2;
        let What::Picked { picked, .. } = &mut log[place].what else {
            panic!("no pick")
        };
        picked.order.reverse();
        let found = replay(&log);
        assert!(!found.holds());
        assert_eq!(
            (found.repicked[0].entry, &found.repicked[0].now[..]),
            (place, &[1, 0][..])
        );
    }

    #[test]
    fn what_was_left_out_of_the_log_shows() {
        let mut log = recorded(600);
        // All reports of the second half of it are lost: the policy does not learn that all has become slow.
        let served = |entry: &Entry| matches!(entry.what, What::Served { .. });
        let checkpoint = |entry: &Entry| matches!(entry.what, What::Checkpoint(_));
        let mut place = 0;
        log.retain(|entry| {
            place += 1;
            place < 650 || !(served(entry) || checkpoint(entry))
        });
        assert!(!replay(&log).holds());
    }
}
