//! What the clients of a node keep of runs on its disk: of so many clients, and in so many bytes.

use super::Key;
use crate::drive::fed::given::Gifts;
use karman_store::Store;
use karman_types::{ByteSize, TaskError};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The clients of which a node keeps something; what was begun first goes first.
pub(super) const MOST_CLIENTS: usize = 64;
/// The record of those clients.
const KEPT: &str = "clients-kept";
/// Sizes are written down in steps of so many bytes: most records are about as long as the one before, and cost no second write.
const STEP: u64 = 1 << 20;

/// What there is of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// What it has come to, and wants to have again.
    Client,
    /// How far its order is.
    Progress,
}

impl What {
    fn name(self, key: &Key) -> String {
        let what = match self {
            Self::Client => "client",
            Self::Progress => "progress",
        };
        format!("{what}/{}/{}/{}", key.driver, key.run.0, key.client.0)
    }
}

/// A client of which something is kept, and the most bytes that there ever were of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Row {
    key: Key,
    client: u64,
    progress: u64,
}

impl Row {
    const fn of(key: Key) -> Self {
        Self {
            key,
            client: 0,
            progress: 0,
        }
    }

    const fn bytes(&self) -> u64 {
        self.client.saturating_add(self.progress)
    }
}

pub(super) struct Disk {
    pub(super) gifts: Gifts,
    store: Store,
    /// What all clients may take.
    most: ByteSize,
    writing: Mutex<()>,
}

impl Disk {
    pub(super) fn new(store: Store, most: ByteSize) -> Self {
        Self {
            gifts: Gifts::new(store.clone()),
            store,
            most,
            writing: Mutex::default(),
        }
    }

    pub(super) fn get<T: DeserializeOwned>(&self, what: What, key: &Key) -> Result<Option<T>, TaskError> {
        self.store.runs().get(&what.name(key)).map_err(TaskError::from)
    }

    /// Keeps a record of so many bytes.
    ///
    /// # Errors
    /// `limit` where there is no room for it even when nothing else is kept; what the disk refuses.
    pub(super) fn put(
        &self,
        what: What,
        key: &Key,
        value: &impl Serialize,
        bytes: usize,
    ) -> Result<(), TaskError> {
        // Whoever makes room meanwhile would take what is not there yet for gone, and nobody would know of it afterwards.
        let _one_at_a_time = self.writing.lock();
        self.make_room(what, key, (bytes as u64).next_multiple_of(STEP))?;
        self.store
            .runs()
            .put(&what.name(key), value)
            .map_err(TaskError::from)
    }

    pub(super) fn remove(&self, what: What, key: &Key) -> Result<(), TaskError> {
        self.store
            .runs()
            .remove(&[&what.name(key)])
            .map_err(TaskError::from)
    }

    /// Whoever may call a client could fill its disk with runs, with clients of one, and with what a plugin wants to have again.
    fn make_room(&self, what: What, key: &Key, bytes: u64) -> Result<(), TaskError> {
        let mut rows = self.rows()?;
        let known = rows.iter().position(|row| row.key == *key);
        let mut row = known.map_or_else(|| Row::of(key.clone()), |place| rows[place].clone());
        let held = match what {
            What::Client => &mut row.client,
            What::Progress => &mut row.progress,
        };
        let fits = |rows: &[Row]| rows.iter().map(Row::bytes).sum::<u64>() <= self.most.0;
        if known.is_some() && *held >= bytes && fits(&rows) {
            return Ok(());
        }
        *held = bytes.max(*held);
        if row.bytes() > self.most.0 {
            return Err(self.too_much(row.bytes()));
        }
        match known {
            Some(place) => rows[place] = row,
            None => rows.push(row),
        }
        while rows.len() > MOST_CLIENTS || !fits(&rows) {
            let Some(oldest) = rows.iter().position(|row| row.key != *key) else {
                break;
            };
            let gone = rows.remove(oldest).key;
            self.remove(What::Client, &gone)?;
            self.remove(What::Progress, &gone)?;
        }
        self.store.runs().put(KEPT, &rows).map_err(TaskError::from)
    }

    fn rows(&self) -> Result<Vec<Row>, TaskError> {
        let rows = self.store.runs().get(KEPT)?;
        Ok(rows.unwrap_or_default())
    }

    fn too_much(&self, bytes: u64) -> TaskError {
        let most = self.most;
        TaskError::limit(format!(
            "what this client keeps of its run takes {} of the disk: `kept` under `[federated]` is {most}",
            ByteSize(bytes)
        ))
        .with_field("federated.kept")
        .with_hint("its operator sets it in node.toml; a smaller model takes less")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::fed::wire::RunId;
    use karman_fed::ClientId;
    use karman_types::{ErrorKind, NodeId};

    fn key(client: u64) -> Key {
        Key {
            driver: NodeId::of_key(b"driver"),
            run: RunId("0a".into()),
            client: ClientId(client),
        }
    }

    const MIB: usize = 1 << 20;

    #[test]
    fn clients_take_no_more_bytes_than_they_are_given() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Disk::new(Store::open(folder.path()).unwrap(), ByteSize::mib(10));
        let disk = open();
        let put = |disk: &Disk, what, client, bytes| {
            let put = disk.put(what, &key(client), &client, bytes);
            put.map_err(|error| (error.kind, error.field))
        };
        let there = |disk: &Disk, client| -> [bool; 2] {
            [What::Client, What::Progress].map(|what| disk.get::<u64>(what, &key(client)).unwrap().is_some())
        };
        assert_eq!(put(&disk, What::Client, 1, 3 * MIB), Ok(()));
        assert_eq!(put(&disk, What::Progress, 1, 2 * MIB), Ok(()));
        assert_eq!(put(&disk, What::Client, 2, 5 * MIB), Ok(()));
        assert_eq!((there(&disk, 1), there(&disk, 2)), ([true; 2], [true, false]));
        // It is full; what it has given is known after a restart.
        drop(disk);
        let disk = open();
        assert_eq!(put(&disk, What::Client, 3, 1), Ok(()));
        assert_eq!((there(&disk, 1), there(&disk, 2)), ([false; 2], [true, false]));
        // A client takes room from others, whichever was begun first, and never from itself.
        assert_eq!(put(&disk, What::Progress, 2, 4 * MIB), Ok(()));
        assert_eq!(there(&disk, 3), [true, false]);
        assert_eq!(put(&disk, What::Progress, 2, 5 * MIB), Ok(()));
        assert_eq!((there(&disk, 2), there(&disk, 3)), ([true; 2], [false; 2]));
        let over = Err((ErrorKind::Limit, Some("federated.kept".to_owned())));
        assert_eq!(put(&disk, What::Client, 4, 11 * MIB), over);
        assert_eq!(put(&disk, What::Client, 2, 6 * MIB), over);
        assert_eq!((there(&disk, 2), there(&disk, 4)), ([true; 2], [false; 2]));
    }

    #[test]
    fn of_clients_that_write_at_once_nothing_is_kept_that_nobody_knows_of() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(Store::open(folder.path()).unwrap(), ByteSize::mib(2));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let disk = &disk;
                scope.spawn(move || {
                    for client in (0..8).map(|turn| 8 * turn + thread) {
                        disk.put(What::Client, &key(client), &client, MIB).unwrap();
                    }
                });
            }
        });
        let known: Vec<Key> = disk.rows().unwrap().into_iter().map(|row| row.key).collect();
        let kept = |client: &u64| disk.get::<u64>(What::Client, &key(*client)).unwrap().is_some();
        let kept: Vec<Key> = (0..64).filter(kept).map(key).collect();
        assert_eq!((known.len(), kept.len()), (2, 2));
        assert!(kept.iter().all(|key| known.contains(key)));
    }
}
