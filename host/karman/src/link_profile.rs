//! The file that says how links behave in a rehearsal: read at the start, and again whenever it changes.

use crate::input;
use karman_node::Node;
use karman_space::LinkProfile;
use karman_types::TaskError;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a node's log says once its links follow what the file says now.
pub(crate) const CHANGED: &str = "the links behave by another profile";
/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Reads a profile.
///
/// # Errors
/// `unavailable` or `invalid`, with the file and what is wrong with it.
pub(crate) fn read(file: &Path) -> Result<LinkProfile, TaskError> {
    input::toml(file, LinkProfile::from_toml)
}

/// Lets the links of a node follow the file for as long as the node is there. Where it does not read they stay as they were.
pub(crate) fn follow(node: &Node, file: PathBuf) {
    let node = node.clone();
    tokio::spawn(async move {
        // It may have changed since it was read, so it is read once more.
        let mut before = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = changed(&file);
            if now.is_none() || now == before {
                continue;
            }
            before = now;
            match read(&file).and_then(|profile| node.change_links(profile)) {
                Ok(()) => tracing::info!(file = %file.display(), "{CHANGED}"),
                Err(error) => tracing::error!(%error, "the links stay as they were"),
            }
        }
    });
}

fn changed(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|file| file.modified()).ok()
}
