//! Who does a task that names a capability: chosen anew for every run, within what the user wants of the workflow.

mod serve;

use super::fit;
use super::left_out::LeftOut;
use super::lost::{Lost, is_nobody_there};
use super::policy::{self, Named};
use super::task_name;
use crate::contacts::wall_ms;
use crate::drive::tasks::Inner;
use crate::services::blocking;
use karman_sched::Why;
use karman_sched::log::{Entry, Logged, Tail, What};
use karman_sched::select::{Asked, Call, Heard, Task};
use karman_types::{Digest, ErrorKind, Implementation, Slo, TaskError, TaskId, Workflow};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;

/// Implementations that are tried for one attempt, or request.
pub(super) const MOST_TRIES: usize = 3;

/// The choice among implementations for one workflow, shared by all runs of it on this node.
pub(super) struct Chooser {
    /// For each task of the workflow its place among those that are chosen for.
    places: BTreeMap<usize, usize>,
    started: Instant,
    /// The time of its policy when it was started: what went by before its node was last stopped.
    before: Duration,
    policy: Mutex<Logged>,
    /// Who may ask a policy that takes its time, or tell it something.
    turns: Arc<tokio::sync::Mutex<()>>,
    /// How long a request may take, where that is limited.
    limit: Option<Duration>,
    /// The name of the accepted task that a run of the workflow is; nothing where there is no workflow.
    runs_as: Option<String>,
    /// Runs that have not ended, also those that wait for their turn.
    runs: Mutex<HashSet<TaskId>>,
    /// Apart from the policy, which may take its time.
    left_out: LeftOut,
    lost: Lost,
    /// The measurements that it was made from.
    measured: u64,
    /// The file of the plugin that brings its policy, if one does.
    plugin: Option<Digest>,
}

/// Who serves a call.
pub(super) struct Choice {
    /// By its place among the candidates.
    pub(super) candidate: usize,
    pub(super) implementation: Implementation,
    pub(super) why: Why,
}

/// The chooser of a workflow; nothing where none of its tasks names a capability.
///
/// # Errors
/// `unavailable` when nobody that does what a task names is measured, or reaches the accuracy that is wanted.
pub(super) async fn chooser(tasks: &Inner, workflow: &Workflow) -> Result<Option<Arc<Chooser>>, TaskError> {
    let named = workflow.tasks().iter().enumerate();
    let named: Vec<usize> = named
        .filter_map(|(place, task)| task.capability.is_some().then_some(place))
        .collect();
    if named.is_empty() {
        return Ok(None);
    }
    let of = Digest::of(workflow.to_toml().as_bytes());
    let measured = tasks.flows.measured.load(Ordering::Relaxed);
    let policy = policy::named(tasks, workflow.select())?;
    let choosers = &tasks.flows.choosers;
    if let Some(known) = choosers.get(&of, (measured, policy.plugin())) {
        return Ok(Some(known));
    }
    let mut before = tasks.decisions.before().await;
    if let Some(known) = choosers.get(&of, (measured, policy.plugin())) {
        return Ok(Some(known));
    }
    let chooser = Chooser::new(tasks, workflow, &named, measured, &policy).await?;
    let chooser = chooser.resumed(of, before.get(&of).cloned()).await?;
    before.remove(&of);
    Ok(Some(choosers.keep(of, chooser)))
}

impl Chooser {
    async fn new(
        tasks: &Inner,
        workflow: &Workflow,
        named: &[usize],
        measured: u64,
        policy: &Named,
    ) -> Result<Self, TaskError> {
        let usual = || Slo::over(Slo::USUAL_REQUESTS);
        let slo = workflow.slo().cloned().unwrap_or_else(usual);
        let share = 1.0 / longest_way(workflow) as f64;
        let mut of = Vec::new();
        for place in named {
            let task = &workflow.tasks()[*place];
            of.push(Task {
                name: task.name.clone(),
                visits: 1.0,
                within: share,
                candidates: fit::for_task(tasks, &task.run, &slo).await?,
            });
        }
        let places = named.iter().copied().zip(0..).collect();
        let chooser = Self::over(tasks, (workflow.name(), of, slo), places, (measured, policy))?;
        Ok(Self {
            runs_as: Some(task_name(workflow)),
            ..chooser
        })
    }

    /// The choice among the candidates of these tasks, within these limits.
    pub(super) fn over(
        tasks: &Inner,
        (name, of, slo): (&str, Vec<Task>, Slo),
        places: BTreeMap<usize, usize>,
        (measured, policy): (u64, &Named),
    ) -> Result<Self, TaskError> {
        let (plugin, limit) = (policy.plugin(), slo.latency_p95);
        let policy = policy.over(of.clone(), slo, &tasks.flows.choosers)?;
        Ok(Self {
            places,
            started: Instant::now(),
            before: Duration::ZERO,
            policy: Mutex::new(Logged::new(name, policy, of, fastrand::u64(..))),
            turns: Arc::default(),
            limit,
            runs_as: None,
            runs: Mutex::default(),
            left_out: LeftOut::default(),
            lost: Lost::default(),
            measured,
            plugin,
        })
    }

    /// The same, with what its policy knew when the node was last stopped, where that was written down. It is found again by `of`.
    pub(super) async fn resumed(mut self, of: Digest, tail: Option<Tail>) -> Result<Self, TaskError> {
        let mut policy = self.policy.into_inner().known_by(of);
        if let Some(tail) = tail {
            // All of it is decided again, and guests never run on the threads of the network.
            let (resumed, before) = blocking(move || Ok(policy.resumed(tail))).await?;
            policy = resumed;
            self.before = before.unwrap_or_default();
        }
        self.policy = Mutex::new(policy);
        Ok(self)
    }

    /// The time of its policy.
    fn now(&self) -> Duration {
        self.before + self.started.elapsed()
    }

    /// A run is under way.
    pub(super) fn enter(&self, run: TaskId) {
        self.runs.lock().insert(run);
    }

    /// It has ended, or goes on elsewhere.
    pub(super) fn leave(&self, run: TaskId) {
        self.runs.lock().remove(&run);
    }

    /// How long a request may take, where that is limited.
    pub(super) const fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Whether a plugin brings its policy. Then [`Chooser::report`] blocks, and comes in turn.
    pub(super) const fn is_brought(&self) -> bool {
        self.plugin.is_some()
    }

    /// Waits until nobody else asks the policy or tells it something. Waiting takes no thread, and a caller that
    /// gives up leaves the queue.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        self.turns.clone().lock_owned().await
    }

    /// Others that wait or are served while this run is asked for, or told of.
    fn others(&self, tasks: &Inner, run: TaskId) -> usize {
        let waiting = self.runs_as.as_ref().map(|name| tasks.open_runs(name));
        others(&self.runs.lock(), &waiting.unwrap_or_default(), run)
    }

    /// What the calls of a run took counts from now on.
    pub(super) fn report(&self, tasks: &Inner, run: TaskId, latency: Duration, calls: Vec<Call>) {
        let queue = self.others(tasks, run);
        let mut policy = self.policy.lock();
        let heard = Heard {
            now: self.now(),
            queue,
            latency,
            calls,
        };
        match policy.report(wall_ms(), run, heard) {
            Ok(entries) => tasks.decisions.push(told(entries)),
            Err(error) => tracing::error!(%run, %error, "what became of a run is not taken in"),
        }
    }

    /// Who serves the next call of a task that is over within this time. Where nobody is there, those who are out of sight are
    /// looked for first, for half of it at most.
    ///
    /// # Errors
    /// `unavailable` when nobody who may can be reached.
    pub(super) async fn choose(
        self: &Arc<Self>,
        tasks: &Arc<Inner>,
        of: (TaskId, usize),
        within: Option<Duration>,
    ) -> Result<Choice, TaskError> {
        let until = within.and_then(|within| Instant::now().checked_add(within / 2));
        let mut chosen = self.choose_now(tasks, of).await;
        while chosen.as_ref().is_err_and(is_nobody_there) && self.lost.may_be_back(tasks, of.1, until).await {
            chosen = self.choose_now(tasks, of).await;
        }
        chosen
    }

    async fn choose_now(
        self: &Arc<Self>,
        tasks: &Arc<Inner>,
        (run, task): (TaskId, usize),
    ) -> Result<Choice, TaskError> {
        let Some(plugin) = self.plugin else {
            return Ok(self.choose_here(tasks, run, task)?.0);
        };
        let turn = self.turn().await;
        let (chooser, tasks) = (self.clone(), tasks.clone());
        // Guests never run on the threads of the network.
        let choose = move || {
            let (choice, checkpoint) = chooser.choose_here(&tasks, run, task)?;
            drop(turn);
            if checkpoint {
                policy::keep(&tasks, &plugin);
            }
            Ok(choice)
        };
        blocking(choose).await
    }

    /// The same, and whether its policy was written down with it.
    fn choose_here(&self, tasks: &Inner, run: TaskId, task: usize) -> Result<(Choice, bool), TaskError> {
        let queue = self.others(tasks, run) + 1;
        let mut policy = self.policy.lock();
        let candidates = &policy.tasks()[task].candidates;
        let is_lost = |candidate: usize| self.lost.has(tasks, task, &candidates[candidate].binding);
        let of = (task, candidates.len());
        let asked = Asked {
            now: self.now(),
            task,
            queue,
            unreachable: self.left_out.of(of, Instant::now(), is_lost),
        };
        let chosen = policy.choose(wall_ms(), run, asked);
        let (decision, entries) = chosen.map_err(|error| TaskError::unavailable(error.to_string()))?;
        let checkpoint = |entry: &Entry| matches!(entry.what, What::Checkpoint(_));
        let checkpoint = entries.iter().any(checkpoint);
        // Under the lock, so that the log has them in the order in which the policy made them.
        tasks.decisions.push(told(entries));
        let choice = Choice {
            candidate: decision.chosen,
            implementation: policy.tasks()[task].candidates[decision.chosen].clone(),
            why: Why::selected(policy.tasks(), &decision),
        };
        Ok((choice, checkpoint))
    }

    /// Gives up the instance of its plugin, if it has one and nobody asks it now. The next decision goes on from where it was.
    pub(super) fn rest(&self) -> bool {
        self.policy.try_lock().is_some_and(|mut policy| policy.rest())
    }

    /// The measurements that it was made from, and the file of the plugin that brings its policy.
    pub(super) const fn made_from(&self) -> (u64, Option<Digest>) {
        (self.measured, self.plugin)
    }

    /// A call of a task by a candidate has failed: where that may pass, others are asked for a while.
    pub(super) fn failed(&self, of: (usize, usize), kind: ErrorKind) {
        self.left_out.failed(of, kind, Instant::now());
    }
}

/// What is to be written down; failures of policies are also told to the operator.
fn told(entries: Vec<Entry>) -> Vec<Entry> {
    for entry in &entries {
        if let What::PolicyFailed { request, failed } = &entry.what {
            tracing::warn!(workflow = entry.policy, %request, "{failed}");
        }
    }
    entries
}

/// How many besides this run are served or wait: those that somebody chooses for, and those that are accepted.
fn others(served: &HashSet<TaskId>, accepted: &[TaskId], run: TaskId) -> usize {
    let waiting = accepted.iter().filter(|other| !served.contains(other));
    served
        .iter()
        .chain(waiting)
        .filter(|other| **other != run)
        .count()
}

/// The most tasks that name a capability on one way through the workflow.
fn longest_way(workflow: &Workflow) -> usize {
    let mut on_the_way = vec![0; workflow.tasks().len()];
    for (place, task) in workflow.tasks().iter().enumerate() {
        let before = workflow.edges_into(place).iter();
        let before = before.map(|edge| on_the_way[workflow.edges()[*edge].from]).max();
        on_the_way[place] = before.unwrap_or(0) + usize::from(task.capability.is_some());
    }
    on_the_way.into_iter().max().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_sched::log::Policy;

    impl Chooser {
        /// One that has nothing to choose, made from these measurements.
        pub(in crate::drive::flow) fn of_nothing(measured: u64) -> Self {
            let fixed = serde_json::json!({ "tasks": [], "chosen": [] });
            let policy = Policy::Fixed(serde_json::from_value(fixed).unwrap());
            Self {
                places: BTreeMap::new(),
                started: Instant::now(),
                before: Duration::ZERO,
                policy: Mutex::new(Logged::new("nothing", policy, Vec::new(), 0)),
                turns: Arc::default(),
                limit: None,
                runs_as: None,
                runs: Mutex::default(),
                left_out: LeftOut::default(),
                lost: Lost::default(),
                measured,
                plugin: None,
            }
        }
    }

    #[test]
    fn runs_that_wait_to_be_coordinated_count_like_those_that_are_served() {
        let run = |number| TaskId::from_parts(1, number);
        let served = HashSet::from([run(1), run(2)]);
        assert_eq!(others(&served, &[], run(1)), 1);
        // The run that was served last is still an accepted task.
        assert_eq!(others(&served, &[run(1), run(2), run(3), run(4)], run(3)), 3);
        assert_eq!(others(&HashSet::new(), &[], run(1)), 0);
    }

    #[test]
    fn branches_share_their_time_and_tasks_in_a_row_divide_it() {
        let row = "name = 'a'\n[task.b]\ncapability = 'c'\n[task.d]\nafter = ['b']\n[task.e]\nafter = ['d']\ncapability = 'c'";
        assert_eq!(longest_way(&Workflow::from_toml(row).unwrap()), 2);
        let fork = "name = 'a'\n[task.b]\n[task.d]\nafter = ['b']\ncapability = 'c'\n[task.e]\nafter = ['b']\ncapability = 'c'";
        assert_eq!(longest_way(&Workflow::from_toml(fork).unwrap()), 1);
    }
}
