use super::task::check;
use super::{Ask, Decision, NoChoice, Reason, ReportError, SelectError, Selector, Served, Task, task_of};
use karman_types::Slo;
use serde::{Deserialize, Serialize};

/// One candidate for each task, chosen by the user. Where it cannot be reached the next in the list serves.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Fixed {
    tasks: Vec<Task>,
    chosen: Vec<usize>,
}

impl Fixed {
    /// These candidates, one for each task.
    ///
    /// # Errors
    /// There is no such candidate, or another number of them than of tasks.
    pub fn new(tasks: Vec<Task>, slo: &Slo, chosen: Vec<usize>) -> Result<Self, SelectError> {
        check(&tasks, slo)?;
        let fixed = Self { tasks, chosen };
        fixed.check_chosen().map(|()| fixed)
    }

    fn check_chosen(&self) -> Result<(), SelectError> {
        let Self { tasks, chosen } = self;
        if chosen.len() != tasks.len() {
            return Err(SelectError::Choices {
                given: chosen.len(),
                tasks: tasks.len(),
            });
        }
        let missing = tasks
            .iter()
            .zip(chosen)
            .find(|(task, chosen)| **chosen >= task.candidates.len());
        match missing {
            None => Ok(()),
            Some((task, candidate)) => Err(SelectError::NoSuchCandidate {
                task: task.name.clone(),
                candidate: *candidate,
                candidates: task.candidates.len(),
            }),
        }
    }

    /// Whether it can be one that was made: what is read may be anything.
    pub(crate) fn is_whole(&self) -> bool {
        let checked = check(&self.tasks, &Slo::over(Slo::USUAL_REQUESTS));
        checked.is_ok() && self.check_chosen().is_ok()
    }
}

impl Selector for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        let candidates = task_of(&self.tasks, ask)?.candidates.len();
        let first = self.chosen[ask.task];
        let mut order = (0..candidates)
            .map(|n| (first + n) % candidates)
            .filter(|n| ask.reaches(*n));
        let chosen = order.next().unwrap_or(first);
        Ok(Decision {
            task: ask.task,
            chosen,
            runner_up: order.next(),
            reason: if chosen == first {
                Reason::Fixed
            } else {
                Reason::Only
            },
        })
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError> {
        served.check(&self.tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{candidate, task};
    use super::*;

    #[test]
    fn the_next_serves_when_the_first_is_out_of_reach() {
        let tasks = vec![task(
            "a",
            vec![candidate("s", 0.7, 1.0, 0.1), candidate("m", 0.9, 1.0, 0.1)],
        )];
        let slo = Slo::over(10);
        assert!(matches!(
            Fixed::new(tasks.clone(), &slo, vec![2]),
            Err(SelectError::NoSuchCandidate { .. })
        ));
        assert!(matches!(
            Fixed::new(tasks.clone(), &slo, vec![]),
            Err(SelectError::Choices { .. })
        ));
        let mut fixed = Fixed::new(tasks, &slo, vec![1]).unwrap();
        assert_eq!(fixed.choose(&Ask::default()).unwrap().chosen, 1);
        let alone = Ask {
            unreachable: &[1],
            ..Ask::default()
        };
        assert_eq!(fixed.choose(&alone).unwrap().chosen, 0);
        let nobody = Ask {
            unreachable: &[0, 1],
            ..Ask::default()
        };
        assert_eq!(
            fixed.choose(&nobody),
            Err(NoChoice::Unreachable {
                task: "a".into(),
                candidates: 2
            })
        );
        let nowhere = Ask {
            task: 1,
            ..Ask::default()
        };
        assert_eq!(fixed.choose(&nowhere), Err(NoChoice::Task { task: 1, tasks: 1 }));
    }
}
