use karman_store::{OpenError, Store, StoreLimits};
use karman_types::TaskError;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A node's folder. Its store is opened when it is first needed, so that a command that needs no state starts at once and
/// runs beside a node that holds it.
#[derive(Clone)]
pub struct Home(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    limits: StoreLimits,
    store: Mutex<Option<Store>>,
}

impl Home {
    /// The node's folder; it is made when something is first kept there.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self::with_limits(folder, StoreLimits::default())
    }

    /// The same, with other limits than the usual ones.
    pub fn with_limits(folder: impl Into<PathBuf>, limits: StoreLimits) -> Self {
        Self(Arc::new(Inner {
            folder: folder.into(),
            limits,
            store: Mutex::default(),
        }))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// The socket on which a running node takes orders of its operator.
    pub fn control_socket(&self) -> PathBuf {
        self.0.folder.join("control.sock")
    }

    /// The store, opened if it was not.
    ///
    /// # Errors
    /// `unavailable` while another process (a running node) holds it, `internal` when it is damaged.
    pub fn store(&self) -> Result<Store, TaskError> {
        let mut store = self.0.store.lock();
        if let Some(store) = &*store {
            return Ok(store.clone());
        }
        let opened = Store::open_with(&self.0.folder, self.0.limits.clone()).map_err(open_error)?;
        *store = Some(opened.clone());
        Ok(opened)
    }
}

fn open_error(error: OpenError) -> TaskError {
    match error {
        OpenError::Locked { .. } => TaskError::unavailable(error.to_string()).with_hint(
            "a node is running there: ask it with `karman call`, or name another folder with --state",
        ),
        OpenError::Store(error) => TaskError::new(error.kind(), error.to_string()),
        _ => TaskError::internal(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::ByteSize;

    #[test]
    fn the_store_takes_as_much_as_it_was_told() {
        let folder = tempfile::tempdir().unwrap();
        let limits = StoreLimits {
            bundles: ByteSize(10),
            ..StoreLimits::default()
        };
        let store = Home::with_limits(folder.path(), limits).store().unwrap();
        assert!(store.bundles().has_room(10).unwrap());
        assert!(!store.bundles().has_room(11).unwrap());
    }
}
