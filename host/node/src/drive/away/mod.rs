//! Attempts at nodes that are out of reach now and have a planned contact: what shall run goes as a bundle, and so does what came
//! of it.
//!
//! For the machine of tasks such an attempt is like any other, only that it takes its time. What was sent is written down before it
//! leaves (`ledger`), and stays known until the task has ended, so that a node that is started again waits for the answer of what is
//! on its way. An attempt that reads buckets of its home asks for what it misses; it runs again with that, and what it writes is
//! applied at the home in one transaction if what it has read is unchanged, as with every other attempt. As long as a bundle has not
//! left, another node that comes into reach takes the task (`others`).

mod ledger;
mod offers;
mod others;
mod serve;

pub(crate) use offers::listen;
pub(super) use offers::reached_later;
pub(super) use others::look_for_others;
pub(super) use serve::{Come, run_away};

use self::ledger::{Ledger, Sent, Stands};
use self::offers::Offers;
use super::attempt::{Failure, head_of, may_write, origin, write};
use super::bundles::{Terms, known};
use super::parcels::wants_room;
use super::tasks::Inner;
use crate::contacts;
use crate::node::{self, Node};
use crate::services::{blocking, store_error};
use bytes::Bytes;
use karman_mesh::Parcel;
use karman_mesh::membership::{Member, Right};
use karman_space::Priority;
use karman_store::{BundleState, Store};
use karman_tasks::{Answer, AwayCall, AwayReply, AwayValue, Call, Needs, Place};
use karman_types::{Digest, ErrorKind, NodeId, TaskError, TaskId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
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
            ledger: Ledger::open(store.clone(), is_open, now_ms())?,
            node: OnceLock::new(),
            by_bundle: Mutex::default(),
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
        Some(self.ledger.sent(task, now_ms())?.to)
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

fn now_ms() -> u64 {
    (contacts::now().unix_micros() / 1000).max(0) as u64
}

/// Runs an attempt at a node that is out of reach.
pub(super) async fn run(tasks: &Inner, to: NodeId, call: Call) -> Result<Box<Answer>, Failure> {
    let (away, task) = (&tasks.away, call.attempt.task);
    loop {
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
async fn exchange(tasks: &Inner, to: NodeId, call: &Call) -> Result<AwayReply, Failure> {
    let (away, task) = (&tasks.away, call.attempt.task);
    let excused = |why: &str| Failure::Excused(TaskError::unavailable(why));
    let mut drained = away.drained.subscribe();
    let bundle = match away.ledger.sent(task, now_ms()).filter(|sent| sent.to == to) {
        Some(sent) => sent.bundle,
        None => {
            away.with_ledger(move |ledger| ledger.recall(task)).await?;
            send(tasks, to, call).await?
        }
    };
    loop {
        match away.ledger.stands(task, &bundle, now_ms()) {
            Stands::Answered => {
                let answer = away.with_ledger(move |ledger| ledger.answer_for(task)).await?;
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

async fn send(tasks: &Inner, to: NodeId, call: &Call) -> Result<Digest, Failure> {
    let (away, task) = (&tasks.away, call.attempt.task);
    let gone = || TaskError::unavailable("the node is shutting down");
    let node = away.node().ok_or_else(gone)?;
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
    let sent = Sent {
        to,
        bundle: sealed.bundle.digest,
        expires_ms: sealed.bundle.expires_ms,
    };
    let what = (call.name.clone(), there, call.home.is_some());
    away.with_ledger(move |ledger| ledger.sends(task, what, sent))
        .await?;
    if let Err(error) = node.keep(sealed, None).await {
        away.with_ledger(move |ledger| ledger.recall(task)).await?;
        return Err(match wants_room(&error) {
            true => Failure::Excused(error),
            false => error.into(),
        });
    }
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

/// Takes what came of an attempt, by the word of the node where it ran.
///
/// # Errors
/// `invalid` where the bundle was not for that node.
pub(super) async fn answered(
    tasks: &Inner,
    sender: &Member,
    bundle: Digest,
    content: &[u8],
) -> Result<(), TaskError> {
    let ours = known(&tasks.away.store, bundle).await?;
    let here = tasks.runtime.id();
    if !ours.is_some_and(|ours| ours.source == here && ours.destination == sender.node) {
        return Err(TaskError::invalid(
            "it answers no bundle of this node to its sender",
        ));
    }
    // One that cannot be understood is no answer, and another attempt may bring one.
    let reply = AwayReply::read(content)
        .unwrap_or_else(|error| AwayReply::Failed(TaskError::internal(error.to_string())));
    if !take(tasks, bundle, &judged(sender, reply), BundleState::Delivered).await? {
        tracing::info!(bundle = %bundle.short(), "an answer came that nobody waits for any more");
    }
    Ok(())
}

/// What a bundle of this node asks for is refused where it was for. If that was an attempt, it has failed.
pub(super) async fn refused(tasks: &Inner, bundle: Digest, error: TaskError) -> Result<(), TaskError> {
    let why = error.to_string();
    let refused = BundleState::Refused { why };
    take(tasks, bundle, &AwayReply::Failed(error), refused)
        .await
        .map(drop)
}

/// Writes down what has become of a bundle of this node; whether a task waited for it.
async fn take(
    tasks: &Inner,
    bundle: Digest,
    reply: &AwayReply,
    state: BundleState,
) -> Result<bool, TaskError> {
    let (store, bytes) = (tasks.away.store.clone(), write(reply)?);
    let write_down = move |ledger: &Ledger| {
        let taken = ledger.answer(&bundle, &bytes)?;
        store.bundles().set(&bundle, state).map_err(store_error)?;
        Ok(taken)
    };
    tasks.away.with_ledger(write_down).await
}

/// What the node that ran the attempt may say and ask for.
fn judged(sender: &Member, reply: AwayReply) -> AwayReply {
    let judged = match reply {
        AwayReply::Done(answer) => {
            let batch = answer.batch.as_ref();
            let may = batch.map_or(Ok(()), |batch| may_write(Some(sender), batch));
            may.map(|()| AwayReply::Done(answer))
        }
        AwayReply::Needs(places) => may_read(sender, places),
        AwayReply::Failed(error) => Err(error),
    };
    judged.unwrap_or_else(AwayReply::Failed)
}

fn may_read(sender: &Member, places: Vec<Place>) -> Result<AwayReply, TaskError> {
    // Each key once.
    let mut needs = Needs::default();
    needs.add(places)?;
    for (bucket, _) in needs.places() {
        let right = bucket.parse().map(Right::BucketRead);
        if !right.is_ok_and(|right| sender.rights.allows(&right)) {
            return Err(TaskError::denied(format!(
                "the node that ran the task has no right `bucket-read:{bucket}`"
            ))
            .with_hint("`karman mesh invite --right …` gives it with the next membership"));
        }
    }
    Ok(AwayReply::Needs(needs.places().iter().cloned().collect()))
}

#[cfg(test)]
mod tests;
