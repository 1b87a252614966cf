//! Where a step of a run goes first: where the policy of `[policies] place` says, by what this node knows of the step, of those after it and of
//! the nodes in reach. Who else could run it is asked after that, in the order of `[policies] route`.

mod policy;

use crate::config::PoliciesConfig;
use crate::contacts::wall_ms;
use crate::drive::model_tasks;
use crate::drive::plugin_policy::News;
use crate::drive::providers::runs_here;
use crate::drive::sample::Sample;
use crate::drive::tasks::{Inner, Tasks};
use karman_mesh::{Mesh, Provider};
use karman_sched::flow::{Call, Event};
use karman_sched::log::Entry;
use karman_sched::place::{Ahead, Known, Need, Placed, Situation};
use karman_types::{NodeId, Offer, TaskError, TaskId, Workflow};
use parking_lot::Mutex;
use policy::Policy;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Decisions in one second that are written down: while all nodes are busy, each step that waits is placed again and again.
const MOST_LOGGED: u32 = 20;
/// Nodes that a policy is shown besides this one: the first ones in the order in which calls go.
const MOST_NODES: usize = 64;

/// The policy, and the steps that are under way.
pub(super) struct Places {
    policy: Policy,
    /// By the key under which they are accepted tasks.
    steps: Mutex<HashMap<Arc<str>, Arc<Placing>>>,
    logged: Mutex<Sample>,
    news: News,
}

/// A step that is to be placed.
pub(in crate::drive) struct Placing {
    run: TaskId,
    name: String,
    ahead: Ahead,
    /// Bytes of its input, and how long it may take.
    asked: (u64, Option<Duration>),
    decided: Mutex<Option<Decided>>,
}

/// Where it went.
struct Decided {
    at: Instant,
    placed: Placed,
    /// Under which it is in the log of decisions, if it is.
    instance: Option<u64>,
    ran: Option<NodeId>,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            steps: Mutex::default(),
            logged: Mutex::new(Sample::of(MOST_LOGGED)),
            news: News::default(),
        }
    }
}

impl Places {
    /// With the policy that the configuration names.
    ///
    /// # Errors
    /// `invalid` for one that a node cannot place by, with the reason.
    pub(super) fn open(config: &PoliciesConfig) -> Result<Self, TaskError> {
        Ok(Self {
            policy: Policy::named(&config.place)?,
            ..Self::default()
        })
    }
}

impl Tasks {
    /// Whether the policy by which steps are placed is here.
    ///
    /// # Errors
    /// `unavailable` when the plugin that brings it is not, `invalid` when it brings none.
    pub(crate) fn check_place(&self) -> Result<(), TaskError> {
        policy::check(self.inner())
    }
}

/// A step is under way, and can be placed, until this is dropped.
pub(super) struct UnderWay {
    tasks: Arc<Inner>,
    key: Arc<str>,
    step: Arc<Placing>,
}

impl UnderWay {
    /// An attempt at a step, under the key of the accepted task that it becomes; nothing where a policy places none. What undoes a step
    /// goes where calls go.
    pub(super) fn of(
        tasks: &Arc<Inner>,
        (run, workflow, call): (TaskId, &Workflow, &Call),
        (key, input): (Arc<str>, u64),
    ) -> Option<Self> {
        let places = &tasks.flows.places;
        let of = call.attempt.of;
        if matches!(places.policy, Policy::AsCalls) || of.undo {
            return None;
        }
        let step = Arc::new(Placing {
            run,
            name: workflow.tasks()[of.task].name.clone(),
            ahead: Ahead::of(workflow, of.task),
            asked: (input, call.within),
            decided: Mutex::default(),
        });
        places.steps.lock().insert(key.clone(), step.clone());
        Some(Self {
            tasks: tasks.clone(),
            key,
            step,
        })
    }

    /// Where it went and why, for the record of the run; nothing where there was no choice.
    pub(super) fn told(&self, call: &Call) -> Option<Event> {
        let decided = self.step.decided.lock();
        let decided = decided.as_ref()?;
        let node = decided.placed.node();
        let mut why = decided.placed.why().because;
        if let Some(failed) = decided.placed.failed() {
            why = format!("{why}; {failed}");
        }
        if let Some(other) = decided.ran.filter(|ran| Some(*ran) != node) {
            why = format!("{why}; {} ran it", other.short());
        }
        Some(Event::Placed {
            attempt: call.attempt,
            node,
            why,
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut steps = self.tasks.flows.places.steps.lock();
        // The next coordinator of the run may have begun.
        if steps
            .get(&self.key)
            .is_some_and(|step| Arc::ptr_eq(step, &self.step))
        {
            steps.remove(&self.key);
        }
    }
}

/// The step of a run of this node that an accepted task is, if a policy places it.
pub(in crate::drive) fn step_of(tasks: &Inner, task: TaskId) -> Option<Arc<Placing>> {
    let places = &tasks.flows.places;
    if matches!(places.policy, Policy::AsCalls) {
        return None;
    }
    let key = tasks.machine.lock().record(task)?.key.clone()?;
    places.steps.lock().get(&key).cloned()
}

impl Placing {
    /// The node that is asked first, of this one, where it `runs_here`, and those that were found; nothing where there is no choice, or the
    /// policy makes none. Those that it is better to avoid, because they run the step or failed it, are not chosen.
    pub(in crate::drive) async fn first(
        &self,
        tasks: &Arc<Inner>,
        (mesh, found): (&Mesh, &[Provider]),
        (runs_here, avoid): (bool, &[NodeId]),
    ) -> Option<NodeId> {
        let here = tasks.runtime.id();
        let runs_here = runs_here && !avoid.contains(&here);
        let run = &self.ahead.needs.first()?.run;
        let is_well = |provider: &&Provider| {
            let node = provider.offer.node;
            !avoid.contains(&node) && tasks.routes.lately(run, node).failed.is_none()
        };
        let others: Vec<&Provider> = found.iter().filter(is_well).take(MOST_NODES).collect();
        if others.len() + usize::from(runs_here) < 2 {
            return None;
        }
        let of_others = others.iter().map(|provider| self.other(tasks, mesh, provider));
        let nodes: Vec<Known> = [self.here(tasks, runs_here)]
            .into_iter()
            .chain(of_others)
            .collect();
        let situation = Situation::of(&self.name, &self.ahead, self.asked, &nodes);
        let places = &tasks.flows.places;
        let placed = places.policy.place(tasks, situation).await?;
        let node = placed.node();
        let instance = places.is_logged(tasks, &placed).then(|| fastrand::u64(..));
        if let Some(instance) = instance {
            let entry = Entry::placed(wall_ms(), self.run, placed.clone());
            tasks.decisions.push([entry.of_call(instance)]);
        }
        *self.decided.lock() = Some(Decided {
            at: Instant::now(),
            placed,
            instance,
            ran: None,
        });
        node
    }

    /// A node has done the step.
    pub(in crate::drive) fn ran(&self, tasks: &Inner, node: NodeId) {
        let mut decided = self.decided.lock();
        let Some(decided) = &mut *decided else {
            return;
        };
        decided.ran = Some(node);
        let mut nodes = decided.placed.known.fleet.nodes.iter();
        let place = nodes.position(|known| known.id == node);
        if let (Some(instance), Some(place)) = (decided.instance, place) {
            let by = (decided.placed.policy(), place);
            let entry = Entry::answered(wall_ms(), self.run, by, decided.at.elapsed());
            tasks.decisions.push([entry.of_call(instance)]);
        }
    }

    /// What this node knows of itself. It is among the nodes also where it does not run the step: the input lies here.
    fn here(&self, tasks: &Inner, runs_here: bool) -> Known {
        let node = tasks.runtime.id();
        let mut known = self.known(tasks, node, |need| holds_here(tasks, need));
        if let Some(step) = known.holds.first_mut() {
            *step &= runs_here;
        }
        Known {
            round_trip: Some(Duration::ZERO),
            cores: available_parallelism().map_or(1, NonZero::get) as u32,
            busy: tasks.plugins.running(),
            heard: Some(Duration::ZERO),
            ..known
        }
    }

    /// What this node knows of another one that offers the step.
    fn other(&self, tasks: &Inner, mesh: &Mesh, provider: &Provider) -> Known {
        let offer = &provider.offer;
        let (round_trip, heard) = mesh.last_heard(&provider.id);
        Known {
            round_trip,
            cores: offer.cores,
            busy: provider.busy,
            heard: heard.map(|when| when.elapsed()),
            ..self.known(tasks, offer.node, |need| holds_there(offer, need))
        }
    }

    fn known(&self, tasks: &Inner, node: NodeId, holds: impl Fn(&Need) -> bool) -> Known {
        let needs = &self.ahead.needs;
        let lately = needs.iter().map(|need| tasks.routes.lately(&need.run, node));
        let (takes, outlasted) = lately.map(|of| (of.takes, of.outlasted)).unzip();
        Known {
            node,
            round_trip: None,
            cores: 1,
            busy: 0,
            heard: None,
            holds: needs.iter().map(holds).collect(),
            takes,
            outlasted,
        }
    }
}

impl Places {
    /// Whether a decision goes to the log: the first of a second do, and those for which a policy has just failed. The operator is told of these,
    /// too.
    fn is_logged(&self, tasks: &Inner, placed: &Placed) -> bool {
        let second = tasks.now().0 / 1000;
        let sampled = self.logged.lock().takes(second);
        let failed = self.news.of(second, placed.failed());
        if let Some(failed) = &failed {
            tracing::warn!(policy = placed.policy(), step = placed.known.step, "{failed}");
        }
        sampled || failed.is_some()
    }
}

fn holds_here(tasks: &Inner, need: &Need) -> bool {
    let has = |model: &String| model_tasks::holds(&tasks.runtime, model);
    runs_here(tasks, &need.run) && need.model.as_ref().is_none_or(has)
}

/// Whether a node that offers this runs a step, with the model that the step names.
fn holds_there(offer: &Offer, need: &Need) -> bool {
    let has = |model: &String| offer.models.contains(model);
    offer.runs(&need.run).is_some() && need.model.as_ref().is_none_or(has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::{Digest, OfferedTask, Tier};

    #[test]
    fn a_node_holds_what_a_step_takes_if_it_offers_the_task_and_the_model() {
        let task = |name: &str| OfferedTask {
            name: name.into(),
            version: "0.1.0".parse().unwrap(),
            id: Digest::of(name.as_bytes()),
        };
        let offer = Offer {
            node: NodeId::of_key(b"a"),
            tier: Tier::Edge,
            cores: 4,
            memory: 1 << 30,
            tasks: vec![task("classify"), task("vision/roads")],
            models: vec!["digits-m".into()],
        };
        let holds = |run: &str, model: Option<&str>| {
            let need = Need {
                run: run.into(),
                model: model.map(Into::into),
            };
            holds_there(&offer, &need)
        };
        assert!(holds("classify", None) && holds("classify", Some("digits-m")));
        assert!(holds("vision", None));
        assert!(!holds("classify", Some("digits-l")) && !holds("segment", Some("digits-m")));
    }
}
