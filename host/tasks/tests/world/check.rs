use super::limits;
use karman_tasks::{
    Call, Commit, Entry, Epoch, Guarantee, Machine, Outcome, Status, Submission, TaskRecord, UnixMs, Verdict,
};
use karman_types::{NodeId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What must always hold, told apart from the machine's own view of it.
#[derive(Default)]
pub(crate) struct Checks {
    /// The true moment after which a task must not start.
    expires: BTreeMap<TaskId, u64>,
    /// The true moment at which the time left is over. It does not count what a handover takes on its way.
    ends: BTreeMap<TaskId, u64>,
    timed: BTreeSet<TaskId>,
    direct: BTreeSet<TaskId>,
    answered: BTreeSet<TaskId>,
    pub(crate) acknowledged: BTreeSet<TaskId>,
    pub(crate) outcomes: BTreeMap<TaskId, Outcome>,
    /// The newest owner in the log.
    owners: BTreeMap<TaskId, Epoch>,
    /// The newest epoch that the home has met.
    met: BTreeMap<TaskId, Epoch>,
    applied: BTreeSet<Arc<str>>,
    /// Tasks that their callers have withdrawn.
    withdrawn: BTreeSet<TaskId>,
}

impl Checks {
    pub(crate) fn submitted(&mut self, task: TaskId, submission: &Submission, now: u64, dawn: u64) {
        if let Some(UnixMs(expires)) = submission.expires {
            self.expires.insert(task, expires - dawn);
        }
        if let Some(within) = submission.within {
            self.ends.insert(task, now + within.as_millis() as u64);
            self.timed.insert(task);
        }
        if submission.guarantee == Guarantee::Direct {
            self.direct.insert(task);
        }
    }

    /// Nothing is acknowledged before it is durable.
    pub(crate) fn acknowledged(&mut self, task: TaskId, durable: bool) {
        assert!(durable, "{task} was acknowledged before it was durable");
        assert!(!self.direct.contains(&task), "{task} is direct");
        self.acknowledged.insert(task);
    }

    pub(crate) fn withdrawn(&mut self, task: TaskId) {
        self.withdrawn.insert(task);
    }

    /// What was acknowledged, somewhere, has ended by now, and not because somebody else took it back.
    pub(crate) fn kept_their_word(&self) {
        for task in &self.acknowledged {
            match self.outcomes.get(task) {
                None => panic!("{task} was acknowledged and has no outcome"),
                Some(Outcome::Cancelled) => {
                    assert!(self.withdrawn.contains(task), "{task} was withdrawn by nobody");
                }
                Some(_) => {}
            }
        }
    }

    /// A caller gets one answer.
    pub(crate) fn answered(&mut self, asked: TaskId) {
        assert!(self.answered.insert(asked), "{asked} was answered twice");
    }

    /// A task that was handed over may be late by the time that took, unless it has an absolute expiry.
    pub(crate) fn handed_over(&mut self, task: TaskId) {
        self.ends.remove(&task);
    }

    /// An expired task never starts, whatever the node's clock shows.
    pub(crate) fn started(&self, call: &Call, now: u64) {
        let task = call.attempt.task;
        let over = |moment: Option<&u64>| moment.is_some_and(|moment| *moment <= now);
        assert!(!over(self.ends.get(&task)), "{task} started after its time");
        // In doubt of the wall clock the time left decides, if there is one.
        let expires = self.expires.get(&task).filter(|_| !self.timed.contains(&task));
        assert!(!over(expires), "{task} started after its expiry");
    }

    /// A task has one outcome, for ever.
    pub(crate) fn recorded(&mut self, task: TaskId, outcome: Option<&Outcome>) {
        if let Some(outcome) = outcome {
            let first = self.outcomes.entry(task).or_insert_with(|| outcome.clone());
            assert_eq!(first, outcome, "{task} has two outcomes");
        }
    }

    /// An entry of the log that had an effect came from the newest owner.
    pub(crate) fn logged(&mut self, entry: &Entry) {
        match entry {
            Entry::Accept { record, .. } => drop(self.owners.insert(record.task, record.epoch)),
            Entry::Own { task, epoch, .. } => {
                let former = self.owners.insert(*task, *epoch);
                assert!(
                    former.is_some_and(|former| former <= *epoch),
                    "{task}: an epoch went back"
                );
            }
            Entry::Dispatch { task, epoch, .. }
            | Entry::Withdraw { task, epoch }
            | Entry::Progress { task, epoch, .. }
            | Entry::End { task, epoch, .. }
            | Entry::Trim { task, epoch }
            | Entry::Forget { task, epoch } => {
                assert_eq!(
                    self.owners.get(task),
                    Some(epoch),
                    "{task}: an effect of a former owner"
                );
            }
        }
    }

    /// An effect is applied once, and never by an owner that is older than one that the home has met.
    pub(crate) fn judged(&mut self, commit: &Commit, verdict: &Verdict) {
        let task = commit.attempt.task;
        let met = self.met.entry(task).or_insert(commit.epoch);
        assert!(*met <= commit.epoch, "{task}: a former owner was let through");
        *met = commit.epoch;
        if *verdict == Verdict::Applied {
            assert!(
                self.applied.insert(commit.key.clone()),
                "{} was applied twice",
                commit.key
            );
        }
    }

    /// A machine never holds more than its limits.
    pub(crate) fn limits(&self, machine: &Machine, mut providers: impl Iterator<Item = NodeId>) {
        let (held, limits) = (machine.held(), limits());
        assert!(held.open <= limits.queue, "queue: {held:?}");
        assert!(held.bytes <= limits.queue_bytes.0, "queue-bytes: {held:?}");
        assert!(held.results <= limits.results, "results: {held:?}");
        // What is just being written down stays.
        let waits = |record: &TaskRecord| {
            let status = machine.status(record.task);
            matches!(status, Some(Status::Ended(Outcome::Done(_) | Outcome::Failed(_))))
        };
        let within = held.result_bytes <= limits.results_bytes.0;
        assert!(within || !machine.tasks().any(waits), "results-bytes: {held:?}");
        assert!(held.keys <= limits.keys, "keys: {held:?}");
        assert!(providers.all(|node| machine.running_at(node) <= limits.running_per_provider));
    }

    pub(crate) fn known(&self) -> impl Iterator<Item = TaskId> {
        self.acknowledged
            .iter()
            .chain(&self.direct)
            .copied()
            .collect::<Vec<_>>()
            .into_iter()
    }
}
