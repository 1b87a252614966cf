use super::{Checkpoint, Chosen, Entry, Policy, Tail, What};
use crate::select::{Asked, Decision, Heard, NoChoice, ReportError, Selector, Task, task_of};
use karman_types::{Digest, TaskId};
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
    known_by: Option<Digest>,
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
            known_by: None,
            heard: tasks
                .iter()
                .map(|task| vec![None; task.candidates.len()])
                .collect(),
            tasks,
            left: 0,
        }
    }

    /// Says in every checkpoint what it is to be found again by.
    #[must_use]
    pub fn known_by(self, digest: Digest) -> Self {
        Self {
            known_by: Some(digest),
            ..self
        }
    }

    /// As it was when the last entry of this was written: what comes next it decides as it would have then, and begins with a checkpoint.
    /// With it the time of that entry, from which the time of what it is asked and told has to go on. It stays as it is, without a time,
    /// where the tail is of other tasks or another policy, or where what was decided does not come out the same.
    #[must_use]
    pub fn resumed(self, tail: Tail) -> (Self, Option<Duration>) {
        let mut before = self.clone();
        match before.take_up(tail) {
            Some(now) => (before, Some(now)),
            None => (self, None),
        }
    }

    /// Goes through all that was written down; the time of the last entry, if it came out the same.
    fn take_up(&mut self, tail: Tail) -> Option<Duration> {
        let Checkpoint { mut state, tasks, .. } = tail.checkpoint;
        if tasks != self.tasks || !state.is_like(&self.policy) {
            return None;
        }
        if let Some(guests) = self.policy.guests() {
            state.attach(guests);
        }
        self.policy = state;
        let mut now = Duration::ZERO;
        for what in tail.after {
            match what {
                What::Chosen(chosen) => {
                    let decided = self.policy.choose(&chosen.asked.as_ask()).ok()?;
                    if decided != chosen.decision {
                        return None;
                    }
                    now = now.max(chosen.asked.now);
                    let heard = self.heard.get_mut(chosen.asked.task)?;
                    let ago = |known: Option<Duration>| known.map(|ago| chosen.asked.now.saturating_sub(ago));
                    *heard = chosen.known.into_iter().map(ago).collect();
                }
                What::Served { heard, .. } => {
                    self.policy.report(&heard.as_served()).ok()?;
                    now = now.max(heard.now);
                    self.hear(&heard);
                }
                What::PolicyFailed { failed, .. } => self.policy.force(&failed.failure),
                What::Checkpoint(_) | What::Picked { .. } | What::Placed { .. } => {}
            }
            // They are in the log already.
            drop(self.policy.failures());
        }
        Some(now)
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
                known_by: self.known_by,
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
        self.hear(&heard);
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

    /// Of these candidates something was heard.
    fn hear(&mut self, heard: &Heard) {
        for call in &heard.calls {
            let of_task = self.heard.get_mut(call.task);
            if let Some(last) = of_task.and_then(|of_task| of_task.get_mut(call.candidate)) {
                *last = Some(heard.now);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::super::testing::tasks;
    use super::super::{tails, testing};
    use super::*;
    use crate::select::BuiltIn;
    use crate::select::testing::millis;
    use karman_types::Slo;

    fn of() -> Digest {
        Digest::of(b"a workflow")
    }

    /// One that has seen nothing yet. The larger candidate has this p95.
    fn policy(built_in: BuiltIn, instance: u64, p95: f64) -> Logged {
        let tasks = tasks(p95);
        let slo = Slo {
            latency_p95: Some(millis(100.0)),
            cost: Some(300.0),
            ..Slo::over(400)
        };
        let policy = built_in.over(tasks.clone(), slo).unwrap();
        Logged::new("digits", policy, tasks, instance).known_by(of())
    }

    /// A request by its number. All becomes slow at the 200th.
    fn request(policy: &mut Logged, n: u64) -> Vec<Entry> {
        let slow = if n > 200 { 4.0 } else { 1.0 };
        testing::request(policy, n, &mut fastrand::Rng::with_seed(n), slow)
    }

    fn chosen(entries: Vec<Entry>) -> Vec<Chosen> {
        let chosen = |entry: Entry| match entry.what {
            What::Chosen(chosen) => Some(chosen),
            _ => None,
        };
        entries.into_iter().filter_map(chosen).collect()
    }

    #[test]
    fn a_policy_that_was_stopped_anywhere_goes_on_as_if_it_had_not_been() {
        for built_in in BuiltIn::ALL {
            for stopped in [1, 150, 200, 201, 399, 555] {
                let mut never = policy(built_in, 1, 80.0);
                let mut log: Vec<Entry> = (0..stopped).flat_map(|n| request(&mut never, n)).collect();
                // What the ring has dropped is before the last checkpoint.
                log.drain(..log.len().saturating_sub(2 * CHECKPOINT_EVERY as usize + 1));
                let tail = tails(log).remove(&of()).unwrap();
                let (mut resumed, now) = policy(built_in, 2, 80.0).resumed(tail);
                assert_eq!(now, Some(Duration::from_millis(stopped * 10 - 1)));
                for n in stopped..stopped + 120 {
                    let (then, again) = (request(&mut never, n), request(&mut resumed, n));
                    assert_eq!(chosen(again), chosen(then), "{} at {n}", built_in.name());
                }
            }
        }
    }

    #[test]
    fn what_is_of_other_candidates_or_of_another_policy_is_no_beginning() {
        let mut before = policy(BuiltIn::Pixie, 1, 80.0);
        let log: Vec<Entry> = (0..30).flat_map(|n| request(&mut before, n)).collect();
        let tail = |log: &[Entry]| tails(log.to_vec()).remove(&of()).unwrap();
        let refuses = |new: Logged, log: &[Entry]| new.resumed(tail(log)).1.is_none();
        assert!(refuses(policy(BuiltIn::Compass, 2, 80.0), &log));
        assert!(refuses(policy(BuiltIn::Pixie, 2, 81.0), &log));
        assert!(!refuses(policy(BuiltIn::Pixie, 2, 80.0), &log));
        // Nor is what does not come out as it was written down.
        let mut other = log.clone();
        let Some(What::Chosen(chosen)) = other.iter_mut().rev().map(|entry| &mut entry.what).nth(1) else {
            panic!("no decision")
        };
        chosen.decision.chosen = (chosen.decision.chosen + 1) % 3;
        assert!(refuses(policy(BuiltIn::Pixie, 2, 80.0), &other));
    }

    #[test]
    fn the_last_of_those_that_are_known_by_the_same_is_gone_on_with() {
        let (mut first, mut second) = (policy(BuiltIn::Pixie, 1, 80.0), policy(BuiltIn::Pixie, 2, 80.0));
        let mut log: Vec<Entry> = (0..3).flat_map(|n| request(&mut first, n)).collect();
        log.extend(request(&mut second, 3));
        log.extend(request(&mut first, 4));
        let (_, now) = policy(BuiltIn::Pixie, 3, 80.0).resumed(tails(log).remove(&of()).unwrap());
        assert_eq!(now, Some(Duration::from_millis(39)));
    }
}
