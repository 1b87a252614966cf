//! What a client keeps of a run on its node: its last answer, what its plugin wants to have again, what encodings have lost.

use super::wire::{Order, RunId};
use crate::services::store_error;
use karman_engine::capability::checkpoint::Progress;
use karman_fed::{AssignmentId, ClientId, Update};
use karman_store::Store;
use karman_tensor::encode::Feedback;
use karman_types::TaskError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// A client of a run.
pub(super) type Key = (RunId, ClientId);

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

/// Where clients keep it.
pub(super) struct Memory {
    place: Place,
    turns: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

enum Place {
    /// On the disk of this node.
    Disk(Store),
    /// In the process that plays all clients: it goes into the run's own checkpoint.
    Process(Arc<Mutex<BTreeMap<ClientId, Remembered>>>),
}

/// The runs of which a node keeps something as a client; the one that it heard of first goes first.
const MOST_RUNS: usize = 16;
/// The record of those runs.
const RUNS: &str = "client-runs";

impl Memory {
    /// On the disk.
    pub(super) fn on_disk(store: Store) -> Self {
        Self::new(Place::Disk(store))
    }

    /// In this process.
    pub(super) fn in_process(kept: BTreeMap<ClientId, Remembered>) -> Self {
        Self::new(Place::Process(Arc::new(Mutex::new(kept))))
    }

    fn new(place: Place) -> Self {
        let turns = Mutex::default();
        Self { place, turns }
    }

    pub(super) fn key(order: &Order) -> Key {
        (order.run.clone(), order.client)
    }

    /// Waits until no other order of this client is carried out: one that was sent again may meet the first.
    pub(super) async fn turn(&self, key: &Key) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(key.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }

    pub(super) fn get(&self, key: &Key) -> Result<Remembered, TaskError> {
        match &self.place {
            Place::Disk(store) => {
                let kept = store.runs().get(&name("client", key)).map_err(store_error)?;
                Ok(kept.unwrap_or_default())
            }
            Place::Process(kept) => Ok(kept.lock().get(&key.1).cloned().unwrap_or_default()),
        }
    }

    pub(super) fn put(&self, key: &Key, remembered: Remembered) -> Result<(), TaskError> {
        match &self.place {
            Place::Disk(store) => {
                make_room(store, &key.0)?;
                let runs = store.runs();
                runs.put(&name("client", key), &remembered).map_err(store_error)?;
                runs.remove(&name("progress", key)).map_err(store_error)
            }
            Place::Process(kept) => {
                kept.lock().insert(key.1, remembered);
                Ok(())
            }
        }
    }

    /// Everything that clients of this process keep, without their answers: those to orders of the last version are in the
    /// checkpoint that this goes into.
    pub(super) fn all(&self) -> BTreeMap<ClientId, Remembered> {
        let Place::Process(kept) = &self.place else {
            return BTreeMap::new();
        };
        let mut all = kept.lock().clone();
        all.values_mut().for_each(|remembered| remembered.answered = None);
        all
    }

    /// Where the plugin keeps how far it is with this order.
    pub(super) fn progress(&self, key: &Key, assignment: AssignmentId, version: u64) -> Arc<dyn Progress> {
        let place = match &self.place {
            Place::Disk(store) => Kept::Disk(store.clone(), name("progress", key)),
            Place::Process(_) => Kept::Process(Mutex::default()),
        };
        Arc::new(OrderProgress {
            of: (assignment, version),
            place,
        })
    }
}

fn name(what: &str, (run, client): &Key) -> String {
    format!("{what}/{}/{}", run.0, client.0)
}

/// Whoever may call a client could fill its disk with runs.
fn make_room(store: &Store, run: &RunId) -> Result<(), TaskError> {
    let runs = store.runs();
    let mut known: Vec<RunId> = runs.get(RUNS).map_err(store_error)?.unwrap_or_default();
    if known.contains(run) {
        return Ok(());
    }
    known.push(run.clone());
    while known.len() > MOST_RUNS {
        let oldest = known.remove(0);
        for what in ["client", "progress"] {
            for name in runs
                .names(&format!("{what}/{}/", oldest.0))
                .map_err(store_error)?
            {
                runs.remove(&name).map_err(store_error)?;
            }
        }
    }
    runs.put(RUNS, &known).map_err(store_error)
}

/// How far one order is.
struct OrderProgress {
    of: (AssignmentId, u64),
    place: Kept,
}

enum Kept {
    Disk(Store, String),
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
            Kept::Disk(store, name) => {
                let record = Record {
                    of: self.of,
                    progress,
                };
                store.runs().put(name, &record).map_err(store_error)
            }
            Kept::Process(kept) => {
                *kept.lock() = Some(progress);
                Ok(())
            }
        }
    }

    fn load(&self) -> Option<Vec<u8>> {
        match &self.place {
            Kept::Disk(store, name) => {
                let record: Record = store.runs().get(name).ok()??;
                (record.of == self.of).then_some(record.progress)
            }
            Kept::Process(kept) => kept.lock().clone(),
        }
    }
}
