use karman_types::{Scalar, Workflow};

/// Steps that are looked at: one with more after it is placed as if these were all.
const MOST_STEPS: usize = 64;
/// The constant by which a step names the model that its plugin asks for.
const MODEL: &str = "model";
/// Before the name of a model, where a step runs nothing else.
const RUNS_MODEL: &str = "model/";

/// A step of a workflow that is to be placed, and those that come after it: what a node has to know to place it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ahead {
    /// What they run, each once.
    pub needs: Vec<Need>,
    /// The steps: first the one that is to be placed, each after those whose output it takes.
    pub(super) steps: Vec<Step>,
}

/// What a step takes from the node that runs it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Need {
    /// The task that it runs, by which its providers are found.
    pub run: String,
    /// The model that the node has to hold besides: the constant `model` of the step.
    pub model: Option<String>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Step {
    /// What it runs, by its place in [`Ahead::needs`].
    pub(super) need: usize,
    /// The steps whose outputs it takes, by their places here.
    pub(super) from: Vec<usize>,
}

impl Ahead {
    /// From this task of a workflow on.
    pub fn of(workflow: &Workflow, task: usize) -> Self {
        let mut ahead = Self {
            needs: Vec::new(),
            steps: Vec::new(),
        };
        // The place of each task that is looked at, among the steps.
        let mut places: Vec<Option<usize>> = vec![None; workflow.tasks().len()];
        // A task comes after those it waits for.
        for (place, of) in workflow.tasks().iter().enumerate().skip(task) {
            let edges = workflow.edges_into(place).iter();
            let mut from: Vec<usize> = edges
                .filter_map(|edge| places[workflow.edges()[*edge].from])
                .collect();
            from.sort_unstable();
            if place != task && from.is_empty() {
                continue;
            }
            if ahead.steps.len() == MOST_STEPS {
                break;
            }
            places[place] = Some(ahead.steps.len());
            let need = ahead.need(Need {
                run: of.run.clone(),
                model: match of.with.get(MODEL) {
                    Some(Scalar::Text(model)) if !of.run.starts_with(RUNS_MODEL) => Some(model.clone()),
                    _ => None,
                },
            });
            ahead.steps.push(Step { need, from });
        }
        ahead
    }

    fn need(&mut self, need: Need) -> usize {
        let known = self.needs.iter().position(|known| *known == need);
        known.unwrap_or_else(|| {
            self.needs.push(need);
            self.needs.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn a_step_is_looked_at_with_those_after_it_and_no_others() {
        let workflow = Workflow::from_toml(
            r#"
            name = "look"
            [task.a-first]
            [task.b-here]
            run = "classify"
            after = ["a-first"]
            with = { model = "digits-m", detail = 3 }
            [task.c-beside]
            after = ["a-first"]
            [task.d-next]
            run = "classify"
            after = ["b-here", "c-beside"]
            with = { model = "digits-m" }
            [task.e-last]
            run = "model/digits-s"
            after = ["b-here", "d-next"]
            with = { model = "any" }
            "#,
        )
        .unwrap();
        let ahead = Ahead::of(&workflow, workflow.index_of("b-here").unwrap());
        let need = |run: &str, model: Option<&str>| Need {
            run: run.into(),
            model: model.map(Into::into),
        };
        assert_eq!(
            ahead.needs,
            [need("classify", Some("digits-m")), need("model/digits-s", None)]
        );
        let step = |need, from: &[usize]| Step {
            need,
            from: from.to_vec(),
        };
        assert_eq!(ahead.steps, [step(0, &[]), step(0, &[0]), step(1, &[0, 1])]);
    }

    #[test]
    fn no_more_is_looked_at_than_may_be() {
        let mut text = "name = \"long\"\n[task.t000]\n".to_owned();
        for n in 1..100 {
            let _ = write!(text, "[task.t{n:03}]\nafter = [\"t{:03}\"]\n", n - 1);
        }
        let workflow = Workflow::from_toml(&text).unwrap();
        assert_eq!(Ahead::of(&workflow, 0).steps.len(), MOST_STEPS);
        assert_eq!(Ahead::of(&workflow, 90).steps.len(), 10);
    }
}
