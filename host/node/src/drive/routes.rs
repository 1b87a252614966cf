//! Who is asked first to run what several nodes offer: in the order of the node's policy, by what it has measured of them.

mod policy;

use super::attempt::HOME;
use super::decisions::Decisions;
use super::plugin_policy::News;
use super::sample::Sample;
use super::tasks::{Inner, Tasks};
use crate::contacts::wall_ms;
use crate::node::Node;
use crate::runtime::Runtime;
use karman_mesh::{Mesh, Provider};
use karman_sched::call::{Demand, Lately, Picked, Seen, Taker, TaskDemand};
use karman_sched::log::Entry;
use karman_types::{ErrorKind, NodeId, TaskError, TaskId};
use parking_lot::Mutex;
use policy::Policy;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Direct calls in one second whose order is written down. A node may make thousands of calls in a second, and they shall not push other
/// decisions out of the ring.
const MOST_CALLS: u32 = 2;
/// The same of accepted tasks: while all providers are busy, each that waits asks again and again.
const MOST_TASKS: u32 = 20;

/// The policy, and what it goes by.
pub(crate) struct Routes {
    policy: Policy,
    node: Weak<Inner>,
    started: Instant,
    seen: Mutex<Seen>,
    demand: Mutex<Demand>,
    calls: Mutex<Sample>,
    tasks: Mutex<Sample>,
    news: News,
    decisions: Decisions,
}

/// Providers in the order in which they are tried.
pub(super) struct Pick {
    pub(super) providers: Vec<Provider>,
    request: TaskId,
    /// Tells it from others for the same request.
    instance: u64,
    /// Nothing where there was no choice.
    picked: Option<Picked>,
    /// Whether it is in the log of decisions.
    written: bool,
}

/// Why the node that answered was asked.
#[derive(Default)]
pub(super) struct Answered {
    /// In words; nothing where there was no choice.
    pub(super) why: Option<String>,
    /// Under which `karman why` tells of it, where it is in the log.
    pub(super) decision: Option<TaskId>,
}

impl Tasks {
    /// Who is asked first to run what several nodes offer.
    pub(crate) fn routes(&self) -> &Arc<Routes> {
        &self.inner().routes
    }

    /// Whether the policy by which this is decided is here.
    ///
    /// # Errors
    /// `unavailable` when the plugin that brings it is not, `invalid` when it brings none.
    pub(crate) fn check_route(&self) -> Result<(), TaskError> {
        policy::check(self.inner())
    }
}

impl Node {
    /// How many nodes should offer each task whose calls this node has handed to others lately, and how many do.
    pub fn demand(&self) -> Vec<TaskDemand> {
        let routes = self.tasks().routes();
        routes.demand.lock().of_all(routes.started.elapsed())
    }
}

impl Routes {
    pub(super) fn new(runtime: &Runtime, decisions: Decisions, node: Weak<Inner>) -> Self {
        Self {
            policy: Policy::named(&runtime.config().policies.route),
            node,
            started: Instant::now(),
            seen: Mutex::default(),
            demand: Mutex::new(Demand::new(runtime.config().policies.replicas.get().into())),
            calls: Mutex::new(Sample::of(MOST_CALLS)),
            tasks: Mutex::new(Sample::of(MOST_TASKS)),
            news: News::default(),
            decisions,
        }
    }

    /// Who is asked to run a direct call.
    pub(super) async fn of_call(&self, mesh: &Mesh, of: (&str, TaskId), found: Vec<Provider>) -> Pick {
        self.offered(of.0, &found);
        self.called(of.0);
        self.pick(mesh, of, found, Some(&self.calls)).await
    }

    /// Who is asked to run an accepted task: those that it is better to avoid, because they run it or failed it, after the others.
    pub(super) async fn of_task(
        &self,
        mesh: &Mesh,
        of: (&str, TaskId),
        found: Vec<Provider>,
        avoid: &[NodeId],
    ) -> Vec<Provider> {
        self.offered(of.0, &found);
        let is_tried = |provider: &Provider| avoid.contains(&provider.offer.node);
        let (tried, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_tried);
        // It is between the others, unless there are none.
        let (first, last) = match others.is_empty() {
            true => (None, Some(&self.tasks)),
            false => (Some(&self.tasks), None),
        };
        let mut order = self.pick(mesh, of, others, first).await.providers;
        order.extend(self.pick(mesh, of, tried, last).await.providers);
        order
    }

    /// A call of the task comes, or an attempt at an accepted one begins: while that waits for a node, it asks for one again and again.
    pub(super) fn called(&self, task: &str) {
        self.demand.lock().called(self.started.elapsed(), task);
    }

    /// These nodes could run the task; what nobody offers, no further node would.
    fn offered(&self, task: &str, found: &[Provider]) {
        let cores = found.iter().map(|provider| provider.offer.cores).min();
        if let Some(cores) = cores {
            let nodes = u32::try_from(found.len()).unwrap_or(u32::MAX);
            let now = self.started.elapsed();
            self.demand.lock().offered(now, task, (nodes, cores));
        }
    }

    async fn pick(
        &self,
        mesh: &Mesh,
        (task, request): (&str, TaskId),
        found: Vec<Provider>,
        sample: Option<&Mutex<Sample>>,
    ) -> Pick {
        if found.len() < 2 {
            return Pick {
                providers: found,
                request,
                instance: 0,
                picked: None,
                written: false,
            };
        }
        let takers = found.iter().map(|provider| self.taker(mesh, task, provider));
        let takers = takers.collect();
        let now = self.started.elapsed();
        let picked = self.policy.pick(&self.node, now, task, takers).await;
        let mut found: Vec<Option<Provider>> = found.into_iter().map(Some).collect();
        let order = picked.order.iter();
        let providers = order.filter_map(|place| found[*place].take()).collect();
        let written = self.is_written(&picked, sample);
        let instance = fastrand::u64(..);
        if written {
            let entry = Entry::picked(wall_ms(), request, picked.clone());
            self.decisions.push([entry.of_call(instance)]);
        }
        Pick {
            providers,
            request,
            instance,
            picked: Some(picked),
            written,
        }
    }

    /// Whether a decision goes to the log: some do, and those for which a policy has just failed. The operator is told of these, too.
    fn is_written(&self, picked: &Picked, sample: Option<&Mutex<Sample>>) -> bool {
        let second = self.started.elapsed().as_secs();
        let sampled = sample.is_some_and(|sample| sample.lock().takes(second));
        let failed = self.news.of(second, picked.failed());
        if let Some(failed) = &failed {
            tracing::warn!(policy = picked.policy(), task = picked.task, "{failed}");
        }
        sampled || failed.is_some()
    }

    fn taker(&self, mesh: &Mesh, task: &str, provider: &Provider) -> Taker {
        let offer = &provider.offer;
        let (round_trip, heard) = mesh.last_heard(&provider.id);
        let Lately {
            takes,
            outlasted,
            failed,
        } = self.lately(task, offer.node);
        Taker {
            round_trip,
            busy: provider.busy,
            takes,
            outlasted,
            failed,
            heard: heard.map(|when| when.elapsed()),
            ..Taker::new(offer.node, offer.cores)
        }
    }

    /// What is known of calls of the task on this node or another one.
    pub(super) fn lately(&self, task: &str, node: NodeId) -> Lately {
        self.seen.lock().of(self.started.elapsed(), task, node)
    }

    /// An attempt at an accepted task has ended on this node.
    pub(super) fn ran_here<T>(&self, of: (&str, NodeId), outcome: &Result<T, TaskError>, took: Duration) {
        let now = self.started.elapsed();
        let outcome = outcome.as_ref().map(|_| ());
        learn(&mut self.seen.lock(), now, of, (outcome, took));
    }

    /// A call goes to one of them now: what it takes is remembered.
    pub(super) fn under_way<'a>(&'a self, mesh: &Mesh, task: &'a str, provider: &Provider) -> UnderWay<'a> {
        let (round_trip, _) = mesh.last_heard(&provider.id);
        UnderWay {
            routes: self,
            task,
            node: provider.offer.node,
            way: round_trip.unwrap_or_default(),
            free: provider.busy < provider.offer.cores.max(1),
            began: Instant::now(),
            ended: false,
        }
    }

    /// A node has answered, this long after the call was made.
    pub(super) fn answered(&self, pick: &Pick, node: NodeId, took: Duration) -> Answered {
        let Some(picked) = &pick.picked else {
            return Answered::default();
        };
        let place = picked.takers.iter().position(|taker| taker.node == node);
        if let Some(place) = place.filter(|_| pick.written) {
            let by = (picked.policy(), place);
            let entry = Entry::answered(wall_ms(), pick.request, by, took);
            self.decisions.push([entry.of_call(pick.instance)]);
        }
        Answered {
            why: Some(picked.told(node)),
            decision: pick.written.then_some(pick.request),
        }
    }
}

/// A call that one of them has not answered yet. Dropped before it has ended, it was given up: nobody waits for it any more.
pub(super) struct UnderWay<'a> {
    routes: &'a Routes,
    task: &'a str,
    node: NodeId,
    way: Duration,
    /// Whether a core was free there.
    free: bool,
    began: Instant,
    ended: bool,
}

impl UnderWay<'_> {
    /// How it ended.
    pub(super) fn ended<T>(mut self, outcome: &Result<T, TaskError>) {
        self.ended = true;
        let (now, took) = (self.routes.started.elapsed(), self.took());
        let outcome = outcome.as_ref().map(|_| ());
        if outcome.is_ok() {
            self.routes.demand.lock().answered(self.task, took, self.free);
        }
        learn(
            &mut self.routes.seen.lock(),
            now,
            (self.task, self.node),
            (outcome, took),
        );
    }

    fn took(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.way)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let now = self.routes.started.elapsed();
            let mut seen = self.routes.seen.lock();
            seen.given_up(now, self.task, self.node, self.took());
        }
    }
}

/// Remembers how a call ended, and after what time. What the task itself says is wrong tells nothing of the node, nor does it that
/// the buckets which the task works on were out of its reach.
fn learn(
    seen: &mut Seen,
    now: Duration,
    (task, node): (&str, NodeId),
    (outcome, took): (Result<(), &TaskError>, Duration),
) {
    match outcome {
        Ok(()) => seen.answered(now, task, node, took),
        Err(error) => match error.kind {
            ErrorKind::Unavailable if error.field.as_deref() != Some(HOME) => seen.failed(now, task, node),
            ErrorKind::Deadline => seen.given_up(now, task, node, took),
            _ => {}
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_out_of_reach_is_not_held_against_the_node_that_looked_for_it() {
        let (now, node) = (Duration::from_secs(9), NodeId::of_key(b"other"));
        let away = TaskError::unavailable("node 9c01d2e7 cannot be reached");
        let of_home = away.clone().with_field(HOME);
        let known = |ended: &[Result<(), &TaskError>]| {
            let mut seen = Seen::default();
            for outcome in ended {
                learn(&mut seen, now, ("echo", node), (*outcome, now));
            }
            let lately = seen.of(now, "echo", node);
            (lately.takes, lately.failed)
        };
        assert_eq!(known(&[Err(&of_home)]), (None, None));
        assert_eq!(known(&[Err(&away)]), (None, Some(Duration::ZERO)));
        assert_eq!(known(&[Err(&away), Ok(())]), (Some(now), None));
    }
}
