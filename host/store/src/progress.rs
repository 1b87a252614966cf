//! How far tasks have got, within one transaction. It is bounded in bytes.

use crate::StoreError;
use crate::tables::{META, PROGRESS, PROGRESSED, TASKS, get, number, size};
use karman_tasks::{LimitReached, Saved, TaskRecord};
use karman_types::{ByteSize, TaskId};
use redb::{ReadableTable, Table, WriteTransaction};

pub(crate) struct Progress<'txn> {
    rows: Table<'txn, &'static str, &'static [u8]>,
    meta: Table<'txn, &'static str, u64>,
    bytes: u64,
}

impl<'txn> Progress<'txn> {
    pub(crate) fn open(txn: &'txn WriteTransaction) -> Result<Self, StoreError> {
        let (rows, meta) = (txn.open_table(PROGRESS)?, txn.open_table(META)?);
        Ok(Self {
            bytes: number(&meta, PROGRESSED)?,
            rows,
            meta,
        })
    }

    /// Writes down how far the task of this id has got, in the place of what there was.
    ///
    /// # Errors
    /// What the disk refused. That there is no room for it is the inner error, and what there was stays.
    pub(crate) fn set(
        &mut self,
        task: &str,
        progress: &[u8],
        fails: bool,
        (all, tasks): (ByteSize, &impl ReadableTable<&'static str, &'static [u8]>),
    ) -> Result<Result<(), LimitReached>, StoreError> {
        let before = self.rows.get(task)?.map(|row| row.value().len());
        let grows = before.is_none_or(|before| before < progress.len());
        let most = most(all.0, before.is_none(), fails);
        if grows && !self.make_room((task, before, progress.len()), most, tasks)? {
            let name = "progress-bytes".into();
            return Ok(Err(LimitReached { name, most: all.0 }));
        }
        self.rows.insert(task, progress)?;
        self.count(task, before, Some(progress.len()))?;
        Ok(Ok(()))
    }

    /// Forgets it of these tasks.
    pub(crate) fn forget(txn: &'txn WriteTransaction, tasks: &[TaskId]) -> Result<(), StoreError> {
        if tasks.is_empty() {
            return Ok(());
        }
        let mut progress = Self::open(txn)?;
        tasks
            .iter()
            .try_for_each(|task| progress.remove(&task.to_string()))
    }

    fn remove(&mut self, task: &str) -> Result<(), StoreError> {
        let before = self.rows.remove(task)?.map(|row| row.value().len());
        self.count(task, before, None)
    }

    /// Sees to it that all have so many bytes at most, with a row of another length for this task. Those of tasks that have ended are
    /// forgotten for that, of those that were accepted first, if that does. Whether it does.
    fn make_room(
        &mut self,
        (task, before, now): (&str, Option<usize>, usize),
        most: u64,
        tasks: &impl ReadableTable<&'static str, &'static [u8]>,
    ) -> Result<bool, StoreError> {
        let own = size(task, Some(now));
        let mut others = self.bytes.saturating_sub(size(task, before));
        let fit = |others: u64| others.saturating_add(own) <= most;
        let mut ended = Vec::new();
        let mut rows = self.rows.iter()?;
        while own <= most
            && !fit(others)
            && let Some(row) = rows.next()
        {
            let (key, row) = row?;
            if key.value() != task && has_ended(tasks, key.value())? {
                others = others.saturating_sub(size(key.value(), Some(row.value().len())));
                ended.push(key.value().to_owned());
            }
        }
        drop(rows);
        if !fit(others) {
            return Ok(false);
        }
        if !ended.is_empty() {
            tracing::info!(
                tasks = ended.len(),
                "how far tasks had got that have ended is not known any more: others need the room"
            );
        }
        for key in ended {
            self.remove(&key)?;
        }
        Ok(true)
    }

    /// Counts a row of this length in the place of one of that.
    fn count(&mut self, task: &str, before: Option<usize>, now: Option<usize>) -> Result<(), StoreError> {
        self.bytes = self.bytes.saturating_sub(size(task, before)) + size(task, now);
        self.meta.insert(PROGRESSED, self.bytes)?;
        Ok(())
    }
}

/// How much of all the bytes is for a task that begins, for one that goes on, and for one that fails: it needs room to undo what it did
/// although the others have taken theirs.
const fn most(all: u64, begins: bool, fails: bool) -> u64 {
    match (fails, begins) {
        (true, _) => all,
        (false, true) => all / 2,
        (false, false) => all - all / 4,
    }
}

/// Whether the task of this id goes on no more, or is not known any more.
fn has_ended(
    tasks: &impl ReadableTable<&'static str, &'static [u8]>,
    task: &str,
) -> Result<bool, StoreError> {
    let record: Option<TaskRecord> = get(tasks, TASKS, task)?;
    Ok(record.is_none_or(|record| !matches!(record.state, Saved::Open(_) | Saved::Moving { .. })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::tests::record;
    use crate::{Store, StoreLimits};
    use karman_tasks::{Outcome, Write};

    fn task(at: u64) -> TaskId {
        TaskId::from_parts(at, 0)
    }

    /// One that holds so many bytes of progress.
    fn store(dir: &tempfile::TempDir, bytes: u64) -> Store {
        let limits = StoreLimits {
            progress_bytes: ByteSize(bytes),
            ..StoreLimits::default()
        };
        Store::open_with(dir.path(), limits).unwrap()
    }

    fn accept(store: &Store, at: u64) {
        let writes = [Write::Put(Box::new(record(at)))];
        store.tasks().write(&writes).unwrap();
    }

    fn end(store: &Store, at: u64) {
        let ended = TaskRecord {
            state: Saved::Ended {
                outcome: Outcome::Cancelled,
                at: None,
            },
            ..record(at)
        };
        store.tasks().write(&[Write::Put(Box::new(ended))]).unwrap();
    }

    /// Whether there is room for so many bytes of progress, its id included.
    #[track_caller]
    fn set(store: &Store, at: u64, bytes: usize, fails: bool) -> bool {
        let progress = vec![0; bytes - task(at).to_string().len()];
        let before = store.tasks().progress(task(at)).unwrap();
        match store.tasks().set_progress(task(at), &progress, fails).unwrap() {
            Ok(()) => {
                assert_eq!(store.tasks().progress(task(at)).unwrap().unwrap(), progress);
                true
            }
            Err(reached) => {
                assert_eq!((reached.name.as_str(), reached.most), ("progress-bytes", 1_000));
                assert_eq!(store.tasks().progress(task(at)).unwrap(), before);
                false
            }
        }
    }

    fn known(store: &Store) -> Vec<u64> {
        let known = |at: &u64| store.tasks().progress(task(*at)).unwrap().is_some();
        (1..=9).filter(known).collect()
    }

    #[test]
    fn none_begins_when_half_is_taken_and_a_quarter_is_for_those_that_fail() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 1_000);
        for at in [1, 2, 3] {
            accept(&store, at);
        }
        assert!(set(&store, 1, 400, false));
        assert!(!set(&store, 2, 101, false));
        assert!(set(&store, 2, 100, false));
        assert!(!set(&store, 3, 50, false));
        // Those that have begun go on.
        assert!(set(&store, 2, 350, false));
        assert!(!set(&store, 1, 401, false));
        // What takes no more than before is written down in any case.
        assert!(set(&store, 1, 400, false));
        assert!(set(&store, 1, 650, true));
        assert!(!set(&store, 1, 651, true));
        assert!(set(&store, 2, 340, false));
        assert_eq!(known(&store), [1, 2]);
    }

    #[test]
    fn what_has_ended_goes_first_and_no_more_of_it_than_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 1_000);
        for at in [1, 2, 3, 4] {
            accept(&store, at);
        }
        for at in [1, 2, 3] {
            assert!(set(&store, at, 150, false));
        }
        for at in [2, 3] {
            end(&store, at);
        }
        // What would not do is not done.
        assert!(!set(&store, 4, 400, false));
        assert_eq!(known(&store), [1, 2, 3]);
        assert!(set(&store, 4, 200, false));
        assert_eq!(known(&store), [1, 3, 4]);
        // Nobody asks any more for what is left of a task that is not known.
        assert!(set(&store, 5, 150, true));
        assert!(set(&store, 4, 450, false));
        assert_eq!(known(&store), [1, 4, 5]);
        assert!(set(&store, 4, 600, false));
        assert_eq!(known(&store), [1, 4]);
    }

    #[test]
    fn how_far_a_task_has_got_goes_with_its_result() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 1_000);
        accept(&store, 1);
        assert!(set(&store, 1, 100, false));
        end(&store, 1);
        assert_eq!(known(&store), [1]);
        let forgotten = TaskRecord {
            state: Saved::Forgotten { at: None },
            ..record(1)
        };
        store.tasks().write(&[Write::Put(Box::new(forgotten))]).unwrap();
        assert_eq!(known(&store), [0; 0]);
    }

    #[test]
    fn what_is_forgotten_leaves_its_room_and_a_restart_counts_all() {
        let dir = tempfile::tempdir().unwrap();
        let full = store(&dir, 1_000);
        for at in [1, 2] {
            accept(&full, at);
        }
        assert!(set(&full, 1, 500, false));
        assert!(!set(&full, 2, 50, false));
        drop(full);
        let full = store(&dir, 1_000);
        assert!(!set(&full, 2, 50, false));
        full.tasks().write(&[Write::Delete(task(1))]).unwrap();
        assert!(set(&full, 2, 500, false));
        assert_eq!(known(&full), [2]);
    }
}
