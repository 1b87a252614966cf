use crate::app::App;
use crate::error;
use clap::{Args, ValueEnum};
use karman_types::TaskError;
use serde_json::json;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// `karman flow new`
#[derive(Args, Debug)]
pub(super) struct New {
    /// The shape
    shape: Shape,
    /// The file to write; one that is there is left alone [default: SHAPE.toml]
    file: Option<PathBuf>,
}

/// The shapes of compound systems, as `karman-sched` has them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Shape {
    /// Each task works on what the one before gave
    Pipeline,
    /// A classifier sends each input to the task for its kind
    Router,
    /// The cheap one first, and the strong one where it is not sure
    Cascade,
    /// All answer at once, and the majority holds
    Vote,
    /// What is known is looked up and given to the model
    Retrieval,
    /// A critic looks at the answer, which is made once more where it refuses
    Critic,
    /// A planner cuts the problem into parts, and workers do them at the same time
    PlannerWorkers,
    /// What was answered before, or must not be, is caught in front of the model
    Guard,
}

impl Shape {
    const fn name(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::Router => "router",
            Self::Cascade => "cascade",
            Self::Vote => "vote",
            Self::Retrieval => "retrieval",
            Self::Critic => "critic",
            Self::PlannerWorkers => "planner-workers",
            Self::Guard => "guard",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Pipeline => include_str!("shapes/pipeline.toml"),
            Self::Router => include_str!("shapes/router.toml"),
            Self::Cascade => include_str!("shapes/cascade.toml"),
            Self::Vote => include_str!("shapes/vote.toml"),
            Self::Retrieval => include_str!("shapes/retrieval.toml"),
            Self::Critic => include_str!("shapes/critic.toml"),
            Self::PlannerWorkers => include_str!("shapes/planner-workers.toml"),
            Self::Guard => include_str!("shapes/guard.toml"),
        }
    }
}

impl New {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let name = self.shape.name();
        let path = self.file.clone().unwrap_or_else(|| format!("{name}.toml").into());
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let written = made.and_then(|mut file| {
            let written = file.write_all(self.shape.text().as_bytes());
            // Half of it would be in the way of the next try.
            written.inspect_err(|_| drop(fs::remove_file(&path)))
        });
        written.map_err(|failed| match failed.kind() {
            ErrorKind::AlreadyExists => TaskError::invalid(format!("{} is there already", path.display()))
                .with_field("file")
                .with_hint("name another file, or remove this one"),
            _ => error::file(&path, &failed),
        })?;
        let shown = path.display().to_string();
        app.output
            .result(|| shown.clone(), || json!({ "file": shown, "shape": name }))?;
        app.output.note(format!(
            "next: name your tasks in it, then karman flow graph {shown}"
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_sched::flow::patterns::Pattern;
    use karman_types::Workflow;

    /// The same shape in the library, and the tasks that a file has besides: what joins, and the second attempt of a loop.
    fn pattern(shape: Shape) -> (Pattern, &'static [&'static str], &'static [&'static str]) {
        match shape {
            Shape::Pipeline => (Pattern::Pipeline, &["prepare", "solve", "present"], &[]),
            Shape::Router => {
                let router = Pattern::Router {
                    kinds: vec![1.0],
                    sends: vec![vec![0.5, 0.5]],
                    right: vec![vec![1.0, 1.0]],
                };
                (router, &["classify", "simple", "hard"], &[])
            }
            Shape::Cascade => {
                let cascade = Pattern::Cascade {
                    confident_right: vec![0.8],
                    confident_wrong: vec![0.1],
                };
                (cascade, &["small", "large"], &[])
            }
            Shape::Vote => (Pattern::Vote, &["first", "second", "third"], &[]),
            Shape::Retrieval => (Pattern::Retrieval { without: 0.5 }, &["retrieve", "answer"], &[]),
            Shape::Critic => {
                let critic = Pattern::Critic {
                    attempts: 2,
                    passes_right: 0.9,
                    passes_wrong: 0.1,
                };
                (critic, &["write", "review"], &["rewrite"])
            }
            Shape::PlannerWorkers => (Pattern::PlannerWorkers { parts: 8 }, &["plan", "work"], &["join"]),
            Shape::Guard => (Pattern::Guard { answers: 0.5 }, &["guard", "answer"], &[]),
        }
    }

    #[test]
    fn each_shape_is_a_workflow_with_the_steps_and_ways_of_its_pattern() {
        for shape in Shape::value_variants() {
            let workflow = Workflow::from_toml(shape.text()).unwrap();
            assert_eq!(workflow.name(), shape.name());
            let (pattern, steps, more) = pattern(*shape);
            assert_eq!(pattern.name(), shape.name());
            let of = pattern.shape(steps).unwrap();
            let mut named: Vec<&str> = of.steps.iter().map(String::as_str).collect();
            named.extend(more);
            named.sort_unstable();
            let mut tasks: Vec<&str> = workflow.tasks().iter().map(|task| task.name.as_str()).collect();
            tasks.sort_unstable();
            assert_eq!(tasks, named, "{}", shape.name());
            let ways: Vec<(&str, &str)> = workflow
                .edges()
                .iter()
                .map(|edge| {
                    (
                        &*workflow.tasks()[edge.from].name,
                        &*workflow.tasks()[edge.to].name,
                    )
                })
                .collect();
            for way in of.edges.iter().filter(|way| way.from < way.to) {
                let way = (&*of.steps[way.from], &*of.steps[way.to]);
                assert!(ways.contains(&way), "{}: {way:?} {ways:?}", shape.name());
            }
        }
    }
}
