//! Keys in files, the one place here that touches a disk: a secret must be written once, for its owner alone.

use crate::{KeyError, PublicKey, SecretKey};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A key file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The file cannot be read or written.
    #[error("key file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is a file already.
    #[error("key file {} exists and is not overwritten; choose another name or remove it", .0.display())]
    Exists(PathBuf),
    /// It holds no key.
    #[error("key file {}: {source}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KeyError,
    },
}

impl SecretKey {
    /// Reads the file that [`write`](Self::write) or `openssl genpkey -algorithm ed25519` wrote.
    ///
    /// # Errors
    /// The file cannot be read, or holds no secret key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        read(path, Self::from_pem)
    }

    /// Writes a new PEM file that only its owner may read. A file that exists stays as it is.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        write(path, 0o600, &self.to_pem())
    }
}

impl PublicKey {
    /// Reads the file that [`write`](Self::write) or `openssl pkey -pubout` wrote.
    ///
    /// # Errors
    /// The file cannot be read, or holds no public key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        read(path, Self::from_pem)
    }

    /// Writes a new PEM file. A file that exists stays as it is.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        write(path, 0o644, &self.to_pem())
    }
}

fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, KeyError>) -> Result<T, KeyFileError> {
    let text = fs::read_to_string(path).map_err(|source| KeyFileError::Io {
        path: path.into(),
        source,
    })?;
    parse(&text).map_err(|source| KeyFileError::Key {
        path: path.into(),
        source,
    })
}

fn write(path: &Path, mode: u32, text: &str) -> Result<(), KeyFileError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let written = options.open(path).and_then(|mut file| {
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        // Half of it would be in the way of the next try.
        written.inspect_err(|_| drop(fs::remove_file(path)))
    });
    written.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists(path.into()),
        _ => KeyFileError::Io {
            path: path.into(),
            source,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_written_once_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, public) = (folder.path().join("key"), folder.path().join("key.pub"));
        let key = SecretKey::generate();
        key.write(&secret).unwrap();
        key.public().write(&public).unwrap();
        assert_eq!(SecretKey::read(&secret).unwrap(), key);
        assert_eq!(PublicKey::read(&public).unwrap(), key.public());
        assert!(matches!(
            SecretKey::generate().write(&secret),
            Err(KeyFileError::Exists(_))
        ));
        assert!(matches!(SecretKey::read(&public), Err(KeyFileError::Key { .. })));
        assert!(matches!(
            SecretKey::read(folder.path()),
            Err(KeyFileError::Io { .. })
        ));
    }

    #[cfg(unix)]
    #[test]
    fn a_secret_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        SecretKey::generate().write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
    }
}
