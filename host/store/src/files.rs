//! Files that are there whole or not at all.

use crate::StoreError;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Files that are being written; those that a crash left are swept away at the next start.
const UNFINISHED: &str = ".new-";

/// The mode bit of folders that many users share, such as `/tmp`: who may write there may not remove what others wrote.
const STICKY: u32 = 0o1000;

/// Makes a folder that only this user can enter, or makes an existing one so.
///
/// # Errors
/// [`StoreError::Shared`] for one that many users share: it is left to them.
pub(crate) fn private_dir(dir: &Path) -> Result<(), StoreError> {
    let known = fs::metadata(dir).ok().filter(fs::Metadata::is_dir);
    let mode = known.map_or(0, |known| known.permissions().mode());
    if mode & STICKY != 0 {
        return Err(StoreError::Shared { path: dir.into() });
    }
    if mode & 0o7777 == 0o700 {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .and_then(|()| fs::set_permissions(dir, Permissions::from_mode(0o700)))
        .map_err(StoreError::io(dir))
}

/// Writes a file of mode 0600 that replaces what had this name: the bytes reach the disk before the name does, and the
/// name before this returns.
pub(crate) fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let path = dir.join(name);
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(dir)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        sync_dir(dir)
    };
    write().map_err(StoreError::io(&path))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Has a folder for one process alone, until what is returned is dropped or the process ends; waits for another that has it.
pub(crate) fn alone(dir: &Path) -> Result<File, StoreError> {
    let folder = File::open(dir).map_err(StoreError::io(dir))?;
    folder.lock().map_err(StoreError::io(dir))?;
    Ok(folder)
}

/// Removes what [`write()`] did not finish.
pub(crate) fn sweep(dir: &Path) -> Result<(), StoreError> {
    let sweep = || -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(UNFINISHED.as_bytes())
            {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    };
    sweep().map_err(StoreError::io(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_users_share_is_left_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let mode = || fs::metadata(folder.path()).unwrap().permissions().mode() & 0o7777;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        let error = private_dir(folder.path()).unwrap_err();
        assert!(matches!(error, StoreError::Shared { .. }), "{error}");
        assert_eq!(mode(), 0o1777);
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        private_dir(folder.path()).unwrap();
        assert_eq!(mode(), 0o700);
    }
}
