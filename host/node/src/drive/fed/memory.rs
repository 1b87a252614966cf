//! What a client keeps of a run on its node: its last answer, what its plugin wants to have again, what encodings have lost.

mod disk;

use super::given::Given;
use super::wire::{Order, RunId};
use crate::services::blocking;
use disk::{Disk, What};
use karman_engine::capability::checkpoint::Progress;
use karman_fed::privacy::Local;
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
    /// Whether that has noise in it.
    pub(super) noised: bool,
    /// What its plugin gave back to have it again.
    #[serde(with = "serde_bytes")]
    pub(super) state: Vec<u8>,
    /// For each array of an update.
    pub(super) feedback: Vec<Feedback>,
    /// The order with whose answer it kept them, and what they were before: that holds again where the answer counts for nothing.
    #[serde(default)]
    last: Option<AssignmentId>,
    #[serde(default)]
    before: Option<(serde_bytes::ByteBuf, Vec<Feedback>)>,
    /// What it has given away in updates with noise, the last answer among them: both are written in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) account: Option<Local>,
}

impl Remembered {
    /// Before the training for an order: forgets what it kept with its last answer, unless that is the one that counts.
    pub(super) fn goes_on_from(&mut self, counted: Option<AssignmentId>, order: AssignmentId) {
        if self.last != counted {
            let (state, feedback) = self.before.take().unwrap_or_default();
            (self.state, self.feedback) = (state.into_vec(), feedback);
        }
        self.before = Some((self.state.clone().into(), self.feedback.clone()));
        self.last = Some(order);
    }

    /// How long it is, but for a few words around each part.
    fn bytes(&self) -> usize {
        let answered = self.answered.iter().flat_map(|(_, update)| &update.frames);
        let answered: usize = answered.map(|frame| frame.len()).sum();
        let before = self.before.iter().flat_map(|(_, feedback)| feedback);
        let lost = self.feedback.iter().chain(before);
        let lost: usize = lost.map(|lost| lost.residual().len()).sum();
        let state_before = self.before.as_ref().map_or(0, |(state, _)| state.len());
        // A number of a list takes five bytes.
        answered + self.state.len() + state_before + 5 * lost
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

    /// A node is one client of a run, whatever numbers its driver has for it: what is to be known of all of them is kept under this.
    pub(super) fn whatever_number(&self, key: &Key) -> Key {
        let client = match self.place {
            Place::Disk(_) => ClientId(0),
            Place::Process(_) => key.client,
        };
        Key {
            client,
            ..key.clone()
        }
    }

    /// Waits until no other order of this client is carried out: one that was sent again may meet the first.
    pub(super) async fn turn(&self, key: &Key) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(self.whatever_number(key)).or_default().clone()
        };
        turn.lock_owned().await
    }

    /// What a client keeps, read where the disk holds up nobody.
    pub(super) async fn recall(self: &Arc<Self>, key: &Key) -> Result<Remembered, TaskError> {
        let key = key.clone();
        self.apart(move |memory| memory.get(&key)).await
    }

    /// Whether this node gave anything to secure sums of the run, or spread it.
    pub(super) async fn has_given(self: &Arc<Self>, key: &Key) -> Result<bool, TaskError> {
        let key = key.clone();
        self.apart(move |memory| Ok(memory.given(&key)?.is_some())).await
    }

    /// Does on no thread of the network what takes its time, as the disk does, and millions of numbers. It is done to its end, also when
    /// nobody waits for it any more.
    pub(super) async fn apart<T: Send + 'static>(
        self: &Arc<Self>,
        what: impl FnOnce(&Self) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, TaskError> {
        match self.place {
            Place::Process(_) => what(self),
            Place::Disk(_) => {
                let memory = self.clone();
                blocking(move || what(&memory)).await
            }
        }
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
mod tests;
