use super::{Checkpoint, Chosen, Entry, Policy, What};
use crate::select::{Asked, Decision, Heard, NoChoice, ReportError, Selector, Task, task_of};
use karman_types::TaskId;
use std::time::Duration;

/// Decisions until the next checkpoint. With what became of each, and a failure in either, they are some 800 entries: a policy that has
/// more than that in a ring has a checkpoint there to begin at.
pub const CHECKPOINT_EVERY: u32 = 200;

/// A policy that says what is to be written down of it.
#[derive(Clone, Debug)]
pub struct Logged {
    name: String,
    instance: u64,
    policy: Policy,
    tasks: Vec<Task>,
    /// When each candidate was last heard of.
    heard: Vec<Vec<Option<Duration>>>,
    /// Decisions until the next checkpoint.
    left: u32,
}

impl Logged {
    /// A policy for these tasks. The instance tells it from others of that name, before it or beside it.
    pub fn new(name: impl Into<String>, policy: Policy, tasks: Vec<Task>, instance: u64) -> Self {
        Self {
            name: name.into(),
            instance,
            policy,
            heard: tasks
                .iter()
                .map(|task| vec![None; task.candidates.len()])
                .collect(),
            tasks,
            left: 0,
        }
    }

    /// The tasks, with their candidates.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// What it decides, and what is to be written down.
    ///
    /// # Errors
    /// Those of [`crate::select::Selector::choose`].
    pub fn choose(
        &mut self,
        at_ms: u64,
        request: TaskId,
        asked: Asked,
    ) -> Result<(Decision, Vec<Entry>), NoChoice> {
        // What is not decided is not written down, and no checkpoint is made for it.
        task_of(&self.tasks, &asked.as_ask())?;
        let mut entries = Vec::new();
        if self.left == 0 {
            let checkpoint = Checkpoint {
                state: self.policy.checkpoint(),
                tasks: self.tasks.clone(),
            };
            entries.extend(self.failures(at_ms, request));
            entries.push(self.entry(at_ms, What::Checkpoint(Box::new(checkpoint))));
        }
        let decision = self.policy.choose(&asked.as_ask())?;
        self.left = self.left.checked_sub(1).unwrap_or(CHECKPOINT_EVERY - 1);
        entries.extend(self.failures(at_ms, request));
        let heard = self.heard.get(asked.task).into_iter().flatten();
        let known = heard
            .map(|heard| heard.map(|heard| asked.now.saturating_sub(heard)))
            .collect();
        let chosen = Chosen {
            request,
            asked,
            known,
            decision: decision.clone(),
        };
        entries.push(self.entry(at_ms, What::Chosen(chosen)));
        Ok((decision, entries))
    }

    /// Tells it what became of a request; what is to be written down.
    ///
    /// # Errors
    /// Those of [`crate::select::Selector::report`].
    pub fn report(&mut self, at_ms: u64, request: TaskId, heard: Heard) -> Result<Vec<Entry>, ReportError> {
        self.policy.report(&heard.as_served())?;
        for call in &heard.calls {
            let of_task = self.heard.get_mut(call.task);
            if let Some(last) = of_task.and_then(|of_task| of_task.get_mut(call.candidate)) {
                *last = Some(heard.now);
            }
        }
        let mut entries = self.failures(at_ms, request);
        entries.push(self.entry(at_ms, What::Served { request, heard }));
        Ok(entries)
    }

    /// Gives up what the policy holds while nobody asks it: the instance of a plugin, whose place another policy needs. The next
    /// decision goes on from where it was. Whether there was anything to give up.
    pub fn rest(&mut self) -> bool {
        let rests = self.policy.rest();
        if rests {
            self.left = 0;
        }
        rests
    }

    /// What failed since it was last asked or told.
    fn failures(&mut self, at_ms: u64, request: TaskId) -> Vec<Entry> {
        let failures = self.policy.failures();
        let entry = |failed| self.entry(at_ms, What::PolicyFailed { request, failed });
        failures.into_iter().map(entry).collect()
    }

    fn entry(&self, at_ms: u64, what: What) -> Entry {
        Entry {
            policy: self.name.clone(),
            instance: self.instance,
            at_ms,
            what,
        }
    }
}
