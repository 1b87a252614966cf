//! What a client keeps of a run on its node: its last answer, what its plugin wants to have again, what encodings have lost.

mod disk;

use super::given::Given;
use super::wire::{Order, RunId};
use disk::{Disk, What};
use karman_engine::capability::checkpoint::Progress;
use karman_fed::{AssignmentId, ClientId, Update};
use karman_store::Store;
use karman_tensor::encode::Feedback;
use karman_types::{ByteSize, NodeId, TaskError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// A client of a run. The driver is part of it: another member that knows the run's id neither reads what this one keeps nor
/// answers in its place.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub(super) struct Key {
    driver: NodeId,
    run: RunId,
    client: ClientId,
}

impl Key {
    pub(super) const fn driver(&self) -> NodeId {
        self.driver
    }
}

/// What a client keeps.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Remembered {
    /// The order that it carried out last, and what came of it.
    pub(super) answered: Option<((AssignmentId, u64), Box<Update>)>,
    /// What its plugin gave back to have it again.
    #[serde(with = "serde_bytes")]
    pub(super) state: Vec<u8>,
    /// For each array of an update.
    pub(super) feedback: Vec<Feedback>,
}

impl Remembered {
    /// How long it is, but for a few words around each part.
    fn bytes(&self) -> usize {
        let answered = self.answered.iter().flat_map(|(_, update)| &update.frames);
        let answered: usize = answered.map(|frame| frame.len()).sum();
        let lost: usize = self.feedback.iter().map(|lost| lost.residual().len()).sum();
        // A number of a list takes five bytes.
        answered + self.state.len() + 5 * lost
    }
}

/// Where clients keep it.
pub(super) struct Memory {
    place: Place,
    turns: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
    /// What went into secure sums, where that is not on the disk; one at a time looks and adds to it, there too.
    given: Mutex<HashMap<(NodeId, RunId), Given>>,
}

enum Place {
    /// On the disk of this node.
    Disk(Arc<Disk>),
    /// In the process that plays all clients: it goes into the run's own checkpoint.
    Process(Mutex<BTreeMap<ClientId, Remembered>>),
}

impl Memory {
    /// On the disk, of which all clients together take no more than that.
    pub(super) fn on_disk(store: Store, most: ByteSize) -> Self {
        Self::new(Place::Disk(Arc::new(Disk::new(store, most))))
    }

    /// In this process.
    pub(super) fn in_process(kept: BTreeMap<ClientId, Remembered>) -> Self {
        Self::new(Place::Process(Mutex::new(kept)))
    }

    fn new(place: Place) -> Self {
        Self {
            place,
            turns: Mutex::default(),
            given: Mutex::default(),
        }
    }

    /// Whose memory an order of this driver is about.
    pub(super) fn key(driver: NodeId, order: &Order) -> Key {
        Key {
            driver,
            run: order.run.clone(),
            client: order.client,
        }
    }

    /// Waits until no other order of this client is carried out: one that was sent again may meet the first. A node is one client
    /// of a run, whatever numbers its driver has for it.
    pub(super) async fn turn(&self, key: &Key) -> OwnedMutexGuard<()> {
        let client = match self.place {
            Place::Disk(_) => ClientId(0),
            Place::Process(_) => key.client,
        };
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            let key = Key {
                client,
                ..key.clone()
            };
            turns.entry(key).or_default().clone()
        };
        turn.lock_owned().await
    }

    pub(super) fn get(&self, key: &Key) -> Result<Remembered, TaskError> {
        match &self.place {
            Place::Disk(disk) => Ok(disk.get(What::Client, key)?.unwrap_or_default()),
            Place::Process(kept) => Ok(kept.lock().get(&key.client).cloned().unwrap_or_default()),
        }
    }

    pub(super) fn put(&self, key: &Key, remembered: Remembered) -> Result<(), TaskError> {
        match &self.place {
            Place::Disk(disk) => {
                disk.put(What::Client, key, &remembered, remembered.bytes())?;
                disk.remove(What::Progress, key)
            }
            Place::Process(kept) => {
                kept.lock().insert(key.client, remembered);
                Ok(())
            }
        }
    }

    /// What this node gave to secure sums of the run, whichever of its clients that was. It does not wait for what is being put down.
    pub(super) fn given(&self, key: &Key) -> Result<Option<Given>, TaskError> {
        match &self.place {
            Place::Disk(disk) => disk.gifts.get(key.driver, &key.run),
            Place::Process(_) => Ok(self.given.lock().get(&run_of(key)).copied()),
        }
    }

    /// Whether the update of an order may go into a secure sum.
    pub(super) fn may_give(&self, key: &Key, assignment: AssignmentId) -> Result<(), TaskError> {
        Given::next(self.given(key)?, key.client, assignment).map(|_| ())
    }

    /// Puts down that the update of an order goes into a secure sum; an error where it must not.
    pub(super) fn give(&self, key: &Key, assignment: AssignmentId) -> Result<(), TaskError> {
        self.put_down(key, |before| Given::next(before, key.client, assignment))
    }

    /// Puts down, for good, that the update of an order goes to the other clients of the run; an error where it must not.
    pub(super) fn spread(&self, key: &Key, assignment: AssignmentId) -> Result<(), TaskError> {
        self.put_down(key, |before| Given::next_spread(before, key.client, assignment))
    }

    fn put_down(
        &self,
        key: &Key,
        next: impl Fn(Option<Given>) -> Result<Given, TaskError>,
    ) -> Result<(), TaskError> {
        let mut all = self.given.lock();
        match &self.place {
            Place::Disk(disk) => {
                let before = disk.gifts.get(key.driver, &key.run)?;
                disk.gifts.put(key.driver, &key.run, next(before)?)
            }
            Place::Process(_) => {
                let given = next(all.get(&run_of(key)).copied())?;
                all.insert(run_of(key), given);
                Ok(())
            }
        }
    }

    /// Everything that clients of this process keep; answers only to orders whose answers are still `awaited`, for the others are
    /// in the checkpoint that this goes into.
    pub(super) fn all(&self, awaited: impl Fn(AssignmentId) -> bool) -> BTreeMap<ClientId, Remembered> {
        let Place::Process(kept) = &self.place else {
            return BTreeMap::new();
        };
        let mut all = kept.lock().clone();
        for remembered in all.values_mut() {
            remembered.answered.take_if(|((order, _), _)| !awaited(*order));
        }
        all
    }

    /// Where the plugin keeps how far it is with this order.
    pub(super) fn progress(&self, key: &Key, assignment: AssignmentId, version: u64) -> Arc<dyn Progress> {
        let place = match &self.place {
            Place::Disk(disk) => Kept::Disk(disk.clone(), key.clone()),
            Place::Process(_) => Kept::Process(Mutex::default()),
        };
        Arc::new(OrderProgress {
            of: (assignment, version),
            place,
        })
    }
}

fn run_of(key: &Key) -> (NodeId, RunId) {
    (key.driver, key.run.clone())
}

/// How far one order is.
struct OrderProgress {
    of: (AssignmentId, u64),
    place: Kept,
}

enum Kept {
    Disk(Arc<Disk>, Key),
    Process(Mutex<Option<Vec<u8>>>),
}

#[derive(Deserialize, Serialize)]
struct Record {
    of: (AssignmentId, u64),
    #[serde(with = "serde_bytes")]
    progress: Vec<u8>,
}

impl Progress for OrderProgress {
    fn save(&self, progress: Vec<u8>) -> Result<(), TaskError> {
        match &self.place {
            Kept::Disk(disk, key) => {
                let (of, bytes) = (self.of, progress.len());
                disk.put(What::Progress, key, &Record { of, progress }, bytes)
            }
            Kept::Process(kept) => {
                *kept.lock() = Some(progress);
                Ok(())
            }
        }
    }

    fn load(&self) -> Option<Vec<u8>> {
        match &self.place {
            Kept::Disk(disk, key) => {
                let record: Record = disk.get(What::Progress, key).ok()??;
                (record.of == self.of).then_some(record.progress)
            }
            Kept::Process(kept) => kept.lock().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::disk::MOST_CLIENTS;
    use super::*;
    use futures::FutureExt;
    use tempfile::TempDir;

    fn on_disk(folder: &TempDir) -> Memory {
        Memory::on_disk(Store::open(folder.path()).unwrap(), ByteSize::gib(1))
    }

    fn key(driver: &[u8], client: u64) -> Key {
        Key {
            driver: NodeId::of_key(driver),
            run: RunId("0a".into()),
            client: ClientId(client),
        }
    }

    fn remembered(state: &[u8]) -> Remembered {
        Remembered {
            state: state.to_vec(),
            ..Remembered::default()
        }
    }

    #[test]
    fn another_driver_finds_nothing_and_disturbs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let memory = on_disk(&folder);
        memory.put(&key(b"driver", 0), remembered(b"mine")).unwrap();
        assert_eq!(memory.get(&key(b"other", 0)).unwrap().state, b"");
        memory.put(&key(b"other", 0), remembered(b"its own")).unwrap();
        assert_eq!(memory.get(&key(b"driver", 0)).unwrap().state, b"mine");
    }

    #[test]
    fn clients_and_their_progress_take_the_room_of_those_before() {
        let folder = tempfile::tempdir().unwrap();
        let memory = on_disk(&folder);
        let progress = |client| memory.progress(&key(b"driver", client), AssignmentId(1), 1);
        // Orders that never end leave progress alone.
        progress(0).save(b"begun".to_vec()).unwrap();
        memory.put(&key(b"driver", 1), remembered(b"one")).unwrap();
        for client in 2..MOST_CLIENTS as u64 {
            progress(client).save(b"begun".to_vec()).unwrap();
        }
        assert!(progress(0).load().is_some());
        for client in 100..102 {
            progress(client).save(b"begun".to_vec()).unwrap();
        }
        assert!(progress(0).load().is_none());
        assert_eq!(memory.get(&key(b"driver", 1)).unwrap().state, b"");
        assert!(progress(2).load().is_some() && progress(101).load().is_some());
    }

    #[test]
    fn what_was_given_to_a_sum_is_known_after_a_restart_and_makes_room_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let memory = on_disk(&folder);
        let mine = key(b"driver", 7);
        memory.give(&mine, AssignmentId(3)).unwrap();
        for client in 100..101 + MOST_CLIENTS as u64 {
            memory.put(&key(b"driver", client), remembered(b"x")).unwrap();
        }
        drop(memory);
        let memory = on_disk(&folder);
        assert!(memory.given(&mine).unwrap().is_some());
        assert!(memory.given(&key(b"other", 7)).unwrap().is_none());
        let again = memory.give(&mine, AssignmentId(3)).unwrap_err();
        assert!(again.message.contains("is in a sum already"), "{again}");
        // Nor does the driver get a second client of the run out of one node by another number.
        let other = memory.give(&key(b"driver", 8), AssignmentId(4)).unwrap_err();
        assert_eq!(other.field.as_deref(), Some("client"), "{other}");
        memory.give(&mine, AssignmentId(4)).unwrap();
    }

    #[tokio::test]
    async fn a_node_does_one_thing_of_a_run_after_the_other_whatever_number_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let memory = on_disk(&folder);
        let turn = memory.turn(&key(b"driver", 7)).await;
        assert!(memory.turn(&key(b"driver", 8)).now_or_never().is_none());
        assert!(memory.turn(&key(b"other", 8)).now_or_never().is_some());
        drop(turn);
        assert!(memory.turn(&key(b"driver", 8)).now_or_never().is_some());
    }
}
