//! How much room the disk has.
//!
//! A disk is shared with others, and what ends or frees something has to be written as well. So large things are not begun where they
//! would leave little ([`reserve`]), and of the database nothing is written at all where there is next to nothing ([`FLOOR`]): redb reads
//! no more either once a write has failed.

use crate::StoreError;
use rustix::fs::statvfs;
use std::io;
use std::path::Path;

/// Bytes that have to be free for a transaction.
pub(crate) const FLOOR: u64 = 1 << 20;
/// The most bytes of a disk that are left free.
const MOST_RESERVED: u64 = 64 << 20;
/// A part of a small disk is left free: one of so many.
const PART: u64 = 50;

struct Room {
    free: u64,
    disk: u64,
}

/// What the disk of this folder says; nothing where it says nothing.
fn room(folder: &Path) -> Option<Room> {
    let disk = statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Some(Room {
        free: bytes(disk.f_bavail),
        disk: bytes(disk.f_blocks),
    })
}

/// Whether a transaction of the database may be begun.
pub(crate) fn has_floor(folder: &Path) -> bool {
    room(folder).is_none_or(|room| room.free >= FLOOR)
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
        assert!(has_floor(folder.path()));
        for bytes in [room.disk, u64::MAX] {
            let error = take(folder.path(), bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().ends_with("; free space there"), "{error}");
        }
    }

    #[test]
    fn a_small_disk_keeps_a_part_of_it_free() {
        assert_eq!(reserve(100 << 20), 2 << 20);
        assert_eq!(reserve(1 << 40), MOST_RESERVED);
    }
}
