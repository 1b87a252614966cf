use crate::StoreLimits;
use crate::disk::{is_full, is_of_disk};
use karman_types::{Digest, ErrorKind, Grant, TaskError};
use semver::Version;
use std::io;
use std::path::{Path, PathBuf};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is in use by {holder}; stop {}, or give this one a folder of its own", dir.display(),
        command.as_ref().map_or_else(|| "that node".into(), |command| format!("`{command}`")))]
    Locked {
        /// The store's folder.
        dir: PathBuf,
        /// `process N`, or `another process` where it did not say which.
        holder: String,
        /// What that is, where it [has said](crate::Store::held_by) so; else a node.
        command: Option<String>,
    },
    /// The database is damaged or no database.
    #[error(
        "{} is damaged ({problem}); restore it from a backup, or move it away to start empty (keys/ and blobs/ are \
         files of their own and can stay)", path.display()
    )]
    Corrupt {
        /// The database file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A newer Karman wrote it.
    #[error("{} has format {found}; this version reads format {known}: use the Karman that wrote it, or a later one", dir.display())]
    Newer {
        /// The store's folder.
        dir: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format that this version reads.
        known: u64,
    },
    /// The folder or what is in it cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a store did not do what it was asked. Nothing has changed when one is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Something is longer or more than the configuration allows.
    #[error("`{field}` has {value}; {most} is the most{}", raise(field))]
    Limit {
        /// The limit's name in [`StoreLimits`], or what there are too many of where no key says how many may be.
        field: &'static str,
        /// What there is, in bytes or entries.
        value: u64,
        /// What may be, in bytes or entries.
        most: u64,
    },
    /// A text that cannot name anything.
    #[error(
        "`{text}` is not a name for a {field}: use 1 to {most} bytes without spaces, control characters and `*`"
    )]
    Name {
        /// What it should name.
        field: &'static str,
        /// The beginning of the text.
        text: String,
        /// The most bytes that such a name may have.
        most: usize,
    },
    /// A text that cannot name a model: no right covers it, so nobody could ask for it at a gateway.
    #[error("`{text}` is not a name for a model: use 1 to {most} letters, digits and `-_./:@#+~`")]
    ModelName {
        /// The beginning of the text.
        text: String,
        /// The most characters that such a name may have.
        most: usize,
    },
    /// Exits of a model that cannot be.
    #[error(
        "the exits of `{name}` do not fit: {problem}; each is an output with its accuracy, from shallow to deep"
    )]
    Exits {
        /// The model.
        name: String,
        /// What is wrong with them.
        problem: String,
    },
    /// A bucket has no room.
    #[error(
        "bucket `{bucket}` would hold {bytes} bytes; {quota} is its quota: delete something, or raise \
             `quotas.{bucket}` under [store] in node.toml"
    )]
    Full {
        /// The bucket.
        bucket: String,
        /// What it would hold, keys and values together.
        bytes: u64,
        /// What it may hold.
        quota: u64,
    },
    /// A value that cannot be incremented.
    #[error("`{key}` in bucket `{bucket}` {problem}; set it to a number below 2^64 in decimal digits first")]
    Increment {
        /// The bucket.
        bucket: String,
        /// The key.
        key: String,
        /// What is wrong with the value.
        problem: &'static str,
    },
    /// There is no such thing.
    #[error("there is no {what} `{name}` here")]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// Bytes are not those that were promised.
    #[error(
        "`{name}` has digest {found}, not {expected}: the bytes were changed on the way; fetch them again"
    )]
    Mismatch {
        /// What it is.
        name: String,
        /// The digest it should have.
        expected: Digest,
        /// The digest it has.
        found: Digest,
    },
    /// An older version in the place of a newer one.
    #[error(
        "`{identity}` {offered} is older than {installed}, which is installed; ask for a downgrade if you mean it"
    )]
    Older {
        /// The plugin.
        identity: String,
        /// The version that is installed.
        installed: Version,
        /// The version that should replace it.
        offered: Version,
    },
    /// Revoking a grant that a wider one still allows.
    #[error("`{identity}` would still be allowed `{asked}` by `{wider}`; revoke that one")]
    StillGranted {
        /// The plugin.
        identity: String,
        /// What should be revoked.
        asked: Grant,
        /// What allows it.
        wider: Grant,
    },
    /// An order that has been done before, in this bundle or another.
    #[error("order {} has been done already: it came again in another bundle", order.short())]
    Done {
        /// The order.
        order: Digest,
    },
    /// A blob that comes in already.
    #[error("blob {} is being received already: wait until it is here", digest.short())]
    Receiving {
        /// The blob.
        digest: Digest,
    },
    /// A file under `blobs/` is gone.
    #[error("{} is gone; add the plugin or model again", path.display())]
    MissingBlob {
        /// Where it was.
        path: PathBuf,
    },
    /// A file under `blobs/` is not what it was.
    #[error("{} has digest {found}: the disk changed it; add the plugin or model again", path.display())]
    CorruptBlob {
        /// Where it is.
        path: PathBuf,
        /// The digest it has.
        found: Digest,
    },
    /// A key file cannot be used.
    #[error("{} {problem}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it and what to do.
        problem: &'static str,
    },
    /// A secret was encrypted with another key, or changed on the disk.
    #[error("secret `{name}` does not decrypt with {}; restore that file, or set the secret again", path.display())]
    Sealed {
        /// The secret.
        name: String,
        /// The key file.
        path: PathBuf,
    },
    /// A record does not read.
    #[error(
        "the record of `{name}` in table `{table}` does not read ({problem}); remove it and add it again"
    )]
    Record {
        /// Where it is.
        table: String,
        /// Its key.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A folder that many users share.
    #[error("{} is shared by several users; name a folder of the node's own", path.display())]
    Shared {
        /// The folder.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{}: {source}{}", path.display(), advice(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk failed in a way that leaves a doubt of what it has.
    #[error("{}: the disk failed ({says}), and what it has of the last change is not known; start the node again", path.display())]
    Shut {
        /// The file.
        path: PathBuf,
        /// What the system said.
        says: String,
    },
    /// The database refused.
    #[error("state database: {0}; {remedy}", remedy = remedy(.0))]
    Database(#[source] Box<redb::Error>),
}

impl StoreError {
    /// Which way it failed.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Limit { .. } | Self::Full { .. } => ErrorKind::Limit,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            _ if self.is_of_disk() => ErrorKind::Unavailable,
            Self::Shared { .. }
            | Self::Name { .. }
            | Self::ModelName { .. }
            | Self::Exits { .. }
            | Self::Increment { .. }
            | Self::Mismatch { .. }
            | Self::Done { .. }
            | Self::StillGranted { .. } => ErrorKind::Invalid,
            Self::Older { .. } => ErrorKind::Denied,
            Self::Unknown { .. } | Self::Receiving { .. } => ErrorKind::Unavailable,
            _ => ErrorKind::Internal,
        }
    }

    /// Whether the disk did not take or give something: that is the fault of nobody who asked, and passes.
    pub fn is_of_disk(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_of_disk(source),
            Self::Shut { .. } => true,
            Self::Database(error) => match &**error {
                redb::Error::Io(source) => is_of_disk(source),
                // What was before is told to whoever met it.
                redb::Error::PreviousIo | redb::Error::DatabaseClosed => true,
                _ => false,
            },
            _ => false,
        }
    }

    /// Turns an error of the file system into one that names the path.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            path: path.into(),
            source,
        }
    }
}

/// The field of a [`TaskError`] for which the disk of a node is to blame, and nobody who asked for anything.
pub const DISK: &str = "disk";

impl From<StoreError> for TaskError {
    fn from(error: StoreError) -> Self {
        let told = Self::new(error.kind(), error.to_string());
        match error.is_of_disk() {
            true => told.with_field(DISK),
            false => told,
        }
    }
}

/// What to do about an error of the file system, where one thing helps as a rule.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run this as the user whose node it is (`sudo -u USER karman …`)"
        }
        _ if is_full(error) => "; free space there",
        io::ErrorKind::ReadOnlyFilesystem => "; mount it for writing (`dmesg` may say why it is not)",
        _ => "",
    }
}

/// What to do about an error of the database.
fn remedy(error: &redb::Error) -> &'static str {
    match error {
        redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::DatabaseClosed => {
            "the disk has just failed, and it is opened anew where that helps: try again"
        }
        _ => "after an error of the disk, restart the node",
    }
}

/// Which key to raise, where there is one for this limit.
fn raise(field: &str) -> String {
    let key = match field {
        // One alone may be as large as all together.
        "visiting model" => "visiting",
        field => field,
    };
    let keys = serde_json::to_value(StoreLimits::default());
    match keys.is_ok_and(|keys| keys.get(key).is_some()) {
        true => format!(" (raise `{key}` under [store] in node.toml)"),
        false => ", which no key of node.toml raises".to_owned(),
    }
}

macro_rules! from_redb {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for StoreError {
            fn from(error: redb::$error) -> Self {
                Self::Database(Box::new(error.into()))
            }
        }
    )*};
}
from_redb!(
    StorageError,
    TableError,
    TransactionError,
    CommitError,
    CompactionError,
    DatabaseError
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_another_user_is_told_as_such() {
        let refused = StoreError::io(Path::new("/node/state.redb"));
        let error = refused(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(
            error.to_string().contains("as the user whose node it is"),
            "{error}"
        );
        let full = StoreError::io(Path::new("/node/state.redb"))(io::ErrorKind::StorageFull.into());
        assert_eq!(full.kind(), ErrorKind::Unavailable);
        assert!(full.to_string().ends_with("; free space there"), "{full}");
    }

    #[test]
    fn a_disk_that_fails_is_told_from_one_who_asks_for_too_much() {
        let told =
            |kind: io::ErrorKind| TaskError::from(StoreError::io(Path::new("/node/state.redb"))(kind.into()));
        let of_disk = |error: &TaskError| error.field.as_deref() == Some(DISK);
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::ReadOnlyFilesystem] {
            let error = told(kind);
            assert!(
                of_disk(&error) && error.kind == ErrorKind::Unavailable,
                "{error:?}"
            );
        }
        assert!(!of_disk(&told(io::ErrorKind::PermissionDenied)));
        let unknown = StoreError::Unknown {
            what: "model",
            name: "digits".into(),
        };
        assert!(!of_disk(&TaskError::from(unknown)));
    }

    #[test]
    fn only_keys_that_there_are_are_to_be_raised() {
        let says = |field| {
            let (value, most) = (2, 1);
            StoreError::Limit { field, value, most }.to_string()
        };
        for (field, key) in [
            ("blob", "blob"),
            ("batch-bytes", "batch-bytes"),
            ("visiting model", "visiting"),
        ] {
            let raise = format!("`{field}` has 2; 1 is the most (raise `{key}` under [store] in node.toml)");
            assert_eq!(says(field), raise);
        }
        for fixed in [
            "waiting bundles",
            "model info",
            "redeemed invitations",
            "invitations",
        ] {
            let none = format!("`{fixed}` has 2; 1 is the most, which no key of node.toml raises");
            assert_eq!(says(fixed), none);
        }
    }
}
