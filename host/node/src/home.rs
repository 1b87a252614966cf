use crate::services::blocking;
use karman_store::{OpenError, Store, StoreError, StoreLimits};
use karman_types::{Grant, TaskError};
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

    /// Refuses folders for a plugin that lie around or in this one: with the node's keys the plugin would be the node.
    ///
    /// # Errors
    /// `denied` (field `grant`), with the folder.
    pub fn must_not_be_granted<'a>(
        &self,
        grants: impl IntoIterator<Item = &'a Grant>,
    ) -> Result<(), TaskError> {
        let mut folders = grants.into_iter().filter_map(|grant| match grant {
            Grant::Folder(path, _) => Some(path),
            _ => None,
        });
        let overlaps = |path: &&String| {
            let (own, other) = (real(self.folder()), real(Path::new(path)));
            own.starts_with(&other) || other.starts_with(&own)
        };
        let Some(path) = folders.find(overlaps) else {
            return Ok(());
        };
        let own = self.folder().display();
        let error = TaskError::denied(format!(
            "the folder `{path}` is not granted: the node keeps its keys and state in `{own}`"
        ));
        let hint = "grant a folder that neither contains the node's nor lies in it";
        Err(error.with_field("grant").with_hint(hint))
    }

    /// The store, opened if it was not.
    ///
    /// # Errors
    /// `unavailable` while another process (a running node, a federated run) holds it, `internal` when it is damaged.
    pub fn store(&self) -> Result<Store, TaskError> {
        let mut store = self.0.store.lock();
        if let Some(store) = &*store {
            return Ok(store.clone());
        }
        let opened = Store::open_with(&self.0.folder, self.0.limits.clone()).map_err(open_error)?;
        *store = Some(opened.clone());
        Ok(opened)
    }

    /// Does something with the store on a thread that may wait for the disk.
    pub(crate) fn with<T, F>(&self, step: F) -> impl Future<Output = Result<T, TaskError>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    {
        let home = self.clone();
        blocking(move || Ok(step(&home.store()?)?))
    }
}

/// Where a path leads, as far as it does.
fn real(path: &Path) -> PathBuf {
    let absolute = || std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.canonicalize().unwrap_or_else(|_| absolute())
}

fn open_error(error: OpenError) -> TaskError {
    match error {
        OpenError::Locked {
            dir,
            holder,
            command: Some(command),
        } => TaskError::unavailable(format!(
            "{} is in use by {holder}, which is `{command}`",
            dir.display()
        ))
        .with_hint("it shows itself how far it is; ctrl-C ends it, and the same command goes on from there"),
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
    fn who_finds_the_folder_in_use_hears_by_whom() {
        let folder = tempfile::tempdir().unwrap();
        let store = Home::new(folder.path()).store().unwrap();
        let hears = || Home::new(folder.path()).store().unwrap_err();
        assert!(hears().hint.unwrap().contains("a node is running there"));
        store.held_by("karman fed run k3").unwrap();
        let error = hears();
        assert!(error.message.ends_with("which is `karman fed run k3`"), "{error}");
        assert!(error.hint.unwrap().contains("ctrl-C ends it"));
    }

    #[test]
    fn no_folder_is_granted_that_overlaps_the_nodes() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        for folder in [&state, &place.path().join("data")] {
            std::fs::create_dir(folder).unwrap();
        }
        std::os::unix::fs::symlink("state", place.path().join("link")).unwrap();
        let home = Home::new(&state);
        let refuses = |name: &str| {
            let grant = format!("fs:{}", place.path().join(name).display());
            let grant: Grant = grant.parse().unwrap();
            let refused = home.must_not_be_granted(&[grant]);
            refused.err().and_then(|error| error.field)
        };
        for overlaps in ["", "state", "state/keys", "link"] {
            assert_eq!(refuses(overlaps).as_deref(), Some("grant"), "{overlaps}");
        }
        for beside in ["data", "state-of-others", "missing"] {
            assert_eq!(refuses(beside), None, "{beside}");
        }
    }

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
