//! How much room the disk has.
//!
//! A disk is shared with others, and what ends or frees something has to be written as well. So large things are not begun where they
//! would leave little ([`reserve`]), and of the database nothing is written at all where there is next to nothing ([`FLOOR`]): redb reads
//! no more either once a write has failed. Where others have taken all of it, the [`Ballast`] is what a node starts with, and makes room.

use crate::StoreError;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes that have to be free for a transaction.
pub(crate) const FLOOR: u64 = 1 << 20;
/// The most bytes of a disk that are left free.
const MOST_RESERVED: u64 = 64 << 20;
/// A part of a small disk is left free: one of so many.
const PART: u64 = 50;

/// The room of the disk that a database is on.
pub(crate) trait Room: Send + Sync {
    /// Whether a transaction may be begun.
    fn has_floor(&self) -> bool;
    /// Takes room that nobody needs now, where there is enough of it.
    fn hold(&self);
    /// Gives that back, for what makes more.
    fn let_go(&self);
}

/// A file in a folder that only takes room.
pub(crate) struct Ballast(PathBuf);

impl Ballast {
    const BYTES: u64 = 4 * FLOOR;

    pub(crate) fn of(folder: &Path) -> Self {
        Self(folder.into())
    }

    fn path(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Room for Ballast {
    fn has_floor(&self) -> bool {
        room(&self.0).is_none_or(|room| room.free >= FLOOR)
    }

    fn hold(&self) {
        let path = self.path();
        if path.exists() || take(&self.0, Self::BYTES).is_err() {
            return;
        }
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let held = made.and_then(|file| Ok(fallocate(&file, FallocateFlags::empty(), 0, Self::BYTES)?));
        if let Err(error) = held {
            // Not every file system can; a full disk has to be emptied by others then.
            tracing::debug!(%error, "no room is held for when the disk is full");
            self.let_go();
        }
    }

    fn let_go(&self) {
        let _ = fs::remove_file(self.path());
    }
}

struct Space {
    free: u64,
    disk: u64,
}

/// What the disk of this folder says; nothing where it says nothing.
fn room(folder: &Path) -> Option<Space> {
    let disk = statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Some(Space {
        free: bytes(disk.f_bavail),
        disk: bytes(disk.f_blocks),
    })
}

/// Whether a file of so many bytes leaves enough.
///
/// # Errors
/// That the disk is full.
pub(crate) fn take(folder: &Path, bytes: u64) -> Result<(), StoreError> {
    match room(folder) {
        Some(room) if room.free < bytes.saturating_add(reserve(room.disk)) => {
            Err(StoreError::io(folder)(io::ErrorKind::StorageFull.into()))
        }
        _ => Ok(()),
    }
}

/// What is left free of a disk of this size.
const fn reserve(disk: u64) -> u64 {
    let part = disk / PART;
    if part < MOST_RESERVED { part } else { MOST_RESERVED }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::ErrorKind;

    #[test]
    fn what_would_fill_the_disk_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let room = room(folder.path()).unwrap();
        assert!(room.free <= room.disk);
        take(folder.path(), 0).unwrap();
        for bytes in [room.disk, u64::MAX] {
            let error = take(folder.path(), bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().ends_with("; free space there"), "{error}");
        }
    }

    #[test]
    fn room_is_held_until_it_is_needed() {
        let folder = tempfile::tempdir().unwrap();
        let ballast = Ballast::of(folder.path());
        assert!(ballast.has_floor());
        for _ in 0..2 {
            ballast.hold();
            assert_eq!(fs::metadata(ballast.path()).unwrap().len(), Ballast::BYTES);
        }
        ballast.let_go();
        assert!(!ballast.path().exists());
        ballast.let_go();
    }

    #[test]
    fn a_small_disk_keeps_a_part_of_it_free() {
        assert_eq!(reserve(100 << 20), 2 << 20);
        assert_eq!(reserve(1 << 40), MOST_RESERVED);
    }
}
