//! Who does a task that names a capability: chosen anew for every run, within what the user wants of the workflow.

use super::implementations::{self, call, reaches, within};
use super::json;
use super::policy::{self, Named};
use crate::drive::tasks::Inner;
use crate::services::blocking;
use karman_sched::Why;
use karman_sched::flow;
use karman_sched::log::{Entry, FellBack, Logged, What};
use karman_sched::select::{Asked, Call, Heard, Task};
use karman_types::{DataContract, Digest, ErrorKind, Implementation, Slo, TaskError, TaskId, Workflow};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// How long an implementation that did not answer is left out.
const AWAY: Duration = Duration::from_secs(5);
/// Choices that are kept; one more drops those of workflows that do not run.
const MOST_CHOOSERS: usize = 256;
/// Implementations that are tried for one attempt.
const MOST_TRIES: usize = 3;

/// The choice among implementations for one workflow, shared by all runs of it on this node.
pub(super) struct Chooser {
    /// For each task of the workflow its place among those that are chosen for.
    places: BTreeMap<usize, usize>,
    started: Instant,
    state: Mutex<State>,
    /// By task and candidate; apart from the policy, which may take its time.
    away: Mutex<HashMap<(usize, usize), Instant>>,
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

struct State {
    policy: Logged,
    runs: HashSet<TaskId>,
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
    let known = tasks.flows.choosers.lock().get(&of).cloned();
    if let Some(known) = known.filter(|known| known.is_of(measured, &policy)) {
        return Ok(Some(known));
    }
    policy.keep(tasks).await?;
    let chooser = Arc::new(Chooser::new(tasks, workflow, &named, measured, &policy).await?);
    let mut choosers = tasks.flows.choosers.lock();
    if choosers.len() >= MOST_CHOOSERS {
        choosers.retain(|_, chooser| Arc::strong_count(chooser) > 1);
    }
    choosers.insert(of, chooser.clone());
    Ok(Some(chooser))
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
                candidates: candidates(tasks, &task.run, &slo).await?,
            });
        }
        let places = named.iter().copied().zip(0..).collect();
        Self::over(workflow.name(), of, slo, places, (measured, policy))
    }

    /// The choice among the candidates of these tasks, within these limits.
    pub(super) fn over(
        name: &str,
        of: Vec<Task>,
        slo: Slo,
        places: BTreeMap<usize, usize>,
        (measured, policy): (u64, &Named),
    ) -> Result<Self, TaskError> {
        let plugin = policy.plugin();
        let policy = Logged::new(name, policy.over(of.clone(), slo)?, of, fastrand::u64(..));
        Ok(Self {
            places,
            started: Instant::now(),
            state: Mutex::new(State {
                policy,
                runs: HashSet::new(),
            }),
            away: Mutex::default(),
            measured,
            plugin,
        })
    }

    /// A run has ended, or goes on elsewhere: what its calls took counts from now on.
    fn end(&self, tasks: &Inner, run: TaskId, latency: Duration, calls: Vec<Call>) {
        let mut state = self.state.lock();
        state.runs.remove(&run);
        if calls.is_empty() {
            return;
        }
        let heard = Heard {
            now: self.started.elapsed(),
            queue: state.runs.len(),
            latency,
            calls,
        };
        match state.policy.report(wall_ms(), run, heard) {
            Ok(entries) => tasks.decisions.push(told(entries)),
            Err(error) => tracing::error!(%run, %error, "what became of a run is not taken in"),
        }
    }

    /// Who serves the next call of a task.
    ///
    /// # Errors
    /// `unavailable` when nobody who may can be reached.
    pub(super) async fn choose(
        self: &Arc<Self>,
        tasks: &Arc<Inner>,
        run: TaskId,
        task: usize,
    ) -> Result<Choice, TaskError> {
        if self.plugin.is_none() {
            return self.choose_here(tasks, run, task);
        }
        // Guests never run on the threads of the network.
        let (chooser, tasks) = (self.clone(), tasks.clone());
        blocking(move || chooser.choose_here(&tasks, run, task)).await
    }

    fn choose_here(&self, tasks: &Inner, run: TaskId, task: usize) -> Result<Choice, TaskError> {
        let away: HashSet<(usize, usize)> = {
            let mut away = self.away.lock();
            away.retain(|_, since| since.elapsed() < AWAY);
            away.keys().copied().collect()
        };
        let mut state = self.state.lock();
        let State { policy, runs } = &mut *state;
        runs.insert(run);
        let candidates = &policy.tasks()[task].candidates;
        let unreachable = candidates.iter().enumerate().filter(|(candidate, known)| {
            away.contains(&(task, *candidate)) || !reaches(tasks, &known.binding)
        });
        let asked = Asked {
            now: self.started.elapsed(),
            task,
            queue: runs.len(),
            unreachable: unreachable.map(|(candidate, _)| candidate).collect(),
        };
        let chosen = policy.choose(wall_ms(), run, asked);
        let (decision, entries) = chosen.map_err(|error| TaskError::unavailable(error.to_string()))?;
        // Under the lock, so that the log has them in the order in which the policy made them.
        tasks.decisions.push(told(entries));
        Ok(Choice {
            candidate: decision.chosen,
            implementation: policy.tasks()[task].candidates[decision.chosen].clone(),
            why: Why::selected(policy.tasks(), &decision),
        })
    }

    /// Whether it was made from these measurements, and decides by this policy.
    pub(super) fn is_of(&self, measured: u64, policy: &Named) -> bool {
        self.measured == measured && self.plugin == policy.plugin()
    }

    /// An implementation did not answer: it is left out for a while.
    pub(super) fn gone(&self, task: usize, candidate: usize) {
        self.away.lock().insert((task, candidate), Instant::now());
    }

    /// Runs an attempt with whoever is chosen; with another one where that cannot be reached. Nothing when it was stopped. What was
    /// called is added to `calls`.
    pub(super) async fn serve(
        self: &Arc<Self>,
        tasks: &Arc<Inner>,
        (run, attempt): (TaskId, &flow::Call),
        outputs: &DataContract,
        stopped: &mut watch::Receiver<bool>,
        calls: &mut Vec<Call>,
    ) -> Option<Result<Value, TaskError>> {
        let task = *self.places.get(&attempt.attempt.of.task)?;
        let begun = Instant::now();
        for tried in 1.. {
            let chosen = self.choose(tasks, run, task).await;
            let request = json::request(&attempt.input, &attempt.with);
            let (chosen, request) = match (chosen, request) {
                (Ok(chosen), Ok(request)) => (chosen, request),
                (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
            };
            let Choice {
                candidate,
                implementation,
                ..
            } = chosen;
            let left = attempt
                .within
                .map(|within| within.saturating_sub(begun.elapsed()));
            let started = Instant::now();
            let answered = tokio::select! {
                answered = call(tasks, &implementation.binding, request, run, left) => Some(answered),
                _ = stopped.wait_for(|stopped| *stopped) => None,
            };
            calls.push(Call {
                task,
                candidate,
                latency: started.elapsed(),
                cost: implementation.profile.cost,
                energy: implementation.profile.energy,
                right: None,
            });
            match answered {
                Some(Ok(response)) => {
                    return Some(json::output(&response).map(|output| within(outputs, output)));
                }
                Some(Err(error)) if error.kind == ErrorKind::Unavailable => {
                    self.gone(task, candidate);
                    if tried >= MOST_TRIES {
                        return Some(Err(error));
                    }
                }
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    // It did not answer in the time of the attempt; the next one asks another.
                    self.gone(task, candidate);
                    return None;
                }
            }
        }
        None
    }
}

/// The calls of a run, reported when this is dropped: when the run has ended, or goes on elsewhere.
pub(super) struct Served {
    tasks: Arc<Inner>,
    run: TaskId,
    begun: Instant,
    by: Vec<(Arc<Chooser>, Vec<Call>)>,
}

impl Served {
    pub(super) fn of(tasks: &Arc<Inner>, run: TaskId) -> Self {
        Self {
            tasks: tasks.clone(),
            run,
            begun: Instant::now(),
            by: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, chooser: Arc<Chooser>, calls: Vec<Call>) {
        match self.by.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &chooser)) {
            Some((_, known)) => known.extend(calls),
            None => self.by.push((chooser, calls)),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let latency = self.begun.elapsed();
        for (chooser, calls) in std::mem::take(&mut self.by) {
            if chooser.plugin.is_none() {
                chooser.end(&self.tasks, self.run, latency, calls);
                continue;
            }
            let (tasks, run) = (self.tasks.clone(), self.run);
            self.tasks
                .threads
                .spawn_blocking(move || chooser.end(&tasks, run, latency, calls));
        }
    }
}

/// What is to be written down; failures of policies are also told to the operator.
fn told(entries: Vec<Entry>) -> Vec<Entry> {
    for entry in &entries {
        if let What::FellBack(FellBack {
            request,
            plugin,
            failure,
        }) = &entry.what
        {
            tracing::warn!(workflow = entry.policy, %request, plugin, %failure, "a policy failed; the default decides");
        }
    }
    entries
}

/// Those who may serve: measured, and as accurate as is wanted.
async fn candidates(tasks: &Inner, capability: &str, slo: &Slo) -> Result<Vec<Implementation>, TaskError> {
    let known = implementations::known(tasks, capability).await?;
    if known.is_empty() {
        return Err(TaskError::unavailable(format!(
            "nobody that does `{capability}` is measured on this node"
        ))
        .with_hint("`karman flow measure FILE TASK --data EXAMPLES` measures who is there"));
    }
    let enough = |known: &Implementation| match (slo.accuracy, known.profile.accuracy) {
        (Some(least), Some(accuracy)) => accuracy >= least,
        (Some(_), None) => false,
        (None, _) => true,
    };
    let best = known
        .iter()
        .filter_map(|known| known.profile.accuracy)
        .fold(0.0, f64::max);
    let fit: Vec<Implementation> = known.into_iter().filter(enough).collect();
    match fit.is_empty() {
        false => Ok(fit),
        true => Err(TaskError::unavailable(format!(
            "nobody that does `{capability}` has the accuracy of {} that is wanted: the best has {best:.3}",
            slo.accuracy.unwrap_or_default()
        ))
        .with_hint("lower `accuracy` in the `slo` of the workflow, or add a better model")),
    }
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

fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_share_their_time_and_tasks_in_a_row_divide_it() {
        let row = "name = 'a'\n[task.b]\ncapability = 'c'\n[task.d]\nafter = ['b']\n[task.e]\nafter = ['d']\ncapability = 'c'";
        assert_eq!(longest_way(&Workflow::from_toml(row).unwrap()), 2);
        let fork = "name = 'a'\n[task.b]\n[task.d]\nafter = ['b']\ncapability = 'c'\n[task.e]\nafter = ['b']\ncapability = 'c'";
        assert_eq!(longest_way(&Workflow::from_toml(fork).unwrap()), 1);
    }
}
