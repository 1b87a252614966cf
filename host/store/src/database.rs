//! The file of the database, which is opened anew after the disk has refused something.
//!
//! After an error of the disk redb does nothing more until it is opened again, reading included. Where the error leaves no doubt of what is
//! on the disk, as when it is full, the file is opened anew, and the node goes on as soon as it can. Where it does, nobody knows what of
//! the last transaction the disk has: that is for whoever starts the node again.

use crate::StoreError;
use crate::compact::{LEAST, compact};
use crate::disk::{Fault, Faults};
use crate::room::Room;
use parking_lot::{Mutex, RwLock};
use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase, StorageError, WriteTransaction};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The least time from one opening to the next: it takes as long as there is much in the file.
const PAUSE: Duration = Duration::from_secs(5);

type Open = Box<dyn Fn(&Faults) -> Result<Database, DatabaseError> + Send + Sync>;

/// A database, and how it is opened.
pub(crate) struct File {
    path: PathBuf,
    open: Open,
    /// Nothing is written where the disk has none: what is never begun need not be mended.
    room: Box<dyn Room>,
    pause: Duration,
    /// Nothing where it could not be opened anew. Whoever writes holds the lock. Who reads while it is opened anew waits.
    database: RwLock<Option<Database>>,
    /// What has failed since it was opened.
    faults: Faults,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Why nothing can be written, until something was.
    trouble: Option<String>,
    /// When it was last opened anew, or that was tried.
    tried: Option<Instant>,
}

impl File {
    /// The database in this file.
    ///
    /// # Errors
    /// What redb says.
    pub(crate) fn open(
        path: &Path,
        room: impl Room + 'static,
        open: impl Fn(&Faults) -> Result<Database, DatabaseError> + Send + Sync + 'static,
    ) -> Result<Self, DatabaseError> {
        let faults = Faults::default();
        Ok(Self {
            path: path.into(),
            pause: PAUSE,
            database: RwLock::new(Some(open(&faults)?)),
            open: Box::new(open),
            room: Box::new(room),
            faults,
            state: Mutex::default(),
        })
    }

    /// Gives back to the disk what the file does not need, before anybody uses it. Where that fails, the next one who does hears of it.
    pub(crate) fn compact(&self) {
        let mut database = self.database.write();
        let Some(database) = database.as_mut() else { return };
        if let Err(error) = compact(database, &self.path, LEAST).map_err(|error| self.note(error)) {
            tracing::warn!(path = %self.path.display(), %error, "the database is not compacted");
        }
    }

    pub(crate) fn read(&self) -> Result<ReadTransaction, StoreError> {
        self.mend();
        // Those who write may read meanwhile, whoever waits for the lock.
        let database = self.database.read_recursive();
        let database = database.as_ref().ok_or_else(|| self.closed())?;
        Ok(database.begin_read()?)
    }

    /// Commits what `change` did, durably, or on its error nothing.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !self.room.has_floor() {
            let full = self.refused(io::ErrorKind::StorageFull);
            self.state.lock().trouble = Some(full.to_string());
            return Err(full);
        }
        self.commit(change)
    }

    /// The same on a full disk too, for what frees room there.
    pub(crate) fn write_anyway<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !self.room.has_floor() {
            self.room.let_go();
        }
        self.commit(change)
    }

    fn commit<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.mend();
        let database = self.database.read_recursive();
        let database = database.as_ref().ok_or_else(|| self.closed())?;
        let written = written(database, change).map_err(|error| self.note(error))?;
        // Another one may have failed just now.
        if self.faults.lock().is_none() {
            self.state.lock().trouble = None;
        }
        Ok(written)
    }

    /// Holds room for when there is none, where there is enough now.
    pub(crate) fn hold_room(&self) {
        self.room.hold();
    }

    /// Why nothing can be written, as far as is known.
    pub(crate) fn trouble(&self) -> Option<String> {
        let fault = self.faults.lock().clone();
        let trouble = self.state.lock().trouble.clone();
        trouble.or_else(|| Some(self.told(fault?).to_string()))
    }

    /// Why it stays shut until whoever has it starts again, if it does.
    pub(crate) fn shut(&self) -> Option<String> {
        let fault = self.faults.lock().clone();
        let fault = fault.filter(|fault| matches!(fault, Fault::Unsure(_)))?;
        Some(self.told(fault).to_string())
    }

    /// Remembers an error of the disk, and says what it means.
    fn note(&self, error: StoreError) -> StoreError {
        let StoreError::Database(_) = &error else {
            return error;
        };
        let fault = self.faults.lock().clone();
        let Some(fault) = fault else { return error };
        let told = self.told(fault);
        self.state.lock().trouble = Some(told.to_string());
        told
    }

    /// What a fault means for whoever meets it.
    fn told(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::Refused(kind) => self.refused(kind),
            Fault::Unread(code, says) => StoreError::io(&self.path)(
                code.map_or_else(|| io::Error::other(says), io::Error::from_raw_os_error),
            ),
            Fault::Unsure(says) => StoreError::Shut {
                path: self.path.clone(),
                says,
            },
        }
    }

    fn refused(&self, kind: io::ErrorKind) -> StoreError {
        StoreError::io(&self.path)(kind.into())
    }

    /// Why there is no database.
    fn closed(&self) -> StoreError {
        let fault = self.faults.lock().clone();
        let closed = || StoreError::Database(Box::new(redb::Error::DatabaseClosed));
        fault.map_or_else(closed, |fault| self.told(fault))
    }

    /// Opens the database anew where that may help.
    fn mend(&self) {
        if !self.may_open() {
            return;
        }
        // Who holds it finds out what is the matter, and the next one comes here.
        let Some(mut database) = self.database.try_write() else {
            return;
        };
        if !self.may_open() {
            return;
        }
        // It has to be closed before: only one may have the file.
        *database = None;
        let fault = self.faults.lock().take();
        let opened = (self.open)(&self.faults);
        let mut state = self.state.lock();
        state.tried = Some(Instant::now());
        match opened {
            Ok(opened) => {
                tracing::info!(path = %self.path.display(), "the database is opened anew after an error of the disk");
                *database = Some(opened);
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the database cannot be opened anew yet");
                let mut faults = self.faults.lock();
                *faults = match error {
                    DatabaseError::Storage(StorageError::Corrupted(says)) => Some(Fault::Unsure(says)),
                    _ => faults.take().or(fault),
                };
                state.trouble = faults.clone().map(|fault| self.told(fault).to_string());
            }
        }
    }

    fn may_open(&self) -> bool {
        let may = match &*self.faults.lock() {
            Some(Fault::Refused(_)) => self.room.has_floor(),
            Some(Fault::Unread(..)) => true,
            Some(Fault::Unsure(_)) | None => false,
        };
        may && self
            .state
            .lock()
            .tried
            .is_none_or(|tried| tried.elapsed() >= self.pause)
    }
}

fn written<T>(
    database: &Database,
    change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let txn = database.begin_write()?;
    let result = change(&txn)?;
    txn.commit()?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use karman_types::ErrorKind;
    use redb::backends::InMemoryBackend;
    use redb::{StorageBackend, TableDefinition};
    use rustix::io::Errno;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("table");

    /// A disk that outlives the database on it.
    #[derive(Clone, Debug, Default)]
    struct Medium {
        bytes: Arc<InMemoryBackend>,
        refuses: Arc<Mutex<Refuses>>,
    }

    #[derive(Debug, Default)]
    struct Refuses {
        reads: Option<Errno>,
        writes: Option<Errno>,
        syncs: Option<Errno>,
    }

    fn takes(refuses: Option<Errno>) -> io::Result<()> {
        refuses.map_or(Ok(()), |code| Err(code.into()))
    }

    impl StorageBackend for Medium {
        fn len(&self) -> io::Result<u64> {
            self.bytes.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            takes(self.refuses.lock().reads)?;
            self.bytes.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            takes(self.refuses.lock().writes)?;
            self.bytes.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            takes(self.refuses.lock().syncs)?;
            self.bytes.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            takes(self.refuses.lock().writes)?;
            self.bytes.write(offset, data)
        }
    }

    fn on(medium: &Medium) -> File {
        with_room(medium, &HasRoom::default())
    }

    /// Whether it is full, and whether room is held.
    #[derive(Clone, Default)]
    struct HasRoom(Arc<[AtomicBool; 2]>);

    impl Room for HasRoom {
        fn has_floor(&self) -> bool {
            !self.0[0].load(Ordering::Relaxed)
        }

        fn hold(&self) {
            self.0[1].store(true, Ordering::Relaxed);
        }

        fn let_go(&self) {
            self.0[1].store(false, Ordering::Relaxed);
        }
    }

    fn with_room(medium: &Medium, room: &HasRoom) -> File {
        let medium = medium.clone();
        let open = move |faults: &Faults| {
            let mut builder = Database::builder();
            // Without a cache every page is read from the disk.
            builder.set_cache_size(0);
            builder.create_with_backend(Disk::new(medium.clone(), faults))
        };
        File {
            pause: Duration::ZERO,
            ..File::open(Path::new("/node/state.redb"), room.clone(), open).unwrap()
        }
    }

    fn put(file: &File, key: u64) -> Result<(), StoreError> {
        file.write(|txn| {
            txn.open_table(TABLE)?.insert(key, [7_u8; 1 << 16].as_slice())?;
            Ok(())
        })
    }

    fn has(file: &File, key: u64) -> bool {
        let table = file.read().unwrap().open_table(TABLE).unwrap();
        table.get(key).unwrap().is_some()
    }

    #[test]
    fn it_goes_on_when_a_disk_takes_something_again() {
        for (code, advice) in [
            (Errno::NOSPC, "; free space there"),
            (Errno::ROFS, "mount it for writing"),
        ] {
            let medium = Medium::default();
            let file = on(&medium);
            put(&file, 1).unwrap();
            medium.refuses.lock().writes = Some(code);
            for _ in 0..3 {
                let error = put(&file, 2).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains(advice), "{error}");
                assert_eq!(file.shut(), None);
            }
            assert!(file.trouble().unwrap().contains("/node/state.redb"));
            medium.refuses.lock().writes = None;
            put(&file, 3).unwrap();
            assert_eq!(file.trouble(), None);
            assert_eq!([1, 2, 3].map(|key| has(&file, key)), [true, false, true]);
        }
    }

    #[test]
    fn where_there_is_no_room_nothing_is_begun_and_all_of_it_reads() {
        let (medium, room) = (Medium::default(), HasRoom::default());
        let [full, holds] = &*room.0;
        let file = with_room(&medium, &room);
        room.hold();
        put(&file, 1).unwrap();
        full.store(true, Ordering::Relaxed);
        let error = put(&file, 2).unwrap_err();
        assert!(error.to_string().ends_with("; free space there"), "{error}");
        assert!(file.trouble().is_some());
        assert_eq!([1, 2].map(|key| has(&file, key)), [true, false]);
        assert!(holds.load(Ordering::Relaxed));
        // What frees room is written.
        file.write_anyway(|txn| Ok(txn.open_table(TABLE)?.remove(1).map(drop)?))
            .unwrap();
        assert!(!has(&file, 1) && !holds.load(Ordering::Relaxed));
        put(&file, 2).unwrap_err();
        full.store(false, Ordering::Relaxed);
        put(&file, 2).unwrap();
        assert_eq!(file.trouble(), None);
        file.hold_room();
        assert!(holds.load(Ordering::Relaxed));
    }

    #[test]
    fn what_could_not_be_read_is_read_again() {
        let medium = Medium::default();
        let file = on(&medium);
        put(&file, 1).unwrap();
        medium.refuses.lock().reads = Some(Errno::IO);
        let read = || -> Result<bool, StoreError> {
            let table = file.read()?.open_table(TABLE)?;
            Ok(table.get(1)?.is_some())
        };
        let error = read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(file.trouble().is_some());
        medium.refuses.lock().reads = None;
        assert!(read().unwrap());
        put(&file, 2).unwrap();
        assert_eq!(file.trouble(), None);
    }

    #[test]
    fn after_an_error_that_leaves_a_doubt_it_stays_shut() {
        let writes = |refuses: &mut Refuses, code| refuses.writes = code;
        // What was written before a sync that fails may be lost, whatever the reason.
        let syncs = |refuses: &mut Refuses, code| refuses.syncs = code;
        let ways: [(fn(&mut Refuses, _), _); 2] = [(writes, Errno::IO), (syncs, Errno::NOSPC)];
        for (refuse, code) in ways {
            let medium = Medium::default();
            let file = on(&medium);
            refuse(&mut medium.refuses.lock(), Some(code));
            put(&file, 1).unwrap_err();
            refuse(&mut medium.refuses.lock(), None);
            let error = put(&file, 2).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("start the node again"), "{error}");
            assert!(file.trouble().is_some() && file.shut() == Some(error.to_string()));
        }
    }
}
