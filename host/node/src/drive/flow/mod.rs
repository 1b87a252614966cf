//! Workflows on this node: drives the machine of `karman-sched` that knows how far a run is.
//!
//! A run of a workflow is itself an accepted task, `flow/NAME`: it is durable before it is acknowledged, has one owner, and where it
//! is kept, another keeper takes it over when its owner is lost. The owner coordinates it. How far it is goes to the disk, or to
//! the keepers, before anything follows from it, so that the coordinator may be killed anywhere: the next owner of the task goes on
//! from there.
//!
//! The tasks of a workflow run anywhere in the mesh. Each is accepted in its turn, with the same promise, under a key that is
//! made of the run's id: a coordinator that asks again is told what became of the first. What they write to buckets is
//! applied once, however often they are tried.
//!
//! | file | what |
//! |---|---|
//! | `order` | what is asked for |
//! | `coordinate` | a run from its start, or from where it was left, to its end |
//! | `step` | one attempt at one task of it |
//! | `choose`, `choosers` | who does a task that names a capability, for all that ask for the same |
//! | `served` | a run, by those who choose for it |
//! | `policy` | by which policy |
//! | `place` | where a task goes that names none |
//! | `implementations` | who could: found, measured, called |
//! | `endpoints` | those on servers of others |
//! | `lost` | nodes out of sight, which are looked for |
//! | `left_out` | those who have just failed |
//! | `labels`, `energy` | how right their answers were; what they drew |
//! | `request`, `fit` | one request outside of any workflow, within bounds of its own; who meets them |
//! | `progress` | what is written down, and where |
//! | `lifetime` | when a run ends whatever its workflow says |
//! | `json` | between the JSON of workflows and the bytes of tasks |
//! | `status` | how far it is, in the words of its operator |
//! | `waits` | what its steps wait for |
//! | `ending` | why it ended as it did |
//! | `follow` | what happens to it, one after the other |
//! | `looks` | looks of several at one run |
//! | `compliance` | how far objectives were kept |

mod choose;
mod choosers;
mod compliance;
mod coordinate;
mod ending;
mod endpoints;
mod energy;
mod fit;
mod follow;
mod implementations;
mod json;
mod labels;
mod left_out;
mod lifetime;
mod looks;
mod lost;
mod order;
mod place;
mod policy;
mod progress;
mod request;
mod served;
mod status;
mod step;
mod waits;

pub use compliance::{SloHistory, SloHour, SloMinute};
pub(super) use coordinate::coordinate;
pub use ending::{FlowCause, FlowEnding, FlowUndone};
pub use energy::EnergyOrigin;
pub(crate) use follow::{FlowEvent, Follower, Known};
pub(in crate::drive) use implementations::forget_measured;
pub use implementations::{Example, MeasureOrder, Measured};
pub use order::FlowOrder;
pub(super) use place::step_of;
pub(super) use policy::keep as keep_policy;
pub use request::{Chosen, Wanted};
pub use status::{FlowState, FlowStatus, StepStatus, UndoStatus};

use super::status::TaskStatus;
use super::tasks::{Inner, Tasks};
use crate::config::NodeConfig;
use crate::contacts::wall_ms;
use crate::node::Node;
use crate::plugins::Plugins;
use choosers::Choosers;
use compliance::Compliance;
use endpoints::Endpoints;
use follow::Seen;
use futures::future::join_all;
use karman_sched::flow::Phase;
use karman_tasks::{Event, Guarantee, Saved, Submission};
use karman_types::{Digest, NodeId, TaskError, TaskId, TaskRequest, Workflow, format_duration};
use looks::Looks;
use parking_lot::Mutex;
use place::Places;
use progress::Progress;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// Before the name of a workflow, in the name of the task that runs it. No plugin has such a name.
const FLOW: &str = "flow/";
/// How long somebody who withdraws a run waits until that is durable.
const WITHDRAWN: Duration = Duration::from_secs(20);
/// How long a look at all runs waits for keepers to tell how far one of theirs is.
const LOOK: Duration = Duration::from_secs(2);

/// Whether a task is a run of a workflow.
pub(super) fn is_one(task: &str) -> bool {
    task.starts_with(FLOW)
}

/// The name of the task that a run of this workflow is.
fn task_name(workflow: &Workflow) -> String {
    format!("{FLOW}{}", workflow.name())
}

/// Who coordinates runs on a node. It is counted apart from the node itself: as many runs as may be there at once would else take
/// the places of the tasks that they wait for.
pub(super) fn coordinator(node: NodeId) -> NodeId {
    NodeId::of_key(format!("coordinator of {node}").as_bytes())
}

/// The runs that this node coordinates now.
#[derive(Default)]
pub(super) struct Flows {
    live: Mutex<HashMap<TaskId, Arc<Live>>>,
    /// For workflows, and for requests that belong to none.
    choosers: Arc<Choosers>,
    endpoints: Endpoints,
    /// Where tasks go that name no capability.
    places: Places,
    /// How far objectives were kept.
    compliance: Compliance,
    /// How often implementations were measured: what was chosen from before is chosen from no more.
    measured: AtomicU64,
    suspended: watch::Sender<bool>,
    /// A run is coordinated here that was not before.
    taken_up: Notify,
    /// What is seen of runs that others coordinate.
    looks: Looks<Seen>,
}

/// A run that is being coordinated.
struct Live {
    withdrawn: Notify,
    /// As it was last written down.
    durable: watch::Sender<Option<Progress>>,
}

impl Flows {
    /// What was measured is no longer what choices were made from.
    pub(in crate::drive) fn are_measured_anew(&self) {
        self.measured.fetch_add(1, Ordering::Relaxed);
    }

    /// With the servers of others and the policy of placement that the configuration names.
    ///
    /// # Errors
    /// `invalid`, naming the key that cannot be used.
    pub(super) fn open(config: &NodeConfig) -> Result<Self, TaskError> {
        Ok(Self {
            endpoints: Endpoints::open(&config.endpoints)?,
            places: Places::open(&config.policies)?,
            ..Self::default()
        })
    }

    /// No run goes on here, and none begins: the node is to stop. Each is where it was last written down.
    pub(super) fn suspend(&self) {
        self.suspended.send_replace(true);
    }

    /// Plugins have gone: what nobody uses goes with them.
    pub(super) fn plugins_changed(&self, plugins: &Plugins) {
        let here: Vec<Digest> = plugins.all().iter().map(|plugin| plugin.package().id).collect();
        self.choosers.retain(&here);
    }

    fn get(&self, run: TaskId) -> Option<Arc<Live>> {
        self.live.lock().get(&run).cloned()
    }
}

impl Tasks {
    /// Accepts a run of a workflow; the id of an earlier one, when it came under the same key.
    ///
    /// # Errors
    /// `limit` when it may take longer than anything that is accepted lives; when it is not accepted: see [`karman_tasks::SubmitError`].
    pub(crate) async fn run_flow(
        &self,
        order: &FlowOrder,
        promise: Guarantee,
        key: Option<Arc<str>>,
    ) -> Result<TaskId, TaskError> {
        let most = self.inner().runtime.config().tasks.lifetime;
        if let Some(deadline) = order.workflow.deadline().filter(|deadline| *deadline > most) {
            let [deadline, most] = [deadline, most].map(format_duration);
            let says =
                format!("a run of the workflow may take {deadline}, and what this node accepts lives {most}");
            let error = TaskError::limit(says).with_field("deadline");
            return Err(error.with_hint("`lifetime` of `[tasks]` in node.toml says for how long"));
        }
        let request = TaskRequest {
            content_type: json::JSON.into(),
            metadata: Vec::new(),
            body: order.write()?,
        };
        let name = task_name(&order.workflow);
        let submission = Submission {
            guarantee: promise,
            key,
            // How far it is stands on this disk, and so does what its tasks answered.
            stays: true,
            ..Submission::new(name, request)
        };
        self.submit(submission).await
    }

    /// Whether the policy of this node is here.
    ///
    /// # Errors
    /// `unavailable` when the plugin that brings it is not, `invalid` when it brings none.
    pub(crate) fn check_policy(&self) -> Result<(), TaskError> {
        policy::named(self.inner(), None).map(drop)
    }

    /// Every run that this node holds, the oldest first.
    pub(crate) async fn flows(&self) -> Vec<FlowStatus> {
        let runs = self.list().into_iter().filter(|status| is_one(&status.name));
        join_all(runs.map(|status| self.as_far_as_known(status))).await
    }

    /// The last runs that this node holds, the newest first, without what came out of them.
    async fn last_flows(&self, most: usize) -> Vec<FlowStatus> {
        let runs = self.list().into_iter().rev();
        let runs = runs.filter(|status| is_one(&status.name)).take(most);
        let looks = runs.map(|status| async move {
            let mut flow = self.as_far_as_known(status).await;
            flow.output = None;
            flow
        });
        join_all(looks).await
    }

    /// How far a run is. Where nobody can say that just now, its tasks are left out.
    async fn as_far_as_known(&self, status: TaskStatus) -> FlowStatus {
        let known = timeout(LOOK, self.progress(status.task)).await;
        let progress = known.unwrap_or(Ok(None)).unwrap_or_else(|error| {
            tracing::debug!(run = %status.task, %error, "how far a workflow is cannot be told");
            None
        });
        FlowStatus::of(&status, progress)
    }

    /// How far a run is.
    ///
    /// # Errors
    /// `unavailable` when neither this node nor a keeper knows it, `invalid` when it is a task of its own.
    pub(crate) async fn flow(&self, run: TaskId) -> Result<FlowStatus, TaskError> {
        let status = self.run_status(run).await?;
        let progress = self.progress(run).await?;
        let mut status = FlowStatus::of(&status, progress);
        self.inner().tell_waits(&mut status);
        Ok(status)
    }

    /// The same once the run has ended, or this time is over.
    ///
    /// # Errors
    /// Those of [`Tasks::flow`].
    pub(crate) async fn flow_within(&self, run: TaskId, wait: Duration) -> Result<FlowStatus, TaskError> {
        let status = self.flow(run).await?;
        if status.state.has_ended() || wait.is_zero() {
            return Ok(status);
        }
        // How it ended says the progress better.
        let _ = self.outcome(run, wait).await;
        self.flow(run).await
    }

    /// Withdraws a run: what it did is undone as far as it can be. Answers when that is durable. The result of one that has
    /// ended is forgotten.
    ///
    /// # Errors
    /// Those of [`Tasks::flow`]; `unavailable` when its owner is not in reach, or cannot write it down.
    pub(crate) async fn remove_flow(&self, run: TaskId) -> Result<FlowStatus, TaskError> {
        let before = self.flow(run).await?;
        self.remove(run).await?;
        match before.state.has_ended() {
            true => self.flow(run).await,
            false => self.withdrawn(run).await,
        }
    }

    /// Withdraws a run that has not ended. What came out of one that has stays.
    ///
    /// # Errors
    /// `invalid` when it has ended; those of [`Tasks::remove_flow`].
    pub(crate) async fn withdraw_flow(&self, run: TaskId) -> Result<FlowStatus, TaskError> {
        self.withdraw(run).await?;
        self.withdrawn(run).await
    }

    /// How far a run is once it is durable that it was withdrawn.
    async fn withdrawn(&self, run: TaskId) -> Result<FlowStatus, TaskError> {
        let Some(live) = self.inner().flows.get(run) else {
            return self.flow(run).await;
        };
        let mut durable = live.durable.subscribe();
        let undoing = durable.wait_for(|progress| {
            let phase = progress.as_ref().map(|progress| &progress.record.phase);
            phase.is_some_and(|phase| !matches!(phase, Phase::Running))
        });
        let written = timeout(WITHDRAWN, undoing).await.is_ok();
        match written {
            true => self.flow(run).await,
            false => Err(TaskError::unavailable(format!(
                "that run {run} is withdrawn could not be written down yet"
            ))
            .with_hint("try again when the disk, or a majority of the keepers, answers")),
        }
    }

    /// How far a run was when that was last written down, wherever it is.
    async fn progress(&self, run: TaskId) -> Result<Option<Progress>, TaskError> {
        let live = self.inner().flows.get(run);
        if let Some(progress) = live.and_then(|live| live.durable.borrow().clone()) {
            return Ok(Some(progress));
        }
        let here = self
            .inner()
            .runtime
            .home()
            .with(move |store| store.tasks().progress(run))
            .await?;
        let bytes = match here {
            None if self.keepers().known() => self.keepers().progress(run).await?,
            here => here,
        };
        bytes.map(|bytes| Progress::read(&bytes)).transpose()
    }
}

impl Node {
    /// The last runs of workflows that this node holds, the newest first, without what came out of them. A run whose progress
    /// nobody can tell just now is there without its tasks.
    pub async fn last_flows(&self, most: usize) -> Vec<FlowStatus> {
        self.tasks().last_flows(most).await
    }

    /// How far workflows with objectives have kept them within the last hour, by the runs that this node has coordinated to their end
    /// since it began.
    pub fn slo_hour(&self) -> SloHour {
        self.tasks().inner().flows.compliance.last_hour(wall_ms())
    }
}

impl Node {
    /// Whether each model on a server of others that this node names could be called now, by its name there.
    pub(super) async fn endpoints_ready(&self) -> Vec<(String, Result<(), TaskError>)> {
        self.tasks().inner().flows.endpoints.ready().await
    }
}

impl Inner {
    /// The runs of a workflow, by the name of the task that each is, which this node has accepted and which have not ended. None where none
    /// waits: fewer are coordinated than may be.
    fn open_runs(&self, name: &str) -> Vec<TaskId> {
        let most = self.runtime.config().tasks.running_per_provider as usize;
        if self.flows.live.lock().len() < most {
            return Vec::new();
        }
        let machine = self.machine.lock();
        let open = machine
            .tasks()
            .filter(|record| *record.name == *name && matches!(record.state, Saved::Open(_)));
        open.map(|record| record.task).collect()
    }

    /// Withdraws a run of this node that has not ended.
    ///
    /// # Errors
    /// `unavailable` while it is being taken up again: what it did before would not be undone.
    pub(super) fn withdraw_flow(self: &Arc<Self>, run: TaskId, promise: Guarantee) -> Result<(), TaskError> {
        if let Some(live) = self.flows.get(run) {
            live.withdrawn.notify_one();
            return Ok(());
        }
        let begun = self.runtime.home().store()?.tasks().progress(run);
        if begun?.is_some() || promise == Guarantee::Kept {
            return Err(
                TaskError::unavailable(format!("run {run} is not being coordinated just now"))
                    .with_hint("try again in a while: it is taken up again"),
            );
        }
        self.feed(Event::Cancel { asked: run });
        Ok(())
    }
}
