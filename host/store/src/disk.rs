//! The file of the database as redb uses it, which remembers what failed first since it was opened.

use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::FileBackend;
use std::io;
use std::sync::Arc;

/// What failed first, and what that leaves of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The disk took nothing, for this reason: the last transaction is wholly there or not at all, and the file says which.
    Refused(io::ErrorKind),
    /// Something could not be read, and nothing was changed by that.
    Unread(String),
    /// Nobody knows what of the last transaction the disk has. After an error while it was forced to the disk, that is so even
    /// where the file reads well: what was not written may be in the memory of the system alone.
    Unsure(String),
}

/// Where [`Disk`] leaves what failed first.
pub(crate) type Faults = Arc<Mutex<Option<Fault>>>;

/// A file that leaves word of what fails. The folder of the store has a lock of its own, so this one needs none.
#[derive(Debug)]
pub(crate) struct Disk<B = FileBackend> {
    file: B,
    faults: Faults,
}

impl<B> Disk<B> {
    pub(crate) fn new(file: B, faults: &Faults) -> Self {
        Self {
            file,
            faults: faults.clone(),
        }
    }

    fn noted<T>(&self, outcome: io::Result<T>, fault: impl FnOnce(&io::Error) -> Fault) -> io::Result<T> {
        if let Err(error) = &outcome {
            self.faults.lock().get_or_insert_with(|| fault(error));
        }
        outcome
    }
}

impl<B: StorageBackend> StorageBackend for Disk<B> {
    fn len(&self) -> io::Result<u64> {
        self.noted(self.file.len(), unread)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.noted(self.file.read(offset, out), unread)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.noted(self.file.set_len(len), unwritten)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.noted(self.file.sync_data(), unsure)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.noted(self.file.write(offset, data), unwritten)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

fn unread(error: &io::Error) -> Fault {
    Fault::Unread(error.to_string())
}

fn unwritten(error: &io::Error) -> Fault {
    match takes_nothing(error) {
        true => Fault::Refused(error.kind()),
        false => unsure(error),
    }
}

fn unsure(error: &io::Error) -> Fault {
    Fault::Unsure(error.to_string())
}

/// Whether an error says that the disk, or this user's part of it, has no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Whether an error says that nothing was written, and that it may be later.
pub(crate) fn takes_nothing(error: &io::Error) -> bool {
    is_full(error) || error.kind() == io::ErrorKind::ReadOnlyFilesystem
}
