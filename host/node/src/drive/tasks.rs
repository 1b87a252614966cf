//! Drives the machine of accepted tasks (`karman-tasks`): feeds it what happens, does what it says.

mod ends;
mod perform;

use self::ends::Ends;

use super::away::{Away, look_for_others};
use super::decisions::Decisions;
use super::disk::Disk;
use super::flow::Flows;
use super::keepers::Keepers;
use super::names::KnownNames;
use super::providers::FoundLately;
use super::routes::Routes;
use super::time::{keep_time, reading, remember};
use crate::node;
use crate::plugins::Plugins;
use crate::runtime::Runtime;
use crate::services::{apart, shutting_down};
use karman_mesh::Mesh;
use karman_tasks::{
    AttemptId, Event, Guarantee, Handover, Instant, Limits, Machine, Provider, SaveError, Saved, Status,
    Submission, Ticket, UnixMs,
};
use karman_types::{NodeId, TaskError, TaskId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Tasks of which a provider remembers the epoch.
const MOST_EPOCHS: usize = 100_000;
/// How often a drain that goes on says what it waits for.
const SAYS: Duration = Duration::from_secs(60);
/// How often at most tasks look again because nodes have come into reach: each look may search the mesh.
const ARRIVALS: Duration = Duration::from_secs(1);
/// Attempts of other nodes that run here at once.
const MOST_RUNNING: usize = 1024;

/// The accepted tasks of a node.
#[derive(Clone)]
pub(crate) struct Tasks(Arc<Inner>);

pub(crate) struct Inner {
    pub(super) runtime: Runtime,
    pub(super) plugins: Arc<Plugins>,
    pub(super) mesh: OnceLock<Mesh>,
    pub(super) keepers: Keepers,
    pub(super) machine: Mutex<Machine>,
    pub(super) decisions: Decisions,
    pub(super) routes: Arc<Routes>,
    /// Workflows that this node coordinates.
    pub(super) flows: Flows,
    /// Attempts of other nodes that run here.
    pub(super) provider: Mutex<Provider>,
    /// Attempts of this node, wherever they run.
    running: Mutex<HashMap<AttemptId, AbortHandle>>,
    /// What kept each task that waits from running last.
    pub(super) whys: Mutex<HashMap<TaskId, String>>,
    /// Nodes that offered to run something lately.
    pub(super) providers: FoundLately,
    /// For hints to tasks that nobody offers.
    pub(super) names: KnownNames,
    /// Who waits for an acknowledgement.
    asked: Mutex<HashMap<TaskId, oneshot::Sender<Result<TaskId, TaskError>>>>,
    disk: Disk,
    /// Attempts that go by bundle.
    pub(super) away: Arc<Away>,
    /// How long the home of a bucket remembers the key of a task.
    pub(super) key_retention: Duration,
    /// Those of the node: it may be fed from any thread.
    pub(super) threads: Handle,
    started: std::time::Instant,
    wake: Arc<Notify>,
    /// A task has ended, or has another owner.
    pub(super) ended: Ends,
    drained: Notify,
}

impl Tasks {
    /// Takes up the tasks that the node had accepted before it was last stopped.
    ///
    /// # Errors
    /// When the store cannot be opened or read.
    pub(crate) fn start(runtime: Runtime, plugins: Arc<Plugins>, limits: Limits) -> Result<Self, TaskError> {
        let store = runtime.home().store()?;
        let records = store.tasks().records()?;
        let (node, reading) = (runtime.id(), remember(&runtime)?);
        let key_retention = limits.key_retention;
        let machine = Machine::recover(node, limits, Instant(0), reading, fastrand::u64(..), records);
        let wake = Arc::new(Notify::new());
        let away = Arc::new(Away::open(store.clone(), |task| is_open(&machine, task))?);
        let decisions = Decisions::start(&runtime);
        let flows = Flows::open(runtime.config())?;
        let inner = Arc::new_cyclic(|inner: &Weak<Inner>| Inner {
            routes: Arc::new(Routes::new(&runtime, decisions.clone(), inner.clone())),
            machine: Mutex::new(machine),
            provider: Mutex::new(Provider::new(MOST_RUNNING, MOST_EPOCHS)),
            decisions,
            flows,
            running: Mutex::default(),
            whys: Mutex::default(),
            providers: FoundLately::default(),
            names: KnownNames::default(),
            asked: Mutex::default(),
            keepers: Keepers::new(&runtime, &store, inner.clone()),
            disk: Disk::start(store, inner.clone()),
            away,
            mesh: OnceLock::new(),
            key_retention,
            threads: Handle::current(),
            started: std::time::Instant::now(),
            wake: wake.clone(),
            ended: Ends::default(),
            drained: Notify::new(),
            runtime,
            plugins,
        });
        tokio::spawn(keep_time(Arc::downgrade(&inner), wake, reading.trusted));
        Ok(Self(inner))
    }

    /// From now on nodes of the mesh run tasks too.
    pub(crate) fn join(&self, mesh: Mesh, node: Weak<node::Inner>) {
        self.0.away.join(node);
        tokio::spawn(look_for_others(Arc::downgrade(&self.0)));
        tokio::spawn(notice_arrivals(Arc::downgrade(&self.0), mesh.arrivals()));
        let _ = self.0.mesh.set(mesh.clone());
        self.0.keepers.join(mesh);
        self.providers_changed();
    }

    /// What waits for a provider looks again.
    pub(crate) fn providers_changed(&self) {
        self.0.feed(Event::ProvidersChanged);
    }

    /// Accepts a task, and answers its id once it is on the disk or with the keepers. The id of an earlier one, when it came under the same key.
    ///
    /// # Errors
    /// When it is not accepted: see [`karman_tasks::SubmitError`].
    pub(crate) async fn submit(&self, submission: Submission) -> Result<TaskId, TaskError> {
        let asked = self.0.runtime.context(None).task;
        let length = submission.request.body.len();
        let event = apart(length, move || Ok(Event::submit(asked, submission))).await?;
        self.acknowledged(asked, event).await
    }

    /// Takes over a task that another node hands over.
    ///
    /// # Errors
    /// When this node does not take it.
    pub(crate) async fn receive(&self, handover: Handover) -> Result<TaskId, TaskError> {
        let task = handover.record.task;
        self.acknowledged(task, Event::Receive(Box::new(handover))).await
    }

    async fn acknowledged(&self, asked: TaskId, event: Event) -> Result<TaskId, TaskError> {
        let (tell, told) = oneshot::channel();
        self.0.asked.lock().insert(asked, tell);
        self.0.feed(event);
        told.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// Attempts of other nodes are refused from now on.
    pub(crate) fn take_nothing_new(&self) {
        self.0.provider.lock().drain();
    }

    /// Takes nothing new, lets what runs end, hands what waits over to the heirs, and answers when that is done.
    pub(crate) async fn drain(&self, heirs: Vec<NodeId>) {
        let mut drained = std::pin::pin!(self.0.drained.notified());
        drained.as_mut().enable();
        self.take_nothing_new();
        self.0.flows.suspend();
        self.0.away.drain();
        let keepers = self.0.keepers.nodes();
        self.0.feed(Event::Drain { heirs, keepers });
        while timeout(SAYS, drained.as_mut()).await.is_err() {
            self.0.say_what_is_left();
        }
    }

    /// Whether it takes nothing new.
    pub(crate) fn draining(&self) -> bool {
        self.0.provider.lock().draining()
    }

    /// The log of decisions.
    pub(crate) fn decisions(&self) -> &Decisions {
        &self.0.decisions
    }

    /// The keepers of kept tasks.
    pub(crate) fn keepers(&self) -> &Keepers {
        &self.0.keepers
    }

    pub(super) fn of(inner: &Arc<Inner>) -> Self {
        Self(inner.clone())
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl Inner {
    pub(super) fn now(&self) -> Instant {
        Instant(self.started.elapsed().as_millis() as u64)
    }

    /// The time of day, where it can be believed.
    pub(super) fn wall(&self) -> Option<UnixMs> {
        let reading = reading(&self.runtime).ok()?;
        reading.trusted.then_some(reading.wall)
    }

    /// Whether the task is here and has not ended.
    pub(super) fn is_open(&self, task: TaskId) -> bool {
        is_open(&self.machine.lock(), task)
    }

    /// Remembers why a task does not run.
    pub(super) fn note_why(&self, task: TaskId, why: impl Into<String>) {
        self.whys.lock().insert(task, why.into());
        // It may have ended meanwhile, and nobody else would forget it.
        if !self.is_open(task) {
            self.whys.lock().remove(&task);
        }
    }

    /// How many kept tasks it holds.
    pub(super) fn kept(&self) -> u64 {
        let machine = self.machine.lock();
        let kept = machine
            .tasks()
            .filter(|record| record.guarantee == Guarantee::Kept);
        kept.count() as u64
    }

    /// Says why a drain has not ended.
    fn say_what_is_left(&self) {
        let machine = self.machine.lock();
        let (mut running, mut unsaved, mut handed) = (0u64, 0u64, 0u64);
        for record in machine.tasks() {
            match machine.status(record.task) {
                Some(Status::Running(_)) => running += 1,
                Some(Status::Saving | Status::Ending) => unsaved += 1,
                Some(Status::Moved(_)) if !matches!(record.state, Saved::Moved { .. }) => handed += 1,
                _ => {}
            }
        }
        drop(machine);
        tracing::info!(
            running,
            unsaved,
            handed,
            "the drain goes on: tasks run, wait for the disk or a majority of the keepers, or for the answer of an heir"
        );
    }

    /// Tells the machine what happened, and does what it then wants.
    pub(super) fn feed(self: &Arc<Self>, event: Event) {
        if matches!(event, Event::ProvidersChanged) {
            self.away.providers_changed();
        }
        let moved = match event {
            Event::HandedOver { task } => Some(task),
            _ => None,
        };
        // Under the lock, so that writes reach the disk in the machine's order; nothing in `perform` waits or feeds.
        let mut machine = self.machine.lock();
        let before = machine.next_timeout();
        for action in machine.handle(self.now(), event) {
            self.perform(action);
        }
        let next = machine.next_timeout();
        drop(machine);
        if let Some(task) = moved {
            self.ended.tell(task);
        }
        // Who keeps the time wakes by itself when the one before is due.
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.wake.notify_one();
        }
    }

    /// The disk has carried these writes out, or not.
    pub(super) fn saved(self: &Arc<Self>, tickets: Vec<Ticket>, outcome: Result<(), String>) {
        for ticket in tickets {
            self.feed(match &outcome {
                Ok(()) => Event::Saved { ticket },
                Err(error) => {
                    let error = SaveError::Disk(error.clone());
                    Event::Unsaved { ticket, error }
                }
            });
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

fn is_open(machine: &Machine, task: TaskId) -> bool {
    use Status::{Ended, Forgotten, Moved};
    !matches!(machine.status(task), None | Some(Ended(_) | Forgotten | Moved(_)))
}

/// What waits for a provider looks again when a node comes into reach: at once, and then for all that come meanwhile together.
async fn notice_arrivals(tasks: Weak<Inner>, mut arrivals: watch::Receiver<u64>) {
    while arrivals.changed().await.is_ok() {
        match tasks.upgrade() {
            Some(tasks) => tasks.feed(Event::ProvidersChanged),
            None => return,
        }
        sleep(ARRIVALS).await;
    }
}
