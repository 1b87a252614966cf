//! The buckets of one attempt at an accepted task. What it reads is noted with its version, what it writes waits until it has
//! answered; both go to the buckets' home together, which applies them once.

use super::is_of_disk;
use crate::home::Home;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::keyvalue::{Buckets, KeyPage};
use karman_mesh::membership::{Member, Right};
use karman_mesh::{CallHead, Mesh, PeerId};
use karman_store::{Store, StoreLimits};
use karman_tasks::{AwayValue, Batch, Needs, Operation, Place, Read};
use karman_types::{ErrorKind, NodeId, TaskError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// What one attempt may write: it is held in memory and travels in one piece.
const MOST_BYTES: usize = 16 << 20;
/// What one attempt may touch.
const MOST_KEYS: usize = 10_000;
/// Keys in one page of a listing.
const PAGE: usize = 256;

/// A home that does not answer for this long is away.
const SILENCE: Duration = Duration::from_secs(5);

fn silent() -> TaskError {
    TaskError::unavailable("the node that has the buckets does not answer")
}

/// Where the buckets of an attempt are.
#[derive(Clone)]
pub(crate) enum Origin {
    /// On this node.
    Here(Home),
    /// On another node: the one that owns the task, or the one that accepted it.
    There {
        mesh: Mesh,
        /// Nothing where it is not known how to reach it.
        home: Option<PeerId>,
        /// What the attempt came with: each read is asked in its name.
        head: Box<CallHead>,
    },
    /// Out of reach: what came along is all there is.
    Carried(Arc<Carried>),
}

/// What an attempt brought along of buckets that are out of reach from where it runs, and what it missed.
pub(crate) struct Carried {
    values: BTreeMap<Place, (u64, Option<Bytes>)>,
    missing: Mutex<BTreeSet<Place>>,
}

impl Carried {
    pub(crate) fn new(values: Vec<AwayValue>) -> Self {
        let values = values.into_iter();
        Self {
            values: values
                .map(|value| ((value.bucket, value.key), (value.version, value.value)))
                .collect(),
            missing: Mutex::default(),
        }
    }

    /// What it has read that was not there.
    pub(crate) fn missing(&self) -> Vec<Place> {
        self.missing.lock().iter().cloned().collect()
    }

    fn read(&self, place: Place) -> Result<(u64, Option<Bytes>), TaskError> {
        if let Some(value) = self.values.get(&place) {
            return Ok(value.clone());
        }
        let mut missing = self.missing.lock();
        if missing.len() >= Needs::MOST {
            return Err(TaskError::limit(format!(
                "a task reads at most {} keys of buckets that are out of reach",
                Needs::MOST
            ))
            .with_field("buckets"));
        }
        missing.insert(place);
        Err(TaskError::unavailable(
            "the node that has the buckets is out of reach",
        ))
    }
}

/// The buckets of one attempt.
pub(crate) struct Effects {
    origin: Origin,
    /// Who asked for the attempt, where the buckets are not its own: it learns only what it may read itself.
    asker: Option<Arc<Member>>,
    noted: Arc<Mutex<Noted>>,
}

#[derive(Default)]
struct Noted {
    reads: BTreeMap<Place, u64>,
    /// Nothing in the place of a value deletes it.
    writes: BTreeMap<Place, Option<Bytes>>,
    bytes: usize,
    /// Questions to the home that are not answered yet.
    asked: usize,
    /// Why the home could not be asked.
    away: Option<TaskError>,
}

impl Effects {
    pub(crate) fn new(origin: Origin, asker: Option<Arc<Member>>) -> Arc<Self> {
        Arc::new(Self {
            origin,
            asker,
            noted: Arc::default(),
        })
    }

    /// Why the home could not be asked, if it could not: whatever the attempt made of that is worth nothing. The same where the
    /// attempt ended, at its limit of time, while it waited for an answer.
    pub(crate) fn away(&self) -> Option<TaskError> {
        let mut noted = self.noted.lock();
        let waits = noted.asked > 0;
        noted.away.take().or_else(|| waits.then(silent))
    }

    fn may_read(&self, bucket: &str) -> Result<(), TaskError> {
        match &self.asker {
            Some(asker) => asker.must(Right::BucketRead, bucket),
            None => Ok(()),
        }
    }

    /// What the attempt would write, if anything, for the buckets of this home.
    pub(crate) fn batch(&self, home: NodeId) -> Option<Batch> {
        let Noted { reads, writes, .. } = std::mem::take(&mut *self.noted.lock());
        if writes.is_empty() {
            return None;
        }
        let reads = reads
            .into_iter()
            .map(|((bucket, key), version)| Read { bucket, key, version });
        let operations = writes.into_iter().map(|((bucket, key), value)| match value {
            Some(value) => Operation::Set { bucket, key, value },
            None => Operation::Delete { bucket, key },
        });
        Some(Batch {
            home,
            reads: reads.collect(),
            operations: operations.collect(),
        })
    }
}

impl Noted {
    /// A question to the home that has no answer.
    fn missed(&mut self, error: &TaskError) {
        if error.kind == ErrorKind::Unavailable {
            self.away = Some(error.clone());
        }
    }

    fn write(&mut self, place: Place, value: Option<Bytes>) -> Result<(), TaskError> {
        let size = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        let before = self.writes.get(&place).map_or(0, size);
        let bytes = self.bytes + place.1.len() + size(&value) - before;
        if bytes > MOST_BYTES || self.writes.len() >= MOST_KEYS {
            return Err(TaskError::limit(format!(
                "an accepted task writes at most {MOST_KEYS} keys and {MOST_BYTES} bytes to buckets"
            ))
            .with_field("buckets"));
        }
        self.bytes = bytes;
        self.writes.insert(place, value);
        Ok(())
    }

    /// The first version counts: had the value changed since, the attempt would have seen two worlds.
    fn read(&mut self, place: Place, version: u64) -> Result<(), TaskError> {
        if self.reads.len() >= MOST_KEYS {
            return Err(TaskError::limit(format!(
                "an accepted task reads at most {MOST_KEYS} keys of buckets"
            ))
            .with_field("buckets"));
        }
        self.reads.entry(place).or_insert(version);
        Ok(())
    }
}

impl Origin {
    /// Whether the bucket would take this at all. What one on another node takes, only that node can tell.
    fn check(&self, bucket: &str, key: &str, value: &[u8]) -> Result<(), TaskError> {
        let Self::Here(home) = self else { return Ok(()) };
        let checked = home.store()?.tasks().check(bucket, key, value);
        checked.map_err(TaskError::from)
    }

    /// What one batch may have. How much that is on another node, only that node can tell.
    fn limits(&self) -> Result<StoreLimits, TaskError> {
        match self {
            Self::Here(home) => Ok(home.store()?.limits().clone()),
            Self::There { .. } | Self::Carried(_) => Ok(StoreLimits::default()),
        }
    }

    /// Value and version of a key; version 0 stands for none.
    pub(crate) async fn read(
        self,
        bucket: Arc<str>,
        key: Arc<str>,
    ) -> Result<(u64, Option<Bytes>), TaskError> {
        match self {
            Self::Here(home) => {
                let get = move |store: &Store| store.bucket(&bucket)?.get(&key);
                let found = home.with(get).await?;
                Ok(found.map_or((0, None), |found| (found.version, Some(found.value))))
            }
            Self::Carried(carried) => carried.read((bucket, key)),
            Self::There { mesh, home, head } => {
                let away = || TaskError::unavailable("the node that has the buckets is not in reach");
                let home = home.ok_or_else(away)?;
                let head = CallHead {
                    ask: karman_mesh::Ask::ReadBucket,
                    name: bucket.to_string(),
                    ..*head
                };
                let asked = mesh.call(home, head, Bytes::copy_from_slice(key.as_bytes()));
                let (found, _) = timeout(SILENCE, asked).await.unwrap_or_else(|_| Err(silent()))?;
                let version = found
                    .metadata
                    .first()
                    .and_then(|(_, version)| version.parse().ok());
                match version {
                    Some(0) => Ok((0, None)),
                    Some(version) => Ok((version, Some(found.body))),
                    None => Err(TaskError::internal("the answer to a read has no version")),
                }
            }
        }
    }

    async fn keys(self, bucket: Arc<str>, cursor: Option<u64>) -> Result<KeyPage, TaskError> {
        let Self::Here(home) = self else {
            return Err(TaskError::new(
                ErrorKind::Unavailable,
                format!("bucket `{bucket}` is on another node: its keys cannot be listed from here"),
            ));
        };
        let page = home
            .with(move |store| store.bucket(&bucket)?.keys(cursor, PAGE))
            .await?;
        Ok((page.keys, page.next))
    }
}

/// What the attempt sees under a key: its own last write, else what the home has.
async fn look(
    origin: Origin,
    noted: Arc<Mutex<Noted>>,
    bucket: Arc<str>,
    key: Arc<str>,
) -> Result<Option<Bytes>, TaskError> {
    let place = (bucket.clone(), key.clone());
    if let Some(own) = noted.lock().writes.get(&place) {
        return Ok(own.clone());
    }
    noted.lock().asked += 1;
    let read = origin.read(bucket, key).await;
    let mut noted = noted.lock();
    noted.asked -= 1;
    let (version, value) = read.inspect_err(|error| noted.missed(error))?;
    noted.read(place, version)?;
    Ok(value)
}

impl Buckets for Effects {
    fn get(&self, bucket: Arc<str>, key: String) -> BoxFuture<'static, Result<Option<Bytes>, TaskError>> {
        let (origin, noted) = (self.origin.clone(), self.noted.clone());
        let may = self.may_read(&bucket);
        async move {
            may?;
            look(origin, noted, bucket, key.into()).await
        }
        .boxed()
    }

    fn get_many(
        &self,
        bucket: Arc<str>,
        keys: Vec<String>,
    ) -> BoxFuture<'static, Result<Vec<Option<Bytes>>, TaskError>> {
        let (origin, noted) = (self.origin.clone(), self.noted.clone());
        let may = self.may_read(&bucket);
        async move {
            may?;
            let limits = origin.limits()?;
            limits.check_batch(keys.len())?;
            let (mut values, mut bytes) = (Vec::with_capacity(keys.len()), 0);
            for key in keys {
                let value = look(origin.clone(), noted.clone(), bucket.clone(), key.into()).await?;
                bytes += value.as_ref().map_or(0, Bytes::len);
                limits.check_batch_bytes(bytes)?;
                values.push(value);
            }
            Ok(values)
        }
        .boxed()
    }

    fn set(
        &self,
        bucket: Arc<str>,
        pairs: Vec<(String, Bytes)>,
    ) -> BoxFuture<'static, Result<(), TaskError>> {
        let (origin, noted) = (self.origin.clone(), self.noted.clone());
        async move {
            let mut checked = pairs.iter();
            checked.try_for_each(|(key, value)| origin.check(&bucket, key, value))?;
            let mut noted = noted.lock();
            pairs
                .into_iter()
                .try_for_each(|(key, value)| noted.write((bucket.clone(), key.into()), Some(value)))
        }
        .boxed()
    }

    fn delete(&self, bucket: Arc<str>, keys: Vec<String>) -> BoxFuture<'static, Result<(), TaskError>> {
        let (origin, noted) = (self.origin.clone(), self.noted.clone());
        async move {
            keys.iter().try_for_each(|key| origin.check(&bucket, key, &[]))?;
            let mut noted = noted.lock();
            keys.into_iter()
                .try_for_each(|key| noted.write((bucket.clone(), key.into()), None))
        }
        .boxed()
    }

    /// Listings show the attempt's own writes, on their last page. They are not checked again when the batch is applied.
    fn keys(&self, bucket: Arc<str>, cursor: Option<u64>) -> BoxFuture<'static, Result<KeyPage, TaskError>> {
        let (origin, noted) = (self.origin.clone(), self.noted.clone());
        let may = self.may_read(&bucket);
        async move {
            may?;
            let listed = origin.keys(bucket.clone(), cursor).await;
            let mut noted = noted.lock();
            // That those of another node cannot be listed is no want of an answer.
            let unread = listed.as_ref().err().filter(|error| is_of_disk(error));
            if let Some(error) = unread {
                noted.missed(error);
            }
            let (mut keys, next) = listed?;
            let own = |key: &str| noted.writes.get(&(bucket.clone(), key.into()));
            keys.retain(|key| own(key).is_none());
            if next.is_none() {
                let written = noted.writes.iter();
                let here = written.filter(|((of, _), value)| *of == bucket && value.is_some());
                keys.extend(here.map(|((_, key), _)| key.to_string()));
            }
            Ok((keys, next))
        }
        .boxed()
    }

    fn increment(
        &self,
        bucket: Arc<str>,
        key: String,
        delta: u64,
    ) -> BoxFuture<'static, Result<u64, TaskError>> {
        let (origin, noted) = (self.origin.clone(), self.noted.clone());
        let may = self.may_read(&bucket);
        async move {
            may?;
            let key: Arc<str> = key.into();
            let before = look(origin, noted.clone(), bucket.clone(), key.clone()).await?;
            let sum = karman_store::incremented(&bucket, &key, before.as_deref(), delta)?;
            noted.lock().write((bucket, key), Some(sum.to_string().into()))?;
            Ok(sum)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::StoreBuckets;

    #[tokio::test]
    async fn what_a_bucket_never_takes_is_refused_as_in_a_direct_call() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        let direct = StoreBuckets(home.clone());
        let effects = Effects::new(Origin::Here(home), None);
        for (bucket, key, value) in [
            ("road", "k".repeat(2 << 10), 0),
            ("road", "k".into(), 17 << 20),
            ("a road", "k".into(), 0),
        ] {
            let pairs = vec![(key, Bytes::from(vec![0; value]))];
            let expected = direct.set(bucket.into(), pairs.clone()).await.unwrap_err();
            assert_eq!(effects.set(bucket.into(), pairs).await, Err(expected));
        }
        assert!(effects.batch(NodeId::of_key(b"home")).is_none());
    }
}
