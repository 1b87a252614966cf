//! What has happened to a run, for those that follow it.
//!
//! It is part of the [`Record`](super::Record): what stands in one that is durable never changes its place, so that the number of a change
//! names it for good, also after the coordinator was killed.

use karman_types::{NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Changes after which those of single runs are left out.
const MOST: usize = 2_000;
/// Characters of an error's message.
const LONGEST: usize = 200;

/// What has happened to a run of a workflow, in order.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct History {
    changes: Vec<Change>,
    /// Whether those of single runs are left out.
    is_brief: bool,
}

/// Something that has happened to a run of a workflow.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Change {
    /// How long after its start, in milliseconds.
    pub after_ms: u64,
    /// What.
    pub what: What,
}

/// What has happened. Tasks are named by their place in [`karman_types::Workflow::tasks`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum What {
    /// A task has begun.
    Begun {
        /// Which.
        task: usize,
        /// How many runs it has: one, or one for each item of its list.
        runs: usize,
    },
    /// No edge into a task was taken.
    Skipped {
        /// Which.
        task: usize,
    },
    /// The node for an attempt at a run was chosen by a policy.
    Placed {
        /// The task.
        task: usize,
        /// The item of its list; 0 where it has none.
        item: usize,
        /// The node; nothing where the policy left it to others.
        node: Option<NodeId>,
        /// Why, in plain words.
        why: String,
    },
    /// The run for one item of a task's list has given its output.
    Item {
        /// The task.
        task: usize,
        /// The item.
        item: usize,
    },
    /// An attempt has failed; the next one comes after a pause.
    Retried {
        /// The task.
        task: usize,
        /// The item of its list; 0 where it has none.
        item: usize,
        /// The attempt that failed, 1 at the first.
        attempt: u32,
        /// How.
        error: TaskError,
    },
    /// A run has failed for good.
    Failed {
        /// The task.
        task: usize,
        /// The item of its list; 0 where it has none.
        item: usize,
        /// How.
        error: TaskError,
    },
    /// All runs of a task have given their output.
    Done {
        /// Which.
        task: usize,
    },
    /// The workflow fails: what runs is stopped, and what had an effect is undone.
    Undoing {
        /// The task that it failed in, if it was one.
        task: Option<usize>,
        /// Why.
        error: TaskError,
    },
    /// The effect of a run is undone.
    Undone {
        /// The task.
        task: usize,
        /// The item of its list; 0 where it has none.
        item: usize,
    },
    /// The effect of a run could not be undone.
    NotUndone {
        /// The task.
        task: usize,
        /// The item of its list; 0 where it has none.
        item: usize,
        /// Why.
        error: TaskError,
    },
    /// From here on what happens to single runs is left out: there is too much of it.
    Brief,
}

impl What {
    /// Whether it is about one of many runs. Of the others there are three for a task at most, and one for the whole.
    const fn is_of_one_run(&self) -> bool {
        matches!(
            self,
            Self::Placed { .. }
                | Self::Item { .. }
                | Self::Retried { .. }
                | Self::Failed { .. }
                | Self::Undone { .. }
                | Self::NotUndone { .. }
        )
    }
}

impl History {
    /// How many changes there are. The first one has the number 1.
    pub const fn count(&self) -> usize {
        self.changes.len()
    }

    /// What came after the change of this number, with numbers; everything after 0.
    pub fn after(&self, number: usize) -> impl Iterator<Item = (usize, &Change)> {
        let changes = self.changes.iter().enumerate().skip(number);
        changes.map(|(before, change)| (before + 1, change))
    }

    pub(super) fn add(&mut self, after: Duration, what: What) {
        let of_one_run = what.is_of_one_run();
        if of_one_run && self.is_brief {
            return;
        }
        let what = match of_one_run && self.changes.len() >= MOST {
            true => {
                self.is_brief = true;
                What::Brief
            }
            false => what,
        };
        let after_ms = after.as_millis() as u64;
        self.changes.push(Change { after_ms, what });
    }
}

/// An error as a history has it: how it failed, and the beginning of the message.
pub(super) fn brief(error: &TaskError) -> TaskError {
    TaskError::new(error.kind, beginning(&error.message))
}

/// As much of a text as a history has.
pub(super) fn beginning(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_single_runs_is_told_until_there_is_too_much_of_it() {
        let mut history = History::default();
        let begun = |task| What::Begun { task, runs: 3_000 };
        history.add(Duration::from_millis(7), begun(0));
        for item in 0..3_000 {
            history.add(Duration::from_secs(1), What::Item { task: 0, item });
        }
        history.add(Duration::from_secs(2), What::Done { task: 0 });
        history.add(Duration::from_secs(2), begun(1));
        assert_eq!(history.count(), MOST + 3);
        let last: Vec<_> = history.after(MOST - 1).collect();
        let numbers: Vec<usize> = last.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [MOST, MOST + 1, MOST + 2, MOST + 3]);
        let what: Vec<What> = last.iter().map(|(_, change)| change.what.clone()).collect();
        let item = What::Item {
            task: 0,
            item: MOST - 2,
        };
        assert_eq!(what, [item, What::Brief, What::Done { task: 0 }, begun(1)]);
        assert_eq!(history.after(0).next().unwrap().1.after_ms, 7);
        assert_eq!(history.after(MOST + 3).count(), 0);
        assert_eq!(history.after(usize::MAX).count(), 0);
    }

    #[test]
    fn an_error_is_told_by_its_beginning() {
        let error = TaskError::failed("ä".repeat(LONGEST + 1)).with_hint("none");
        assert_eq!(brief(&error), TaskError::failed("ä".repeat(LONGEST)));
    }
}
