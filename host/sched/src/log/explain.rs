use super::{Chosen, Entry, What};
use crate::Why;
use crate::call::Picked;
use crate::place::Placed;
use crate::plugin::{During, Failed};
use crate::select::{Call, Task};
use karman_types::{NodeId, TaskId, format_duration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A decision in plain words, with what it was made on and what came of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Told {
    /// What was decided, and why.
    pub why: Why,
    /// How long ago who was chosen was last heard of; nothing where only its profile spoke for it.
    pub known: Option<Duration>,
    /// Candidates that could not be reached.
    pub unreachable: Vec<String>,
    /// What came of it, once that was reported. Of a call or step that several nodes may run: until one of them had answered.
    pub call: Option<Call>,
    /// The node that answered such a call, where that is not the one that was asked first: that one could not be reached, or was late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// What failed in the policy that a plugin brings, when it was asked this and was told what came of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
}

/// A decision that is still told of.
struct Open<'a> {
    /// By which policy, of which task, for whom: a report finds it by these.
    by: (&'a str, u64),
    task: usize,
    candidate: usize,
    /// The nodes that could be asked, where one of them was chosen, whichever of them answered.
    nodes: Option<Vec<NodeId>>,
    told: Told,
}

impl<'a> Open<'a> {
    /// The choice of an implementation; what failed in the policy meanwhile goes with it.
    fn chosen(by: (&'a str, u64), tasks: &[Task], chosen: &Chosen, failed: Vec<Failed>) -> Self {
        let (task, candidate) = (chosen.decision.task, chosen.decision.chosen);
        let name = |candidate: &usize| {
            let known = tasks.get(task).and_then(|task| task.candidates.get(*candidate));
            known.map_or_else(|| format!("candidate {candidate}"), |known| known.name.clone())
        };
        Self {
            by,
            task,
            candidate,
            nodes: None,
            told: Told {
                why: Why::selected(tasks, &chosen.decision),
                known: chosen.known.get(candidate).copied().flatten(),
                unreachable: chosen.asked.unreachable.iter().map(name).collect(),
                call: None,
                instead: None,
                failed,
            },
        }
    }

    /// The order in which the providers of a call were asked.
    fn picked(by: (&'a str, u64), picked: &Picked) -> Self {
        Self {
            by,
            task: 0,
            candidate: picked.order.first().copied().unwrap_or_default(),
            nodes: Some(picked.takers.iter().map(|taker| taker.node).collect()),
            told: Told {
                why: picked.why(),
                known: picked.first().and_then(|first| first.heard),
                unreachable: Vec::new(),
                call: None,
                instead: None,
                failed: picked.failed().into_iter().collect(),
            },
        }
    }

    /// Where a step went. Where the policy did not say, the longest that any node was not heard of counts.
    fn placed(by: (&'a str, u64), placed: &Placed) -> Self {
        let heard = &placed.known.heard;
        let of = |node: usize| heard.get(node).copied().flatten();
        Self {
            by,
            task: 0,
            candidate: placed.chosen().unwrap_or(usize::MAX),
            nodes: Some(placed.known.fleet.nodes.iter().map(|node| node.id).collect()),
            told: Told {
                why: placed.why(),
                known: placed
                    .chosen()
                    .map_or_else(|| heard.iter().copied().flatten().max(), of),
                unreachable: Vec::new(),
                call: None,
                instead: None,
                failed: placed.failed().into_iter().collect(),
            },
        }
    }

    /// Whether a call came of it, as far as that is not known yet.
    fn is_of(&self, by: (&str, u64), call: &Call) -> bool {
        let served = self.nodes.is_some() || self.candidate == call.candidate;
        (self.by, self.task) == (by, call.task) && served && self.told.call.is_none()
    }

    /// Takes in what came of it.
    fn close(&mut self, call: Call) {
        self.told.call = Some(call);
        let nodes = self.nodes.as_ref().filter(|_| call.candidate != self.candidate);
        let other = nodes.and_then(|nodes| nodes.get(call.candidate));
        self.told.instead = other.map(NodeId::short);
    }
}

/// The decisions of one request, the oldest first. The log has to reach back to a checkpoint before them for names; else they are
/// numbers.
pub fn explain<'a>(entries: impl IntoIterator<Item = &'a Entry>, request: TaskId) -> Vec<Told> {
    let mut tasks: BTreeMap<(&str, u64), &[Task]> = BTreeMap::new();
    let mut told: Vec<Open<'a>> = Vec::new();
    let mut failed_before: BTreeMap<(&str, u64), Vec<Failed>> = BTreeMap::new();
    for entry in entries {
        let by = (entry.policy.as_str(), entry.instance);
        match &entry.what {
            What::Checkpoint(checkpoint) => _ = tasks.insert(by, &checkpoint.tasks),
            What::PolicyFailed { request: of, failed } if *of == request => {
                let last = told.iter_mut().rev().find(|open| open.by == by);
                match (failed.during, last) {
                    (During::Report, Some(open)) => open.told.failed.push(failed.clone()),
                    _ => failed_before.entry(by).or_default().push(failed.clone()),
                }
            }
            What::Chosen(chosen) if chosen.request == request => {
                let tasks = tasks.get(&by).copied().unwrap_or_default();
                let failed = failed_before.remove(&by).unwrap_or_default();
                told.push(Open::chosen(by, tasks, chosen, failed));
            }
            What::Picked { request: of, picked } if *of == request => told.push(Open::picked(by, picked)),
            What::Placed { request: of, placed } if *of == request => told.push(Open::placed(by, placed)),
            What::Served {
                request: served,
                heard,
            } if *served == request => {
                for call in &heard.calls {
                    if let Some(open) = told.iter_mut().find(|open| open.is_of(by, call)) {
                        open.close(*call);
                    }
                }
            }
            _ => {}
        }
    }
    told.into_iter().map(|open| open.told).collect()
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)?;
        for failed in &self.failed {
            write!(f, "; {failed}")?;
        }
        match self.known {
            Some(age) => write!(f, "; it was last heard of {} before", format_duration(age))?,
            None => f.write_str("; only its profile was known")?,
        }
        if !self.unreachable.is_empty() {
            write!(f, "; {} could not be reached", self.unreachable.join(", "))?;
        }
        let Some(call) = &self.call else {
            return Ok(());
        };
        let took = format_duration(call.latency);
        match (&self.instead, call.right) {
            (Some(other), _) => write!(f, "; {other} answered instead, {took} after the call was made"),
            (None, Some(false)) => write!(f, "; it gave no right answer within {took}"),
            (None, _) => write!(f, "; it took {took}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Logged, Policy};
    use super::*;
    use crate::call::{Route, Taker};
    use crate::select::testing::{candidate, millis, task};
    use crate::select::{Asked, Fixed, Heard};
    use karman_types::{NodeId, Slo};

    #[test]
    fn a_decision_is_told_with_what_came_of_it() {
        let tasks = vec![task(
            "classify",
            vec![candidate("s", 0.9, 20.0, 0.1), candidate("m", 0.99, 80.0, 1.0)],
        )];
        let fixed = Fixed::new(tasks.clone(), &Slo::over(10), vec![1]).unwrap();
        let mut policy = Logged::new("digits", Policy::Fixed(Box::new(fixed)), tasks, 1);
        let request = TaskId::from_parts(1, 1);
        let asked = Asked {
            unreachable: vec![1],
            ..Asked::default()
        };
        let (_, mut log) = policy.choose(5, request, asked).unwrap();
        let call = Call {
            task: 0,
            candidate: 0,
            latency: millis(12.5),
            cost: 0.0,
            energy: None,
            right: None,
        };
        let heard = Heard {
            calls: vec![call],
            ..Heard::default()
        };
        log.extend(policy.report(9, request, heard).unwrap());
        let told = explain(&log, request);
        assert_eq!(
            told[0].to_string(),
            "who serves `classify`: s because no other can be reached; only its profile was known; m could not be reached; \
             it took 12.5 ms"
        );
        let failed = Told {
            call: Some(Call {
                right: Some(false),
                ..call
            }),
            ..told[0].clone()
        };
        let says = failed.to_string();
        assert!(
            says.ends_with("; it gave no right answer within 12.5 ms"),
            "{says}"
        );
        assert!(explain(&log, TaskId::from_parts(2, 2)).is_empty());
    }

    #[test]
    fn who_was_asked_to_run_a_call_is_told_with_what_it_took() {
        let taker = |name: &str, way: f64| Taker {
            round_trip: Some(millis(way)),
            heard: Some(millis(250.0)),
            ..Taker::new(NodeId::of_key(name.as_bytes()), 4)
        };
        let (near, far) = (taker("near", 1.0), taker("far", 40.0));
        let names = [near.node.short(), far.node.short()];
        let picked = Picked::by(Route::Soonest, "echo", vec![far, near]);
        let request = TaskId::from_parts(3, 3);
        let log = [
            Entry::picked(1, request, picked),
            Entry::answered(2, request, (Route::Soonest.name(), 1), millis(3.0)),
        ];
        let told = explain(&log, request);
        let [near, far] = names;
        assert_eq!(
            told[0].to_string(),
            format!(
                "who runs `echo`: {near}, rather than {far}, because its answer is expected within 1 ms and that of {far} within 40 ms; \
                 it was last heard of 250 ms before; it took 3 ms"
            )
        );
    }

    #[test]
    fn what_came_of_each_of_two_calls_for_one_request_is_told_with_that_call() {
        let pick = |task: &str| {
            let takers = ["one", "other"].map(|name| Taker::new(NodeId::of_key(name.as_bytes()), 4));
            Picked::by(Route::Soonest, task, takers.to_vec())
        };
        let (request, first) = (TaskId::from_parts(3, 3), pick("echo").order[0]);
        let answered = |took| Entry::answered(2, request, (Route::Soonest.name(), first), millis(took));
        let log = [
            Entry::picked(1, request, pick("echo")).of_call(7),
            Entry::picked(1, request, pick("sum")).of_call(8),
            // The second is answered first.
            answered(3.0).of_call(8),
            answered(9.0).of_call(7),
        ];
        let took = |told: &Told| told.call.map(|call| call.latency);
        let told = explain(&log, request);
        assert_eq!(
            [took(&told[0]), took(&told[1])],
            [Some(millis(9.0)), Some(millis(3.0))]
        );
    }

    #[test]
    fn who_answered_in_the_place_of_the_first_is_told() {
        let taker = |name: &str, way: f64| Taker {
            round_trip: Some(millis(way)),
            ..Taker::new(NodeId::of_key(name.as_bytes()), 4)
        };
        let takers = vec![taker("far", 40.0), taker("near", 1.0)];
        let far = takers[0].node.short();
        let request = TaskId::from_parts(3, 3);
        let log = [
            Entry::picked(1, request, Picked::by(Route::Soonest, "echo", takers)),
            // The first was late, and another was asked beside it.
            Entry::answered(2, request, (Route::Soonest.name(), 0), millis(90.0)),
        ];
        let told = explain(&log, request);
        assert_eq!(told[0].instead.as_ref(), Some(&far));
        let told = told[0].to_string();
        let ends = format!("; {far} answered instead, 90 ms after the call was made");
        assert!(told.ends_with(&ends), "{told}");
    }
}
