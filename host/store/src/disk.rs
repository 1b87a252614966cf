//! The file of the database as redb uses it, which remembers what failed first since it was opened.

use parking_lot::Mutex;
use redb::StorageBackend;
use redb::backends::FileBackend;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// What failed first, and what that leaves of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The disk took nothing, for this reason: the last transaction is wholly there or not at all, and the file says which.
    Refused(io::ErrorKind),
    /// Something could not be read, and nothing was changed by that: the code of the system, where it was the system that refused.
    Unread(Option<i32>, String),
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
    Fault::Unread(error.raw_os_error(), error.to_string())
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

/// Whether an error is one of the disk, and not of what was asked of it: it takes nothing, fails, or is gone.
pub(crate) fn is_of_disk(error: &io::Error) -> bool {
    takes_nothing(error) || error.raw_os_error().is_some_and(|code| FAILS.contains(&code))
}

/// What the system says of a disk that fails or is gone. `BADMSG` and `UCLEAN` are checksums and structures that do not hold;
/// `NOTCONN` and `HOSTDOWN` say that the server of a file system is gone.
const FAILS: &[i32] = &[
    Errno::IO.raw_os_error(),
    Errno::NXIO.raw_os_error(),
    Errno::NODEV.raw_os_error(),
    Errno::STALE.raw_os_error(),
    Errno::TIMEDOUT.raw_os_error(),
    Errno::BADMSG.raw_os_error(),
    Errno::NOTCONN.raw_os_error(),
    Errno::HOSTDOWN.raw_os_error(),
    #[cfg(target_os = "linux")]
    Errno::UCLEAN.raw_os_error(),
    #[cfg(target_os = "linux")]
    Errno::REMOTEIO.raw_os_error(),
    #[cfg(target_os = "linux")]
    Errno::NOMEDIUM.raw_os_error(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_disk_is_what_the_system_says_of_it() {
        for code in [
            Errno::IO,
            Errno::NODEV,
            Errno::STALE,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::ROFS,
        ] {
            assert!(is_of_disk(&io::Error::from(code)), "{code}");
        }
        for code in [
            Errno::NOENT,
            Errno::ACCESS,
            Errno::MFILE,
            Errno::INVAL,
            Errno::NAMETOOLONG,
        ] {
            assert!(!is_of_disk(&io::Error::from(code)), "{code}");
        }
        for own in [
            io::ErrorKind::Other,
            io::ErrorKind::InvalidData,
            io::ErrorKind::UnexpectedEof,
        ] {
            assert!(!is_of_disk(&io::Error::new(own, "said by the program")), "{own}");
        }
    }
}
