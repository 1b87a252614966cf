//! The file of the database, which is opened anew after the disk was full.
//!
//! After an error of the disk redb does nothing more until it is opened again. An error for want of space leaves no doubt of what is on the
//! disk: the transaction is wholly there or not at all, and the file says which. So it is opened anew, and the node goes on when there is
//! room. After any other error nobody knows what of it the disk has: that is for whoever starts the node again.

use crate::StoreError;
use parking_lot::{Mutex, RwLock};
use redb::{Database, DatabaseError, ReadTransaction, ReadableDatabase, WriteTransaction};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The least time from one opening to the next: it takes as long as there is much in the file.
const PAUSE: Duration = Duration::from_secs(5);

type Open = Box<dyn Fn() -> Result<Database, DatabaseError> + Send + Sync>;

/// A database, and how it is opened.
pub(crate) struct File {
    path: PathBuf,
    open: Open,
    pause: Duration,
    /// Nothing where it could not be opened anew. Whoever writes holds the lock. Who reads while it is opened anew gets an error, and tries
    /// again.
    database: RwLock<Option<Database>>,
    /// What was wrong with the last transaction.
    failed: Mutex<Option<Failed>>,
}

#[derive(Clone)]
struct Failed {
    /// Whether the disk was full.
    full: bool,
    /// What the error said, where it was another.
    says: String,
    /// Whether it has to be opened anew.
    shut: bool,
    /// When that was tried.
    tried: Option<Instant>,
}

impl File {
    /// The database in this file.
    ///
    /// # Errors
    /// What redb says.
    pub(crate) fn open(
        path: &Path,
        open: impl Fn() -> Result<Database, DatabaseError> + Send + Sync + 'static,
    ) -> Result<Self, DatabaseError> {
        Ok(Self {
            path: path.into(),
            pause: PAUSE,
            database: RwLock::new(Some(open()?)),
            open: Box::new(open),
            failed: Mutex::default(),
        })
    }

    pub(crate) fn read(&self) -> Result<ReadTransaction, StoreError> {
        self.mend();
        // Those who write may read meanwhile, whoever waits for the lock.
        let database = self.database.read_recursive();
        let database = database.as_ref().ok_or_else(|| self.full())?;
        Ok(database.begin_read()?)
    }

    /// Commits what `change` did, durably, or on its error nothing.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.mend();
        let database = self.database.read_recursive();
        let database = database.as_ref().ok_or_else(|| self.full())?;
        let written = written(database, change).map_err(|error| self.note(error))?;
        // Another one may have failed just now.
        self.failed.lock().take_if(|failed| !failed.shut);
        Ok(written)
    }

    /// Why nothing can be written, as far as the last transaction has shown.
    pub(crate) fn trouble(&self) -> Option<String> {
        let failed = self.failed.lock();
        failed.as_ref().map(|failed| match failed.full {
            true => self.full().to_string(),
            false => failed.says.clone(),
        })
    }

    /// Remembers an error of the disk, and says what it means.
    fn note(&self, error: StoreError) -> StoreError {
        let StoreError::Database(of) = &error else {
            return error;
        };
        let mut failed = self.failed.lock();
        let full = match &**of {
            redb::Error::Io(of) => is_full(of),
            // It is told no better a second time.
            redb::Error::PreviousIo => failed.as_ref().is_some_and(|failed| failed.full && failed.shut),
            _ => return error,
        };
        *failed = Some(Failed {
            full,
            says: error.to_string(),
            shut: true,
            tried: failed.as_ref().and_then(|failed| failed.tried),
        });
        match full {
            true => self.full(),
            false => error,
        }
    }

    fn full(&self) -> StoreError {
        StoreError::io(&self.path)(io::ErrorKind::StorageFull.into())
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
        let opened = (self.open)();
        if let Some(failed) = &mut *self.failed.lock() {
            failed.shut = opened.is_err();
            failed.tried = Some(Instant::now());
            if let Err(error) = &opened {
                // What another error means nobody knows.
                failed.full =
                    matches!(error, DatabaseError::Storage(redb::StorageError::Io(error)) if is_full(error));
                failed.says = format!("the database cannot be opened again: {error}; restart the node");
            }
        }
        match opened {
            Ok(opened) => {
                tracing::info!(path = %self.path.display(), "the database is opened anew after the disk was full");
                *database = Some(opened);
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the database is not opened anew yet");
            }
        }
    }

    fn may_open(&self) -> bool {
        let failed = self.failed.lock();
        failed.as_ref().is_some_and(|failed| {
            let rested = failed.tried.is_none_or(|tried| tried.elapsed() >= self.pause);
            failed.full && failed.shut && rested
        })
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

/// Whether an error says that the disk, or this user's part of it, has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::ErrorKind;
    use redb::backends::InMemoryBackend;
    use redb::{StorageBackend, TableDefinition};
    use std::sync::Arc;

    const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("table");

    /// A disk that outlives the database on it.
    #[derive(Clone, Debug, Default)]
    struct Disk {
        bytes: Arc<InMemoryBackend>,
        refuses: Arc<Mutex<Option<io::ErrorKind>>>,
    }

    impl Disk {
        fn takes(&self) -> io::Result<()> {
            let refuses = *self.refuses.lock();
            refuses.map_or(Ok(()), |kind| Err(kind.into()))
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.bytes.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.bytes.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.takes()?;
            self.bytes.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.bytes.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.takes()?;
            self.bytes.write(offset, data)
        }
    }

    fn on(disk: &Disk) -> File {
        let disk = disk.clone();
        let open = move || Database::builder().create_with_backend(disk.clone());
        File {
            pause: Duration::ZERO,
            ..File::open(Path::new("/node/state.redb"), open).unwrap()
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
    fn it_goes_on_when_a_full_disk_has_room_again() {
        let disk = Disk::default();
        let file = on(&disk);
        put(&file, 1).unwrap();
        *disk.refuses.lock() = Some(io::ErrorKind::StorageFull);
        for _ in 0..3 {
            let error = put(&file, 2).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().ends_with("; free space there"), "{error}");
        }
        assert!(file.trouble().unwrap().contains("/node/state.redb"));
        *disk.refuses.lock() = None;
        put(&file, 3).unwrap();
        assert_eq!(file.trouble(), None);
        assert_eq!([1, 2, 3].map(|key| has(&file, key)), [true, false, true]);
    }

    #[test]
    fn after_another_error_of_the_disk_it_stays_shut() {
        let disk = Disk::default();
        let file = on(&disk);
        *disk.refuses.lock() = Some(io::ErrorKind::Other);
        put(&file, 1).unwrap_err();
        *disk.refuses.lock() = None;
        let error = put(&file, 2).unwrap_err();
        assert!(error.to_string().contains("restart the node"), "{error}");
        assert!(file.trouble().is_some());
    }
}
