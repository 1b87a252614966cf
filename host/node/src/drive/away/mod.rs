//! Attempts at nodes that are out of reach now and have a planned contact: what shall run goes as a bundle, and so does what came
//! of it.
//!
//! For the machine of tasks such an attempt is like any other, only that it takes its time. What was sent is written down before it
//! leaves (`ledger`), and stays known until the task has ended, so that a node that is started again waits for the answer of what is
//! on its way. An attempt that reads buckets of its home asks for what it misses; it runs again with that, and what it writes is
//! applied at the home in one transaction if what it has read is unchanged, as with every other attempt. As long as a bundle has not
//! left, another node that comes into reach takes the task (`others`).

mod answers;
mod ledger;
mod offers;
mod others;
mod serve;

pub(super) use answers::{answered, refused};
pub(crate) use offers::listen;
pub(super) use offers::reached_later;
pub(super) use others::look_for_others;
pub(super) use serve::{Come, run_away};

use self::ledger::{Ledger, Sent, Stands};
use self::offers::Offers;
use super::attempt::{Failure, head_of, origin};
use super::bundles::Terms;
use super::cbor::write;
use super::parcels::wants_room;
use super::tasks::Inner;
use crate::contacts::wall_ms;
use crate::node::{self, Node};
use crate::services::{blocking, shutting_down};
use bytes::Bytes;
use karman_mesh::Parcel;
use karman_space::Priority;
use karman_store::Store;
use karman_tasks::{Answer, AttemptId, AwayCall, AwayReply, AwayValue, Call, Needs};
use karman_types::{Digest, ErrorKind, NodeId, TaskError, TaskId};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

/// How long an attempt without a deadline may be away.
const USUAL: Duration = Duration::from_secs(7 * 86_400);
/// How often the clock is looked at while an answer is waited for: it may be set meanwhile.
const LOOK: Duration = Duration::from_secs(60);

/// The attempts of this node that are away.
pub(crate) struct Away {
    store: Store,
    node: OnceLock<Weak<node::Inner>>,
    offers: Offers,
    ledger: Ledger,
    /// The nodes to which a task goes by bundle: decided once, when it looks for one.
    by_bundle: Mutex<HashMap<TaskId, Vec<NodeId>>>,
    /// Attempts that are being sent, or whose answers are waited for.
    under_way: Mutex<HashSet<AttemptId>>,
    /// Another node may be there now that could run what is away.
    providers_changed: Arc<Notify>,
    /// The node is to stop, and waits for nothing that is away.
    drained: watch::Sender<bool>,
    /// It was said that there is no room for more.
    full: AtomicBool,
}

impl Away {
    /// What was away when the node was last stopped, of the tasks that are still open.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) fn open(store: Store, is_open: impl Fn(TaskId) -> bool) -> Result<Self, TaskError> {
        Ok(Self {
            offers: Offers::open(store.clone())?,
            ledger: Ledger::open(store.clone(), is_open, wall_ms())?,
            node: OnceLock::new(),
            by_bundle: Mutex::default(),
            under_way: Mutex::default(),
            providers_changed: Arc::default(),
            drained: watch::Sender::new(false),
            full: AtomicBool::new(false),
            store,
        })
    }

    pub(super) fn join(&self, node: Weak<node::Inner>) {
        let _ = self.node.set(node);
    }

    fn node(&self) -> Option<Node> {
        Node::upgrade(self.node.get()?)
    }

    /// Where an attempt at this task is, if one is on its way.
    pub(super) fn is_at(&self, task: TaskId) -> Option<NodeId> {
        Some(self.ledger.sent(task, wall_ms())?.to)
    }

    /// At these nodes the next attempt at the task goes by bundle, at others it does not.
    pub(super) fn decide(&self, task: TaskId, by_bundle: Vec<NodeId>) {
        let mut decided = self.by_bundle.lock();
        match by_bundle.is_empty() {
            true => drop(decided.remove(&task)),
            false => drop(decided.insert(task, by_bundle)),
        }
    }

    /// What was decided.
    pub(super) fn goes_by_bundle(&self, task: TaskId, to: NodeId) -> bool {
        let decided = self.by_bundle.lock();
        decided.get(&task).is_some_and(|nodes| nodes.contains(&to))
    }

    /// Whether an attempt at this task goes by bundle now.
    pub(super) fn is_under_way(&self, task: TaskId) -> bool {
        self.under_way.lock().iter().any(|attempt| attempt.task == task)
    }

    /// Lets go of attempts that are away: what they answer is heard after the next start.
    pub(super) fn drain(&self) {
        self.drained.send_replace(true);
    }

    /// Providers have changed for the better.
    pub(super) fn providers_changed(&self) {
        self.providers_changed.notify_one();
    }

    /// A task has ended, or has another owner: nobody waits for what is still on its way.
    pub(super) fn ended(self: &Arc<Self>, task: TaskId, threads: &Handle) {
        self.by_bundle.lock().remove(&task);
        if !self.ledger.knows(task) {
            return;
        }
        let away = self.clone();
        threads.spawn(async move {
            if let Err(error) = blocking(move || away.ledger.forget(task)).await {
                tracing::warn!(%task, %error, "what was sent for a task that has ended is still there");
            }
        });
    }

    /// Keeps what is known of these tasks and forgets the others: the keepers have said which this node owns.
    pub(super) fn keep_open(self: &Arc<Self>, is_open: impl Fn(TaskId) -> bool, threads: &Handle) {
        for task in self.ledger.tasks() {
            if !is_open(task) {
                self.ended(task, threads);
            }
        }
    }

    /// What an attempt has read is not so any more: another one follows.
    pub(super) async fn conflicted(self: &Arc<Self>, task: TaskId) {
        let conflicted = self.with_ledger(move |ledger| ledger.met(task));
        if let Err(error) = conflicted.await {
            tracing::warn!(%task, %error, "what was answered is still there");
        }
    }

    async fn with_ledger<T: Send + 'static>(
        self: &Arc<Self>,
        step: impl FnOnce(&Ledger) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let away = self.clone();
        blocking(move || step(&away.ledger)).await
    }
}

/// An attempt that goes by bundle, until this is dropped.
struct UnderWay<'a>(&'a Away, AttemptId);

impl<'a> UnderWay<'a> {
    fn new(away: &'a Away, attempt: AttemptId) -> Self {
        away.under_way.lock().insert(attempt);
        Self(away, attempt)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.lock().remove(&self.1);
    }
}

/// Runs an attempt at a node that is out of reach.
pub(super) async fn run(tasks: &Arc<Inner>, to: NodeId, mut call: Call) -> Result<Box<Answer>, Failure> {
    let (away, task) = (&tasks.away, call.attempt.task);
    let _under_way = UnderWay::new(away, call.attempt);
    let (within, started) = (call.within, Instant::now());
    loop {
        // A round trip more has what the ones before have left of the task's time.
        call.within = within.map(|within| within.saturating_sub(started.elapsed()));
        match exchange(tasks, to, &call).await? {
            // It is remembered until the task has ended, or has to run again.
            AwayReply::Done(mut answer) => {
                if let Some(batch) = &mut answer.batch {
                    // It writes to the buckets of the task's home and no others, whatever it says.
                    batch.home = call.home.unwrap_or_else(|| tasks.runtime.id());
                }
                return Ok(answer);
            }
            AwayReply::Failed(error) => {
                if error.kind == ErrorKind::Unavailable
                    && error.field.as_deref() == Some("task")
                    && let Some(name) = away.ledger.there(task)
                {
                    away.offers.runs_no_longer(to, &name);
                }
                away.with_ledger(move |ledger| ledger.recall(task)).await?;
                return Err(error.into());
            }
            AwayReply::Needs(places) => {
                away.with_ledger(move |ledger| ledger.asks(task, places)).await?;
            }
        }
    }
}

/// Sends the attempt, unless it is on its way already, and waits for what comes of it.
async fn exchange(tasks: &Arc<Inner>, to: NodeId, call: &Call) -> Result<AwayReply, Failure> {
    let (away, task) = (&tasks.away, call.attempt.task);
    let excused = |why: &str| Failure::Excused(TaskError::unavailable(why));
    let mut drained = away.drained.subscribe();
    let bundle = match away.ledger.sent(task, wall_ms()).filter(|sent| sent.to == to) {
        Some(sent) => sent.bundle,
        None => {
            away.with_ledger(move |ledger| ledger.recall(task)).await?;
            send(tasks, to, call).await?
        }
    };
    loop {
        match away.ledger.stands(task, &bundle, wall_ms()) {
            Stands::Answered => {
                let answer = away.with_ledger(move |ledger| ledger.answer_to(&bundle)).await?;
                return Ok(AwayReply::read(&answer)?);
            }
            Stands::Gone => return Err(excused("the task was called back before its bundle had left")),
            Stands::Waits(left, _) if left.is_zero() => {
                away.with_ledger(move |ledger| ledger.recall(task)).await?;
                return Err(TaskError::unavailable(format!(
                    "node {} has not answered while the bundle was good",
                    to.short()
                ))
                .into());
            }
            Stands::Waits(left, told) => tokio::select! {
                () = told.notified() => {}
                () = sleep(left.min(LOOK)) => {}
                _ = drained.wait_for(|drained| *drained) => {
                    return Err(excused("the node is about to stop; the answer comes after its next start"));
                }
            },
        }
    }
}

async fn send(tasks: &Arc<Inner>, to: NodeId, call: &Call) -> Result<Digest, Failure> {
    let (away, task) = (&tasks.away, call.attempt.task);
    let node = away.node().ok_or_else(shutting_down)?;
    let there = away.offers.name_at(to, &call.name);
    let there = there.unwrap_or_else(|| call.name.to_string());
    let content = write(&AwayCall {
        call: Call {
            name: there.as_str().into(),
            ..call.clone()
        },
        values: looked_up(tasks, call).await?,
    })?;
    let (label, parcel) = (format!("task {there}"), Parcel::Attempt { name: there.clone() });
    let terms = Terms {
        lifetime: call.within.unwrap_or(USUAL),
        priority: Priority::Normal,
    };
    let key = node.key_of(to)?;
    let sealed = node.seal((to, key), parcel, content, &label, terms).await?;
    let bundle = sealed.bundle.clone();
    let sent = Sent {
        to,
        bundle: bundle.digest,
        expires_ms: bundle.expires_ms,
    };
    let what = (call.name.clone(), there, call.home.is_some());
    let (here, store) = (tasks.clone(), away.store.clone());
    // One step, so that it is not left halfway where this attempt is stopped meanwhile.
    let sends = move |ledger: &Ledger| {
        let keep = || sealed.keep(&store, None).map(drop);
        ledger.send(task, what, sent, keep, || here.is_open(task))
    };
    away.with_ledger(sends)
        .await
        .map_err(|error| match wants_room(&error) {
            true => Failure::Excused(error),
            false => error.into(),
        })?;
    node.waits(&bundle);
    tracing::info!(%task, %to, bundle = %sent.bundle.short(), "a task goes by bundle");
    Ok(sent.bundle)
}

/// What the buckets of the task's home have now under the keys that it has asked for.
async fn looked_up(tasks: &Inner, call: &Call) -> Result<Vec<AwayValue>, Failure> {
    let places = tasks.away.ledger.places(call.attempt.task);
    let (mut values, mut bytes) = (Vec::new(), 0);
    if places.is_empty() {
        return Ok(values);
    }
    let elsewhere = call.home.is_some_and(|home| home != tasks.runtime.id());
    let origin = origin(tasks, call.home, head_of(call, call.name.to_string())).await?;
    for (bucket, key) in places {
        let found = origin.clone().read(bucket.clone(), key.clone()).await;
        let (version, value) = match found {
            // The task waits for its home.
            Err(error) if elsewhere && error.kind == ErrorKind::Unavailable => {
                return Err(Failure::Excused(error));
            }
            found => found?,
        };
        bytes += value.as_ref().map_or(0, Bytes::len);
        if bytes > Needs::MOST_BYTES {
            return Err(TaskError::limit(format!(
                "the task reads more than {} bytes of buckets, out of reach of them",
                Needs::MOST_BYTES
            ))
            .with_field("buckets")
            .into());
        }
        values.push(AwayValue {
            bucket,
            key,
            version,
            value,
        });
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
