//! Which files a project is made of: when it has to be built again.

use karman_types::TaskError;
use notify::{EventKind, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

/// Folders that hold no sources.
const NOT_SOURCES: [&str; 5] = ["build", "target", "node_modules", "__pycache__", "venv"];
/// Sources that a build writes itself.
const WRITTEN_BY_BUILDS: [&str; 2] = ["Cargo.lock", "package-lock.json"];
/// Files that are looked at before the search gives up and the project counts as changed.
const MOST_FILES: usize = 50_000;
/// Editors write a file in several steps; a change is over when nothing happened for so long.
const QUIET: Duration = Duration::from_millis(150);

/// Whether a source of this project was written after `since`.
pub(crate) fn changed_since(project: &Path, since: SystemTime) -> bool {
    newer(project, since, &|_| true)
}

/// The same without the files that a build writes itself: whether someone saved something while it ran.
pub(crate) fn saved_since(project: &Path, since: SystemTime) -> bool {
    let by_hand = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !WRITTEN_BY_BUILDS.contains(&&*name)
    };
    newer(project, since, &by_hand)
}

fn newer(project: &Path, since: SystemTime, counts: &dyn Fn(&Path) -> bool) -> bool {
    let mut folders = vec![project.to_path_buf()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            seen += 1;
            let Ok(data) = entry.metadata() else { continue };
            let path = entry.path();
            match is_source(project, &path) && counts(&path) {
                true if data.is_dir() => folders.push(path),
                true if data.modified().is_ok_and(|time| time > since) || seen > MOST_FILES => return true,
                _ => {}
            }
        }
    }
    false
}

fn is_source(project: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(project).unwrap_or(path);
    below.iter().all(|part| {
        let name = part.to_string_lossy();
        !NOT_SOURCES.contains(&&*name) && !name.starts_with('.') && !name.ends_with('~')
    })
}

/// Tells when the sources of a project change.
pub(crate) struct Watch {
    project: PathBuf,
    watcher: notify::RecommendedWatcher,
    changes: Receiver<()>,
}

impl Watch {
    /// # Errors
    /// `unavailable` when the system watches no more files.
    pub(crate) fn new(project: &Path) -> Result<Self, TaskError> {
        let (change, changes) = channel();
        let folder = project.to_path_buf();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let read_only = matches!(event.kind, EventKind::Access(_));
            if !read_only && event.paths.iter().any(|path| is_source(&folder, path)) {
                // Nobody waits any more when the program ends.
                let _ = change.send(());
            }
        });
        let watcher = watcher.map_err(|error| unwatched(project, &error))?;
        let mut watch = Self {
            project: project.to_path_buf(),
            watcher,
            changes,
        };
        watch.cover()?;
        Ok(watch)
    }

    /// Watches the project's folder and those below it that hold sources, new ones among them.
    fn cover(&mut self) -> Result<(), TaskError> {
        let failed = |error: notify::Error| unwatched(&self.project, &error);
        self.watcher
            .watch(&self.project, RecursiveMode::NonRecursive)
            .map_err(failed)?;
        for entry in std::fs::read_dir(&self.project).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && is_source(&self.project, &path) {
                self.watcher
                    .watch(&path, RecursiveMode::Recursive)
                    .map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Waits for a change after `since`, and until it is over.
    ///
    /// # Errors
    /// `unavailable` when the system stops telling.
    pub(crate) fn wait(&mut self, since: SystemTime) -> Result<(), TaskError> {
        loop {
            if self.changes.recv().is_err() {
                return Err(TaskError::unavailable("the system tells of no more changes"));
            }
            while self.changes.recv_timeout(QUIET).is_ok() {}
            self.cover()?;
            if changed_since(&self.project, since) {
                return Ok(());
            }
        }
    }
}

fn unwatched(project: &Path, error: &notify::Error) -> TaskError {
    TaskError::unavailable(format!("{} cannot be watched: {error}", project.display()))
        .with_hint("raise fs.inotify.max_user_watches, or use `karman run`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sources_count() {
        let project = Path::new("/p");
        for path in [
            "/p/src/lib.rs",
            "/p/karman.toml",
            "/p/wit/deps/a.wit",
            "/p/Cargo.lock",
        ] {
            assert!(is_source(project, Path::new(path)), "{path}");
        }
        for path in [
            "/p/build/a.wasm",
            "/p/target/x",
            "/p/.git/index",
            "/p/src/.lib.rs.swp",
            "/p/src/lib.rs~",
        ] {
            assert!(!is_source(project, Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_newer_source_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("src");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("lib.rs"), "").unwrap();
        let written = std::fs::metadata(path.join("lib.rs"))
            .unwrap()
            .modified()
            .unwrap();
        assert!(changed_since(folder.path(), written - Duration::from_secs(1)));
        assert!(!changed_since(folder.path(), written));
        std::fs::write(folder.path().join("Cargo.lock"), "").unwrap();
        let before = written - Duration::from_secs(1);
        std::fs::File::open(path.join("lib.rs"))
            .unwrap()
            .set_modified(before)
            .unwrap();
        assert!(changed_since(folder.path(), before) && !saved_since(folder.path(), before));
    }
}
