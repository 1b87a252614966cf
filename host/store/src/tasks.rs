use crate::edit::Edit;
use crate::effects::Effects;
use crate::progress::Progress;
use crate::tables::{PROGRESS, TASKS, VALUES, list, put};
use crate::{Store, StoreError};
use bytes::Bytes;
use karman_tasks::{
    Commit, CommitError, Judgement, LimitReached, Operation, Saved, TaskRecord, UnixMs, Verdict, Write, judge,
};
use karman_types::TaskId;
use redb::{ReadableTable, WriteTransaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The accepted tasks of this node, and which effects of tasks its buckets have seen.
#[derive(Clone, Copy, Debug)]
pub struct Tasks<'a>(pub(crate) &'a Store);

impl Tasks<'_> {
    /// Carries these writes out in their order, in one fsynced transaction.
    ///
    /// # Errors
    /// What the disk refused; nothing is written then.
    pub fn write(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            let mut table = txn.open_table(TASKS)?;
            let mut forgotten = Vec::new();
            for write in writes {
                match write {
                    Write::Put(record) => {
                        put(&mut table, TASKS, &record.task.to_string(), record)?;
                        if matches!(record.state, Saved::Forgotten { .. } | Saved::Moved { .. }) {
                            forgotten.push(record.task);
                        }
                    }
                    Write::Delete(task) => {
                        table.remove(task.to_string().as_str())?;
                        forgotten.push(*task);
                    }
                }
            }
            Progress::forget(txn, &forgotten)
        })
    }

    /// Every record, the oldest task first.
    ///
    /// # Errors
    /// [`StoreError::Record`] when one does not read, else what the disk refused.
    pub fn records(&self) -> Result<Vec<TaskRecord>, StoreError> {
        let table = self.0.tables().read()?.open_table(TASKS)?;
        Ok(list(&table, TASKS)?
            .into_iter()
            .map(|(_, record)| record)
            .collect())
    }

    /// Writes down, fsynced, how far a task has got, until its result is forgotten. Once it has ended, no longer than until others need
    /// the room. What is kept for tasks that fail is for those that say so.
    ///
    /// # Errors
    /// What the disk refused. That there is no room for it, see [`StoreLimits`](crate::StoreLimits), is the inner error: then what was
    /// written down before stays.
    pub fn set_progress(
        &self,
        task: TaskId,
        progress: &[u8],
        fails: bool,
    ) -> Result<Result<(), LimitReached>, StoreError> {
        let most = self.0.limits().progress_bytes;
        self.0.tables().write(|txn| {
            let tasks = txn.open_table(TASKS)?;
            Progress::open(txn)?.set(&task.to_string(), progress, fails, (most, &tasks))
        })
    }

    /// How far a task has got, as it was last written down.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn progress(&self, task: TaskId) -> Result<Option<Bytes>, StoreError> {
        let table = self.0.tables().read()?.open_table(PROGRESS)?;
        let progress = table.get(task.to_string().as_str())?;
        Ok(progress.map(|bytes| Bytes::copy_from_slice(bytes.value())))
    }

    /// Whether a bucket takes this at all, however much room it has. A deletion has no value.
    ///
    /// # Errors
    /// [`StoreError::Name`] when the bucket has no name, [`StoreError::Limit`] when key or value is too long.
    pub fn check(&self, bucket: &str, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.0.bucket(bucket)?.check_entry(key, value)
    }

    /// Applies the batch of a task to this node's buckets, once: see [`judge`]. Operations and the row that remembers them are one
    /// transaction. Rows are forgotten `retention` after `wall`, the time of day, where that is known.
    ///
    /// # Errors
    /// [`StoreError::Full`] or [`StoreError::Limit`] when a bucket does not take the values, else what the disk refused. What
    /// [`judge`] refuses is no error here but the inner one.
    pub fn commit(
        &self,
        commit: &Commit,
        wall: Option<UnixMs>,
        retention: Duration,
    ) -> Result<Result<Verdict, CommitError>, StoreError> {
        self.0.tables().write(|txn| {
            let versions = versions(txn, commit)?;
            let mut effects = Effects::open(txn)?;
            let seen = effects.seen(&commit.key)?;
            let version = |bucket: &str, key: &str| versions.get(&(bucket, key)).copied().unwrap_or(0);
            let Judgement { verdict, remember } = match judge(commit, seen.as_ref(), wall, version) {
                Ok(judgement) => judgement,
                Err(refused) => return Ok(Err(refused)),
            };
            if let Some(row) = remember {
                if seen.is_none() {
                    effects.sweep(wall, retention)?;
                }
                if let Err(full) = effects.remember(&commit.key, &row, self.0.limits())? {
                    return Ok(Err(full.into()));
                }
            }
            drop(effects);
            if verdict == Verdict::Applied {
                self.apply(txn, &commit.batch.operations)?;
            }
            Ok(Ok(verdict))
        })
    }

    fn apply(&self, txn: &WriteTransaction, operations: &[Operation]) -> Result<(), StoreError> {
        let mut of_buckets: BTreeMap<&Arc<str>, Vec<&Operation>> = BTreeMap::new();
        for operation in operations {
            let (Operation::Set { bucket, .. } | Operation::Delete { bucket, .. }) = operation;
            of_buckets.entry(bucket).or_default().push(operation);
        }
        for (name, operations) in of_buckets {
            let bucket = self.0.bucket(name)?;
            let mut edit = Edit::begin(txn, &bucket)?;
            for operation in operations {
                match operation {
                    Operation::Set { key, value, .. } => {
                        bucket.check_entry(key, value)?;
                        edit.put(key, value)?;
                    }
                    Operation::Delete { key, .. } => drop(edit.delete(key)?),
                }
            }
            edit.end()?;
        }
        Ok(())
    }
}

type Versions<'a> = BTreeMap<(&'a str, &'a str), u64>;

/// The versions of all that the batch has read, as they are now.
fn versions<'a>(txn: &WriteTransaction, commit: &'a Commit) -> Result<Versions<'a>, StoreError> {
    let values = txn.open_table(VALUES)?;
    let mut versions = Versions::new();
    for read in &commit.batch.reads {
        if let Some(row) = values.get((&*read.bucket, &*read.key))? {
            versions.insert((&read.bucket, &read.key), row.value().0);
        }
    }
    Ok(versions)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::StoreLimits;
    use crate::tables::EFFECTS;
    use karman_tasks::{AttemptId, Batch, Epoch, Read, Seen};
    use karman_types::{ByteSize, Digest, NodeId, TaskId, TaskResponse};

    const KEEP: Duration = Duration::from_secs(8 * 86_400);

    /// Adds one to `road/holes`, having read it.
    fn add_one(store: &Store, key: &str, epoch: u64) -> Commit {
        let found = store.bucket("road").unwrap().get("holes").unwrap();
        let version = found.as_ref().map_or(0, |found| found.version);
        let before: u64 = found.map_or(0, |found| {
            std::str::from_utf8(&found.value).unwrap().parse().unwrap()
        });
        Commit {
            attempt: AttemptId {
                task: TaskId::from_parts(0, 1),
                run: 0,
                number: 1,
            },
            key: key.into(),
            fingerprint: Digest::of(b"add one"),
            epoch: Epoch(epoch),
            batch: Batch {
                home: NodeId::of_key(b"home"),
                reads: vec![Read {
                    bucket: "road".into(),
                    key: "holes".into(),
                    version,
                }],
                operations: vec![Operation::Set {
                    bucket: "road".into(),
                    key: "holes".into(),
                    value: (before + 1).to_string().into(),
                }],
            },
            response: TaskResponse::default(),
        }
    }

    fn holes(store: &Store) -> String {
        let found = store.bucket("road").unwrap().get("holes").unwrap().unwrap();
        String::from_utf8(found.value.to_vec()).unwrap()
    }

    #[test]
    fn an_effect_is_applied_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let commit = |commit: &Commit| store.tasks().commit(commit, None, KEEP).unwrap();
        let (first, stale) = (add_one(&store, "a", 1), add_one(&store, "b", 1));
        assert_eq!(commit(&first), Ok(Verdict::Applied));
        assert!(matches!(commit(&first), Ok(Verdict::AlreadyApplied(_))));
        assert!(matches!(commit(&stale), Ok(Verdict::Conflict { .. })));
        assert_eq!(holes(&store), "1");
        assert_eq!(commit(&add_one(&store, "b", 1)), Ok(Verdict::Applied));
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert!(matches!(
            store.tasks().commit(&first, None, KEEP).unwrap(),
            Ok(Verdict::AlreadyApplied(_))
        ));
        assert_eq!(holes(&store), "2");
    }

    #[test]
    fn a_batch_that_a_bucket_refuses_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let mut commit = add_one(&store, "a", 1);
        commit.batch.operations.push(Operation::Set {
            bucket: "river".into(),
            key: "k".repeat(1 << 20).into(),
            value: "1".into(),
        });
        assert!(matches!(
            store.tasks().commit(&commit, None, KEEP),
            Err(StoreError::Limit { field: "key", .. })
        ));
        assert_eq!(store.bucket("road").unwrap().get("holes").unwrap(), None);
        commit.batch.operations.pop();
        assert_eq!(
            store.tasks().commit(&commit, None, KEEP).unwrap(),
            Ok(Verdict::Applied)
        );
    }

    #[test]
    fn effects_are_forgotten_when_their_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let commit = |key: &str, wall: Option<u64>| {
            let commit = add_one(&store, key, 1);
            let applied = store
                .tasks()
                .commit(&commit, wall.map(UnixMs), Duration::from_secs(1));
            assert_eq!(applied.unwrap(), Ok(Verdict::Applied));
        };
        let remembered = || {
            let effects = store.tables().read().unwrap().open_table(EFFECTS).unwrap();
            let rows = list::<Seen>(&effects, EFFECTS).unwrap();
            rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        // Of the first nobody knows when it was.
        commit("a", None);
        for key in ["b", "c", "d", "e", "f"] {
            commit(key, Some(1_000));
        }
        assert_eq!(remembered(), ["a", "b", "c", "d", "e", "f"]);
        for key in ["u", "v", "w", "x"] {
            commit(key, Some(2_500));
        }
        assert_eq!(remembered(), ["u", "v", "w", "x"]);
    }

    #[test]
    fn an_effect_waits_where_too_many_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let limits = StoreLimits {
            effects: 2,
            ..StoreLimits::default()
        };
        let store = Store::open_with(dir.path(), limits).unwrap();
        let commit = |key: &str, wall: u64| {
            let (wall, retention) = (Some(UnixMs(wall)), Duration::from_secs(1));
            let commit = add_one(&store, key, 1);
            store.tasks().commit(&commit, wall, retention).unwrap()
        };
        for key in ["a", "b"] {
            assert_eq!(commit(key, 1_000), Ok(Verdict::Applied));
        }
        let full = commit("c", 1_500);
        assert!(
            matches!(&full, Err(CommitError::Limit(reached)) if reached.name == "effects" && reached.most == 2),
            "{full:?}"
        );
        assert_eq!(holes(&store), "2");
        assert_eq!(commit("c", 2_500), Ok(Verdict::Applied));
    }

    #[test]
    fn an_effect_waits_where_those_that_are_remembered_have_too_many_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let limits = StoreLimits {
            effects_bytes: ByteSize(1_000),
            ..StoreLimits::default()
        };
        let open = || Store::open_with(dir.path(), limits.clone()).unwrap();
        let commit = |store: &Store, key: &str, bytes: usize, wall: u64| {
            let mut commit = add_one(store, key, 1);
            commit.response.body = vec![0; bytes].into();
            let (wall, retention) = (Some(UnixMs(wall)), Duration::from_secs(1));
            store.tasks().commit(&commit, wall, retention).unwrap()
        };
        let waits = |store: &Store| {
            let full = commit(store, "b", 600, 1_500);
            assert!(
                matches!(&full, Err(CommitError::Limit(reached)) if reached.name == "effects-bytes" && reached.most == 1_000),
                "{full:?}"
            );
            assert_eq!(holes(store), "1");
        };
        let store = open();
        assert_eq!(commit(&store, "a", 400, 1_000), Ok(Verdict::Applied));
        waits(&store);
        drop(store);
        let store = open();
        waits(&store);
        assert_eq!(commit(&store, "b", 600, 2_500), Ok(Verdict::Applied));
        assert_eq!(holes(&store), "2");
    }

    /// A task that was accepted then and has not ended.
    pub(crate) fn record(at: u64) -> TaskRecord {
        TaskRecord {
            task: TaskId::from_parts(at, 0),
            name: "classify".into(),
            guarantee: karman_tasks::Guarantee::Local,
            key: None,
            effect: None,
            fingerprint: Digest::of(b""),
            epoch: Epoch::FIRST,
            home: None,
            attempts: 0,
            written: None,
            due: karman_tasks::Due::default(),
            hedge_after: None,
            stays: false,
            state: Saved::Open(karman_types::TaskRequest::default()),
        }
    }

    #[test]
    fn records_come_back_until_they_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let writes = [2, 1, 3].map(|task| Write::Put(Box::new(record(task))));
        store.tasks().write(&writes).unwrap();
        store
            .tasks()
            .write(&[Write::Delete(TaskId::from_parts(2, 0))])
            .unwrap();
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.tasks().records().unwrap(), [record(1), record(3)]);
    }
}
