use super::{Entry, What};
use crate::Why;
use crate::select::{Call, Failure, Task};
use karman_types::{TaskId, format_duration};
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
    /// What came of it, once that was reported.
    pub call: Option<Call>,
    /// The policy that a plugin brings and why it failed, where the default one decided instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fell_back: Vec<(String, Failure)>,
}

/// The decisions of one request, the oldest first. The log has to reach back to a checkpoint before them for names; else they are
/// numbers.
pub fn explain<'a>(entries: impl IntoIterator<Item = &'a Entry>, request: TaskId) -> Vec<Told> {
    let mut tasks: BTreeMap<(&str, u64), &[Task]> = BTreeMap::new();
    // With the task and the candidate of each, by which a report finds it.
    let mut told: Vec<((usize, usize), Told)> = Vec::new();
    let mut fell_back: BTreeMap<(&str, u64), Vec<(String, Failure)>> = BTreeMap::new();
    for entry in entries {
        let of = (entry.policy.as_str(), entry.instance);
        match &entry.what {
            What::Checkpoint(checkpoint) => _ = tasks.insert(of, &checkpoint.tasks),
            What::FellBack(failed) if failed.request == request => {
                let failure = (failed.plugin.clone(), failed.failure.clone());
                fell_back.entry(of).or_default().push(failure);
            }
            What::Chosen(chosen) if chosen.request == request => {
                let tasks = tasks.get(&of).copied().unwrap_or_default();
                let (task, candidate) = (chosen.decision.task, chosen.decision.chosen);
                let name = |candidate: &usize| {
                    let known = tasks.get(task).and_then(|task| task.candidates.get(*candidate));
                    known.map_or_else(|| format!("candidate {candidate}"), |known| known.name.clone())
                };
                let of_decision = Told {
                    why: Why::selected(tasks, &chosen.decision),
                    known: chosen.known.get(candidate).copied().flatten(),
                    unreachable: chosen.asked.unreachable.iter().map(name).collect(),
                    call: None,
                    fell_back: fell_back.remove(&of).unwrap_or_default(),
                };
                told.push(((task, candidate), of_decision));
            }
            What::Served {
                request: served,
                heard,
            } if *served == request => {
                for call in &heard.calls {
                    let of = (call.task, call.candidate);
                    let open = told
                        .iter_mut()
                        .find(|(by, told)| *by == of && told.call.is_none());
                    if let Some((_, told)) = open {
                        told.call = Some(*call);
                    }
                }
            }
            _ => {}
        }
    }
    told.into_iter().map(|(_, told)| told).collect()
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)?;
        for (plugin, failure) in &self.fell_back {
            write!(f, "; policy {plugin} did not decide, the default did: {failure}")?;
        }
        match self.known {
            Some(age) => write!(f, "; it was last heard of {} before", format_duration(age))?,
            None => f.write_str("; only its profile was known")?,
        }
        if !self.unreachable.is_empty() {
            write!(f, "; {} could not be reached", self.unreachable.join(", "))?;
        }
        match &self.call {
            Some(call) => write!(f, "; it took {}", format_duration(call.latency)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Logged, Policy};
    use super::*;
    use crate::select::testing::{candidate, millis, task};
    use crate::select::{Asked, Fixed, Heard};
    use karman_types::Slo;

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
        assert!(explain(&log, TaskId::from_parts(2, 2)).is_empty());
    }
}
