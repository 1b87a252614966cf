//! The log of decisions on this disk: a ring of so many entries and bytes, written behind what is decided, for each write costs pages of
//! flash. A crash loses what was decided in the last half minute. After a start policies go on from it, as far as it has their last checkpoint.

use super::cbor::{read, write};
use crate::runtime::Runtime;
use crate::services::blocking;
use bytes::Bytes;
use karman_sched::log::{Entry, Tail, Told, explain, tails};
use karman_store::Store;
use karman_types::{Digest, TaskError, TaskId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{MappedMutexGuard, MutexGuard, Notify};
use tokio::time::{sleep, timeout};

/// How long what was decided may wait for the disk.
const BEHIND: Duration = Duration::from_secs(30);
/// Bytes of entries that do not wait so long.
const ENOUGH: usize = 256 << 10;
/// How long the next write waits, however much there is.
const APART: Duration = Duration::from_secs(1);
/// Bytes of entries that wait at most: while the disk does not keep up, the oldest go. A checkpoint may have a few MiB.
const MOST_WAITING: usize = 32 << 20;
/// Bytes of entries that the ring holds at most: what a step is placed by may have tens of KiB, and all of the ring is read at once.
const MOST_BYTES: u64 = 64 << 20;

/// A log as it is handed over: with all that it takes to decide everything again.
#[derive(Debug, Deserialize, Serialize)]
pub struct DecisionLog {
    /// The oldest first.
    pub entries: Vec<Entry>,
    /// Files of the plugins whose policies decided, as far as they are still here.
    pub policies: Vec<ByteBuf>,
}

impl DecisionLog {
    /// Reads a log that a node has written.
    ///
    /// # Errors
    /// `invalid` when it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, TaskError> {
        // Where in it reading failed helps nobody.
        read("log", bytes).map_err(|_| {
            TaskError::invalid("this is no log of decisions, or is cut short")
                .with_field("log")
                .with_hint("`karman replay --save FILE` writes one")
        })
    }
}

/// The log of decisions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Decisions(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    waiting: Mutex<Waiting>,
    /// So much waits that it is written down now.
    enough: Arc<Notify>,
    /// One writer at a time, so that entries keep their order.
    writing: Arc<tokio::sync::Mutex<()>>,
    /// One reader at a time: each holds the whole ring in memory.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// Policies from before the start, by what they are known by; nothing before somebody asks.
    before: tokio::sync::Mutex<Option<Before>>,
}

/// What was written down of policies before the node was started, of those with which nobody has gone on yet.
pub(super) type Before = HashMap<Digest, Tail>;

/// Entries that wait for the disk.
#[derive(Default)]
struct Waiting {
    entries: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Waiting {
    /// Takes one more, and lets the oldest go as long as they are too many bytes together.
    fn push(&mut self, entry: Vec<u8>) {
        self.bytes += entry.len();
        self.entries.push_back(entry);
        while self.bytes > MOST_WAITING {
            let gone = self.entries.pop_front();
            self.bytes -= gone.map_or(self.bytes, |gone| gone.len());
        }
    }

    /// Takes those back that could not be written down: they are older than what waits by now.
    fn put_back(&mut self, older: Self) {
        let newer = std::mem::replace(self, older);
        newer.entries.into_iter().for_each(|entry| self.push(entry));
    }
}

impl Decisions {
    pub(super) fn start(runtime: &Runtime) -> Self {
        let inner = Arc::new(Inner {
            runtime: runtime.clone(),
            waiting: Mutex::default(),
            enough: Arc::default(),
            writing: Arc::default(),
            reading: Arc::default(),
            before: tokio::sync::Mutex::default(),
        });
        tokio::spawn(write_behind(Arc::downgrade(&inner), inner.enough.clone()));
        Self(inner)
    }

    /// Takes entries to be written down, in this order.
    pub(super) fn push(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut waiting = self.0.waiting.lock();
        for entry in entries {
            match cbor4ii::serde::to_vec(Vec::new(), &entry) {
                Ok(bytes) => waiting.push(bytes),
                Err(error) => tracing::error!(%error, "a decision cannot be written down"),
            }
        }
        if waiting.bytes >= ENOUGH {
            self.0.enough.notify_one();
        }
    }

    /// The policies that this node had when it was last stopped. While this is held nobody else gets them, so that no two go on with one.
    pub(super) async fn before(&self) -> MappedMutexGuard<'_, Before> {
        let mut before = self.0.before.lock().await;
        if before.is_none() {
            let read = self.0.read(tails).await;
            *before = Some(read.unwrap_or_else(|error| {
                tracing::warn!(%error, "policies begin anew: the log of decisions cannot be read");
                Before::new()
            }));
        }
        MutexGuard::map(before, |before| before.get_or_insert_default())
    }

    /// Writes down all that waits: the node is to stop.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.0.flush().await {
            tracing::warn!(%error, "decisions are not written down");
        }
    }

    /// Everything that the ring holds, the oldest first, as far as it can be read.
    ///
    /// # Errors
    /// What the disk refused.
    pub(crate) async fn entries(&self) -> Result<Vec<Entry>, TaskError> {
        self.0.flush().await?;
        self.0.read(|entries| entries).await
    }

    /// Why a request was served by whom it was.
    ///
    /// # Errors
    /// Those of [`Decisions::entries`].
    pub(crate) async fn told(&self, request: TaskId) -> Result<Vec<Told>, TaskError> {
        self.0.flush().await?;
        self.0.read(move |entries| explain(&entries, request)).await
    }

    /// The same as a file that [`DecisionLog::read`] reads.
    ///
    /// # Errors
    /// Those of [`Decisions::entries`].
    pub(crate) async fn written(&self) -> Result<Bytes, TaskError> {
        let entries = self.entries().await?;
        let plugins = entries.iter().filter_map(Entry::plugin);
        let used: BTreeSet<Digest> = plugins.map(|plugin| plugin.id).collect();
        let policies = move |store: &Store| {
            let file = |id: &Digest| store.blobs().read(id).ok();
            let files = used.iter().filter_map(file);
            Ok(files.map(|file| ByteBuf::from(file.to_vec())).collect())
        };
        write(&DecisionLog {
            policies: self.0.runtime.home().with(policies).await?,
            entries,
        })
    }
}

/// Writes down what waits, as long as somebody decides. Between two writes it holds nothing of the node, which may be stopped and started again.
async fn write_behind(decisions: Weak<Inner>, enough: Arc<Notify>) {
    loop {
        let _ = timeout(BEHIND, enough.notified()).await;
        let Some(inner) = decisions.upgrade() else { return };
        if let Err(error) = inner.flush().await {
            tracing::warn!(%error, "decisions are not written down");
        }
        drop(inner);
        sleep(APART).await;
    }
}

impl Inner {
    /// What is made of all entries. Blocks nobody: a ring takes a while to read.
    async fn read<T: Send + 'static>(
        &self,
        made: impl FnOnce(Vec<Entry>) -> T + Send + 'static,
    ) -> Result<T, TaskError> {
        let reading = self.reading.clone().lock_owned().await;
        let read = move |store: &Store| {
            let _alone = reading;
            Ok(made(readable(&store.decisions().all()?)))
        };
        self.runtime.home().with(read).await
    }

    /// Writes down what waits. It goes on where nobody waits for it any more, and nobody writes beside it.
    async fn flush(self: &Arc<Self>) -> Result<(), TaskError> {
        let writing = self.writing.clone().lock_owned().await;
        if self.waiting.lock().entries.is_empty() {
            return Ok(());
        }
        let inner = self.clone();
        blocking(move || {
            let _alone = writing;
            inner.write_down()
        })
        .await
    }

    /// Blocks. What the disk refuses goes to it with what comes next.
    fn write_down(&self) -> Result<(), TaskError> {
        let mut taken = std::mem::take(&mut *self.waiting.lock());
        let entries = taken.entries.make_contiguous();
        let most = self.runtime.config().decisions;
        let store = self.runtime.home().store();
        let written = store.and_then(|store| {
            store
                .decisions()
                .append(entries, most, MOST_BYTES)
                .map_err(TaskError::from)
        });
        if written.is_err() {
            self.waiting.lock().put_back(taken);
        }
        written
    }
}

/// Those that can be read: one of another version, or one that is damaged, leaves the others as they are.
fn readable(all: &[Vec<u8>]) -> Vec<Entry> {
    let read = |bytes: &Vec<u8>| cbor4ii::serde::from_slice(bytes).ok();
    let entries: Vec<Entry> = all.iter().filter_map(read).collect();
    let skipped = all.len() - entries.len();
    if skipped > 0 {
        tracing::warn!(
            skipped,
            of = all.len(),
            "entries of the log of decisions cannot be read"
        );
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;
    use crate::runtime::RuntimeOptions;

    #[test]
    fn the_oldest_go_where_the_disk_does_not_keep_up() {
        let mut waiting = Waiting::default();
        for n in 0..40 {
            waiting.push(vec![n; 1 << 20]);
        }
        let left: Vec<u8> = waiting.entries.iter().map(|entry| entry[0]).collect();
        assert_eq!((left.len(), left[0], waiting.bytes), (32, 8, MOST_WAITING));
        waiting.push(vec![0; MOST_WAITING + 1]);
        assert_eq!((waiting.entries.len(), waiting.bytes), (0, 0));
    }

    #[test]
    fn what_the_disk_refused_is_written_before_what_came_meanwhile() {
        let (mut taken, mut waiting) = (Waiting::default(), Waiting::default());
        taken.push(vec![1]);
        taken.push(vec![2, 2]);
        waiting.push(vec![3]);
        waiting.put_back(taken);
        assert_eq!(
            (Vec::from(waiting.entries), waiting.bytes),
            (vec![vec![1], vec![2, 2], vec![3]], 4)
        );
    }

    #[test]
    fn one_entry_that_cannot_be_read_leaves_the_others() {
        let request = TaskId::from_parts(1, 1);
        let entry = |at_ms| {
            let entry = Entry::answered(at_ms, request, ("soonest", 0), Duration::ZERO);
            cbor4ii::serde::to_vec(Vec::new(), &entry).unwrap()
        };
        let all = [entry(1), vec![0xff], entry(3), Vec::new()];
        let times: Vec<u64> = readable(&all).iter().map(|entry| entry.at_ms).collect();
        assert_eq!(times, [1, 3]);
    }

    #[test]
    fn nobody_writes_beside_one_that_goes_on_though_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let options = RuntimeOptions {
            state: folder.path().join("state"),
            cache: folder.path().join("cache"),
            program: None,
        };
        let threads = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        threads.block_on(async {
            let runtime = Runtime::new(NodeConfig::default(), options, None).unwrap();
            let decisions = Decisions::start(&runtime);
            // The only thread that may wait for the disk waits for something else.
            let (go_on, busy) = std::sync::mpsc::channel::<()>();
            let waits = tokio::task::spawn_blocking(move || busy.recv());
            decisions.0.waiting.lock().push(vec![1]);
            let mut closing = Box::pin(decisions.close());
            assert!(futures::poll!(&mut closing).is_pending());
            drop(closing);
            assert!(decisions.0.writing.try_lock().is_err());
            drop(go_on);
            assert!(waits.await.unwrap().is_err());
            decisions.close().await;
            assert_eq!(
                runtime.home().store().unwrap().decisions().all().unwrap(),
                [[1u8]]
            );
        });
    }
}
