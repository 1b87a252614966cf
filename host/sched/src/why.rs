use crate::select::{Aim, Decision, Reason, Task};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A decision in plain words: what was asked, what was chosen, what would have been instead, and why.
///
/// Every room of this crate can tell its decisions so; a log keeps the sentence's parts, so that they can be searched.
///
/// ```
/// use karman_sched::Why;
///
/// let why = Why::new("who serves `simple-solver`", "gemma2:2b", "it has the largest share in the plan").rather_than("gpt-3.5");
/// assert_eq!(why.to_string(), "who serves `simple-solver`: gemma2:2b, rather than gpt-3.5, because it has the largest share in the plan");
/// ```
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Why {
    /// What was to be decided.
    pub question: String,
    /// What was chosen.
    pub chosen: String,
    /// What would have been chosen otherwise; nothing where there was no choice.
    pub runner_up: Option<String>,
    /// The reason, as the end of a sentence.
    pub because: String,
}

impl Why {
    /// A decision without a runner-up.
    pub fn new(question: impl Into<String>, chosen: impl Into<String>, because: impl Into<String>) -> Self {
        Self {
            question: question.into(),
            chosen: chosen.into(),
            runner_up: None,
            because: because.into(),
        }
    }

    /// The same decision with what would have been chosen otherwise.
    #[must_use]
    pub fn rather_than(self, runner_up: impl Into<String>) -> Self {
        Self {
            runner_up: Some(runner_up.into()),
            ..self
        }
    }

    /// Why this candidate serves. `tasks` are those that the policy was made with; a place outside them is written as a number.
    pub fn selected(tasks: &[Task], decision: &Decision) -> Self {
        let task = tasks.get(decision.task);
        let name = |candidate: usize| {
            let candidate_of = |task: &Task| task.candidates.get(candidate).map(|known| known.name.clone());
            task.and_then(candidate_of)
                .unwrap_or_else(|| format!("candidate {candidate}"))
        };
        let of = task.map_or_else(
            || format!("task {}", decision.task),
            |task| format!("`{}`", task.name),
        );
        let is_alone = task.is_some_and(|task| task.candidates.len() == 1);
        let because = match &decision.reason {
            Reason::Only if is_alone => "no other may serve".to_owned(),
            reason => reason.to_string(),
        };
        let why = Self::new(format!("who serves {of}"), name(decision.chosen), because);
        match decision.runner_up {
            Some(runner_up) => why.rather_than(name(runner_up)),
            None => why,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.question, self.chosen)?;
        if let Some(runner_up) = &self.runner_up {
            write!(f, ", rather than {runner_up}")?;
        }
        match self.runner_up {
            Some(_) => write!(f, ", because {}", self.because),
            None => write!(f, " because {}", self.because),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("no other can be reached"),
            Self::Fixed => f.write_str("the user said so"),
            Self::Best { aim, within: true } => {
                write!(f, "it is {aim} of those whose profiles keep the limits")
            }
            Self::Best { aim, within: false } => {
                write!(f, "no profile keeps the limits and it is {aim} of all")
            }
            Self::Share { share, requests } => write!(
                f,
                "the plan for the {requests} requests that are left gives it {:.0} % of the calls",
                share * 100.0
            ),
            Self::Kept { calls } => write!(
                f,
                "it has served for {calls} calls and no other has earned its turn"
            ),
            Self::Short { resource, requests } => write!(
                f,
                "the {resource} budget does not last for the {requests} requests that are left and it spares it"
            ),
            Self::Queue { length, most } => write!(
                f,
                "{length} requests are in the queue, where a slower one serves at most {most} within the limit"
            ),
            Self::Overspend { resource } => {
                write!(
                    f,
                    "the choices before took more {resource} than is left for a request"
                )
            }
            Self::Inaccurate => f.write_str("answers are wrong too often and budget is left"),
            Self::NoPlan => f.write_str("no new plan could be made and the last one says so"),
            Self::Said(because) => f.write_str(because),
        }
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accuracy => "the most accurate",
            Self::Cost => "the cheapest",
            Self::Latency => "the fastest",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Resource;
    use crate::select::testing::{candidate, task};

    fn decision(reason: Reason) -> Decision {
        Decision {
            task: 3,
            chosen: 1,
            runner_up: Some(0),
            reason,
        }
    }

    #[test]
    fn places_without_a_name_are_numbers() {
        let why = Why::selected(&[], &decision(Reason::Fixed));
        assert_eq!(
            why.to_string(),
            "who serves task 3: candidate 1, rather than candidate 0, because the user said so"
        );
    }

    #[test]
    fn being_the_only_one_is_told_from_being_the_only_one_in_reach() {
        let tasks = |names: &[&str]| {
            let candidates = names.iter().map(|name| candidate(name, 0.9, 10.0, 0.0));
            vec![task("classify", candidates.collect())]
        };
        let decision = Decision {
            task: 0,
            chosen: 0,
            runner_up: None,
            reason: Reason::Only,
        };
        let told = |names: &[&str]| Why::selected(&tasks(names), &decision).because;
        assert_eq!(told(&["s"]), "no other may serve");
        assert_eq!(told(&["s", "l"]), "no other can be reached");
    }

    #[test]
    fn a_reason_has_its_figures() {
        let short = Reason::Short {
            resource: Resource::Late,
            requests: 12,
        };
        assert!(short.to_string().contains("latency") && short.to_string().contains("12"));
        let share = Reason::Share {
            share: 0.425,
            requests: 869,
        };
        assert!(share.to_string().contains("42 %") && share.to_string().contains("869"));
    }
}
