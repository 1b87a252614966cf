//! Attempts at nodes that are out of reach now and have a planned contact: what shall run goes as a bundle, and so does what came
//! of it.
//!
//! For the machine of tasks such an attempt is like any other, only that it takes its time. What was sent is on the disk, so that
//! a node that is started again waits for the answer of what is on its way and sends nothing twice. An attempt that reads buckets of
//! its home asks for what it misses; it runs again with that, and what it writes is applied at the home in one transaction if what
//! it has read is unchanged, as with every other attempt.

mod offers;
mod serve;
mod wire;

pub(crate) use offers::listen;
pub(super) use offers::reached_later;
pub(super) use serve::MOST_AT_ONCE;
pub(crate) use wire::Value;

use self::offers::Offers;
use self::wire::{MOST_NEEDED, Order, Reply};
use super::attempt::{may_write, read, write};
use super::bundles::{Terms, known};
use super::tasks::Inner;
use crate::contacts;
use crate::node::{self, Node};
use crate::services::{Origin, blocking, store_error};
use bytes::Bytes;
use karman_mesh::Parcel;
use karman_mesh::membership::{Member, Right};
use karman_space::Priority;
use karman_store::{BundleState, Store};
use karman_tasks::{Answer, Call};
use karman_types::{Digest, ErrorKind, NodeId, TaskError, TaskId, format_bytes};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

const RECORD: &str = "away";
/// Tasks that are away at once.
const MOST_AWAY: usize = 1_000;
/// How often one attempt is sent again with what it has missed.
const MOST_ROUNDS: usize = 8;
/// The most bytes of keys and values that go along with an attempt: whoever runs it says which.
const MOST_CARRIED: usize = 16 << 20;
/// How long an attempt without a deadline may be away.
const USUAL: Duration = Duration::from_secs(7 * 86_400);

/// The attempts of this node that are away.
pub(crate) struct Away {
    store: Store,
    node: OnceLock<Weak<node::Inner>>,
    offers: Offers,
    sent: Mutex<BTreeMap<TaskId, Sent>>,
    /// Counts answers that have come.
    heard: watch::Sender<u64>,
    /// The node is to stop, and waits for nothing that is away.
    drained: watch::Sender<bool>,
}

/// An attempt that is on its way.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Sent {
    to: NodeId,
    bundle: Digest,
    expires_ms: u64,
}

impl Away {
    /// What was away when the node was last stopped.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(super) fn open(store: Store) -> Result<Self, TaskError> {
        let sent: Option<Vec<(TaskId, Sent)>> = store.mesh().get(RECORD).map_err(store_error)?;
        let now = now_ms();
        let still = sent.unwrap_or_default().into_iter();
        let still = still.filter(|(_, sent)| sent.expires_ms > now);
        Ok(Self {
            offers: Offers::open(store.clone())?,
            sent: Mutex::new(still.collect()),
            node: OnceLock::new(),
            heard: watch::Sender::new(0),
            drained: watch::Sender::new(false),
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
        let sent = self.sent.lock().get(&task).copied();
        sent.filter(|sent| sent.expires_ms > now_ms()).map(|sent| sent.to)
    }

    /// Lets go of attempts that are away: what they answer is heard after the next start.
    pub(super) fn drain(&self) {
        self.drained.send_replace(true);
    }

    /// A task has ended: nobody waits for what is still on its way.
    pub(super) fn ended(self: &Arc<Self>, task: TaskId, threads: &Handle) {
        if !self.sent.lock().contains_key(&task) {
            return;
        }
        let away = self.clone();
        threads.spawn(async move {
            let forgotten = blocking(move || {
                let Some(sent) = away.forget(task)? else {
                    return Ok(());
                };
                let bundle = away.store.bundles().get(&sent.bundle).map_err(store_error)?;
                match bundle.is_some_and(|bundle| bundle.state == BundleState::Waiting) {
                    true => (away.store.bundles())
                        .set(&sent.bundle, BundleState::Expired)
                        .map_err(store_error),
                    false => Ok(()),
                }
            });
            if let Err(error) = forgotten.await {
                tracing::warn!(%task, %error, "what was sent for a task that has ended is still there");
            }
        });
    }

    /// Forgets what was sent for a task, and what was answered.
    fn forget(&self, task: TaskId) -> Result<Option<Sent>, TaskError> {
        let mut sent = self.sent.lock();
        let Some(gone) = sent.remove(&task) else {
            return Ok(None);
        };
        self.keep(&sent)?;
        let name = answer_to(&gone.bundle);
        self.store.mesh().remove(&[&name]).map_err(store_error)?;
        Ok(Some(gone))
    }

    fn keep(&self, sent: &BTreeMap<TaskId, Sent>) -> Result<(), TaskError> {
        let all: Vec<(&TaskId, &Sent)> = sent.iter().collect();
        self.store.mesh().put(RECORD, &all).map_err(store_error)
    }

    fn remember(&self, task: TaskId, new: Sent) -> Result<(), TaskError> {
        let mut sent = self.sent.lock();
        sent.insert(task, new);
        self.keep(&sent)
    }

    /// Whether one more may go away. Where none may it waits until others have come back.
    fn has_room(&self) -> bool {
        self.sent.lock().len() < MOST_AWAY
    }

    /// What has come back in answer to this bundle.
    async fn answer(&self, bundle: Digest) -> Result<Option<Reply>, TaskError> {
        let store = self.store.clone();
        let found = blocking(move || {
            let found: Option<ByteBuf> = store.mesh().get(&answer_to(&bundle)).map_err(store_error)?;
            found.map(|bytes| read("answer", &bytes)).transpose()
        });
        found.await
    }
}

fn answer_to(bundle: &Digest) -> String {
    format!("away/{bundle}")
}

fn now_ms() -> u64 {
    (contacts::now().unix_micros() / 1000).max(0) as u64
}

/// Whether an attempt there goes by bundle: one does already, or the node is out of reach and a contact is planned.
pub(super) fn goes_by_bundle(tasks: &Inner, provider: NodeId, task: TaskId, name: &str) -> bool {
    tasks.away.is_at(task) == Some(provider) || reached_later(tasks, name).contains(&provider)
}

/// Runs an attempt at a node that is out of reach.
pub(super) async fn run(tasks: &Inner, to: NodeId, call: Call) -> Result<Box<Answer>, TaskError> {
    let mut values: Vec<Value> = Vec::new();
    for _ in 0..MOST_ROUNDS {
        let reply = exchange(tasks, to, &call, values.clone()).await?;
        let ends = matches!(&reply, Reply::Done(answer) if answer.batch.is_none());
        if !ends {
            // Whatever comes next is another attempt. What ends the task is remembered until the task has ended.
            let (away, task) = (tasks.away.clone(), call.attempt.task);
            blocking(move || away.forget(task)).await?;
        }
        match reply {
            Reply::Done(mut answer) => {
                if let Some(batch) = &mut answer.batch {
                    // It writes to the buckets of the task's home and no others, whatever it says.
                    batch.home = call.home.unwrap_or_else(|| tasks.runtime.id());
                }
                return Ok(answer);
            }
            Reply::Failed(error) => {
                if error.kind == ErrorKind::Unavailable {
                    tasks.away.offers.runs_no_longer(to, &call.name);
                }
                return Err(error);
            }
            Reply::Needs(places) => look_up(tasks, &call, places, &mut values).await?,
        }
    }
    Err(TaskError::limit(format!(
        "the task read other keys of buckets at each of {MOST_ROUNDS} tries at node {}, out of reach of them",
        to.short()
    ))
    .with_field("buckets"))
}

/// Adds what the buckets here have under these keys to what goes along.
async fn look_up(
    tasks: &Inner,
    call: &Call,
    places: Vec<(Arc<str>, Arc<str>)>,
    carried: &mut Vec<Value>,
) -> Result<(), TaskError> {
    if call.home.is_some_and(|home| home != tasks.runtime.id()) {
        return Err(TaskError::invalid(
            "the task reads buckets of a node that neither its owner has nor the one where it ran reaches",
        )
        .with_field("buckets"));
    }
    for (bucket, key) in places {
        // What is asked for twice is neither read nor sent twice.
        if carried
            .iter()
            .any(|known| known.bucket == bucket && known.key == key)
        {
            continue;
        }
        let home = Origin::Here(tasks.runtime.home().clone());
        let (version, value) = home.read(bucket.clone(), key.clone()).await?;
        let value = Value {
            bucket,
            key,
            version,
            value,
        };
        carry(carried, value)?;
    }
    Ok(())
}

/// Takes a value along, if there is room for it.
fn carry(carried: &mut Vec<Value>, value: Value) -> Result<(), TaskError> {
    let bytes = |of: &Value| of.bucket.len() + of.key.len() + of.value.as_ref().map_or(0, Bytes::len);
    let all = carried.iter().map(bytes).sum::<usize>() + bytes(&value);
    if all > MOST_CARRIED {
        return Err(TaskError::limit(format!(
            "the task reads over {} of buckets; no more goes along with it to a node out of reach of them",
            format_bytes(MOST_CARRIED as u64)
        ))
        .with_field("buckets"));
    }
    carried.push(value);
    Ok(())
}

/// Sends the attempt, unless it is on its way already, and waits for what comes of it.
async fn exchange(tasks: &Inner, to: NodeId, call: &Call, values: Vec<Value>) -> Result<Reply, TaskError> {
    let away = &tasks.away;
    let (mut heard, mut drained) = (away.heard.subscribe(), away.drained.subscribe());
    let sent = away.sent.lock().get(&call.attempt.task).copied();
    let bundle = match sent.filter(|sent| sent.to == to && sent.expires_ms > now_ms()) {
        Some(sent) => sent.bundle,
        None => send(tasks, to, call, values).await?,
    };
    loop {
        heard.borrow_and_update();
        if let Some(reply) = away.answer(bundle).await? {
            return Ok(reply);
        }
        let gone =
            || TaskError::unavailable("the node is about to stop; the answer comes after its next start");
        tokio::select! {
            changed = heard.changed() => changed.map_err(|_| gone())?,
            _ = drained.wait_for(|drained| *drained) => return Err(gone()),
        }
    }
}

async fn send(tasks: &Inner, to: NodeId, call: &Call, values: Vec<Value>) -> Result<Digest, TaskError> {
    let away = &tasks.away;
    let gone = || TaskError::unavailable("the node is shutting down");
    let node = away.node().ok_or_else(gone)?;
    let name = away.offers.name_at(to, &call.name);
    let name = name.unwrap_or_else(|| call.name.to_string());
    let order = Order {
        call: Call {
            name: name.as_str().into(),
            ..call.clone()
        },
        values,
    };
    let (label, parcel) = (format!("task {name}"), Parcel::Attempt { name });
    let terms = Terms {
        lifetime: call.within.unwrap_or(USUAL),
        priority: Priority::Normal,
    };
    let key = node.key_of(to)?;
    // Room comes back: the task is tried again.
    let no_room = |error: TaskError| match error.kind {
        ErrorKind::Limit => TaskError::unavailable(format!("no room for its bundle: {}", error.message)),
        _ => error,
    };
    let bundle = node
        .send((to, key), parcel, write(&order)?, &label, terms)
        .await
        .map_err(no_room)?;
    let sent = Sent {
        to,
        bundle: bundle.digest,
        expires_ms: bundle.expires_ms,
    };
    let (remembers, task) = (away.clone(), call.attempt.task);
    blocking(move || remembers.remember(task, sent)).await?;
    tracing::info!(%task, %to, bundle = %bundle.digest.short(), "a task goes by bundle");
    Ok(bundle.digest)
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
    let waits = tasks.away.sent.lock().values().any(|sent| sent.bundle == bundle);
    let reply = judged(sender, read("answer", content)?);
    let (store, bytes) = (tasks.away.store.clone(), ByteBuf::from(write(&reply)?.to_vec()));
    blocking(move || {
        if waits {
            store
                .mesh()
                .put(&answer_to(&bundle), &bytes)
                .map_err(store_error)?;
        }
        store
            .bundles()
            .set(&bundle, BundleState::Delivered)
            .map_err(store_error)
    })
    .await?;
    match waits {
        true => tasks.away.heard.send_modify(|number| *number += 1),
        false => tracing::info!(bundle = %bundle.short(), "an answer came that nobody waits for any more"),
    }
    Ok(())
}

/// What the node that ran the attempt may say and ask for.
fn judged(sender: &Member, reply: Reply) -> Reply {
    let refused = match &reply {
        Reply::Done(answer) => answer
            .batch
            .as_ref()
            .and_then(|batch| may_write(Some(sender), batch).err()),
        Reply::Needs(places) if places.len() > MOST_NEEDED => Some(TaskError::limit(format!(
            "it asks for {} keys of buckets; {MOST_NEEDED} are the most",
            places.len()
        ))),
        Reply::Needs(places) => {
            let may = |bucket: &str| {
                let right = bucket.parse().map(Right::BucketRead);
                right.is_ok_and(|right| sender.rights.allows(&right))
            };
            places.iter().find(|(bucket, _)| !may(bucket)).map(|(bucket, _)| {
                TaskError::denied(format!(
                    "the node that ran the task has no right `bucket-read:{bucket}`"
                ))
                .with_hint("`karman mesh invite --right …` gives it with the next membership")
            })
        }
        Reply::Failed(_) => None,
    };
    refused.map_or(reply, Reply::Failed)
}

/// What is written of an order or a reply.
fn readable(bytes: &Bytes) -> Result<Order, TaskError> {
    read("attempt", bytes)
}

#[cfg(test)]
mod tests;
