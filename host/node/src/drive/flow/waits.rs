//! What steps of a run wait for that no node has begun: by the node that has accepted them, which is the one that coordinates the run.

use super::FlowStatus;
use crate::drive::tasks::Inner;
use karman_tasks::Status;
use karman_types::TaskId;
use std::collections::BTreeMap;

/// A step of a run as its accepted tasks are.
#[derive(Default)]
struct Open {
    /// One of them that waits.
    waits: Option<TaskId>,
    /// Whether others have begun.
    has_begun: bool,
}

impl Inner {
    /// Adds to how far a run is what its steps wait for, as far as that is known here.
    pub(super) fn tell_waits(&self, status: &mut FlowStatus) {
        if status.state.has_ended() {
            return;
        }
        for ((step, undo), open) in self.open_steps(status.flow) {
            let Some(why) = open.waits.and_then(|task| self.whys.lock().get(&task).cloned()) else {
                continue;
            };
            let undoing = status.undoing.as_mut().filter(|of| undo && of.task == step);
            if let Some(undoing) = undoing {
                undoing.waits = Some(why);
            } else if let Some(step) = status.steps.iter_mut().find(|of| !undo && of.task == step) {
                if !open.has_begun {
                    step.state = "waiting".into();
                }
                step.waits = Some(why);
            }
        }
    }

    /// The steps of a run with accepted tasks that have not ended, and whether each is that of an undoing.
    fn open_steps(&self, run: TaskId) -> BTreeMap<(String, bool), Open> {
        let run = run.to_string();
        let mut steps: BTreeMap<(String, bool), Open> = BTreeMap::new();
        let machine = self.machine.lock();
        for record in machine.tasks() {
            let Some(step) = record.key.as_deref().and_then(|key| step_of(&run, key)) else {
                continue;
            };
            match machine.status(record.task) {
                Some(Status::Waiting) => steps.entry(step).or_default().waits = Some(record.task),
                Some(Status::Saving | Status::Running(_) | Status::Ending) => {
                    steps.entry(step).or_default().has_begun = true;
                }
                _ => {}
            }
        }
        steps
    }
}

/// The step that goes by a key of this run, and whether it undoes.
fn step_of(run: &str, key: &str) -> Option<(String, bool)> {
    let (key, _) = key.strip_prefix(run)?.strip_prefix('/')?.rsplit_once('#')?;
    let (step, more) = key.split_once('/').unwrap_or((key, ""));
    Some((step.to_owned(), more == "undo" || more.ends_with("/undo")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_step() {
        for (key, step) in [
            ("run/book#1", Some(("book", false))),
            ("run/book/undo#2", Some(("book", true))),
            ("run/pages/7#1", Some(("pages", false))),
            ("run/pages/7/undo#1", Some(("pages", true))),
            ("run/undo#1", Some(("undo", false))),
            ("other/book#1", None),
            ("running/book#1", None),
            ("a key of somebody's own", None),
        ] {
            let step = step.map(|(step, undo)| (step.to_owned(), undo));
            assert_eq!(step_of("run", key), step, "{key}");
        }
    }
}
