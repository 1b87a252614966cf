use karman_types::TaskError;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long a look at the file counts.
const LATELY: Duration = Duration::from_secs(1);

/// The tokens that were taken back: a file in the node's folder, one id a line, read again when it changes.
#[derive(Debug)]
pub struct Revoked {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    ids: HashSet<String>,
    /// When the file was written last, and how long it was: clocks of file systems are coarse, but each id makes it longer.
    changed: Option<(SystemTime, u64)>,
    looked: Duration,
}

impl Revoked {
    /// Those of the node with this folder.
    pub fn of(folder: &Path) -> Self {
        Self {
            path: folder.join("revoked-tokens"),
            known: Mutex::default(),
        }
    }

    /// Takes a token back by its id. Gateways that run here heed it within a second.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn add(&self, id: &str) -> Result<(), TaskError> {
        let failed = |error: std::io::Error| TaskError::internal(format!("{}: {error}", self.path.display()));
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        let mut file = file.map_err(failed)?;
        // One write for the line: two that revoke at once do not mix theirs.
        file.write_all(format!("{id}\n").as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)
    }

    /// Whether the token of this id was taken back; `now` counts from some start.
    pub(super) fn has(&self, id: &str, now: Duration) -> bool {
        let mut known = self.known.lock();
        if known.looked == Duration::ZERO || now.saturating_sub(known.looked) >= LATELY {
            known.looked = now.max(Duration::from_nanos(1));
            self.read(&mut known);
        }
        known.ids.contains(id)
    }

    fn read(&self, known: &mut Known) {
        let about = std::fs::metadata(&self.path);
        let changed = match about.and_then(|about| Ok((about.modified()?, about.len()))) {
            Ok(changed) => changed,
            // Nobody has been revoked yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => {
                tracing::error!(file = %self.path.display(), %error, "revoked tokens are not looked at");
                return;
            }
        };
        if known.changed == Some(changed) {
            return;
        }
        match std::fs::read_to_string(&self.path) {
            Ok(text) => {
                known.ids = text.lines().map(|line| line.trim().to_owned()).collect();
                known.changed = Some(changed);
            }
            // What was known stays: a file that cannot be read revokes nothing back.
            Err(error) => tracing::error!(file = %self.path.display(), %error, "revoked tokens are not read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_revoked_while_the_gateway_runs() {
        let folder = tempfile::tempdir().unwrap();
        let revoked = Revoked::of(folder.path());
        let second = Duration::from_secs(1);
        assert!(!revoked.has("ab", second));
        Revoked::of(folder.path()).add("ab").unwrap();
        assert!(!revoked.has("ab", second));
        assert!(revoked.has("ab", 2 * second) && !revoked.has("abc", 2 * second));
    }

    #[test]
    fn two_that_are_revoked_in_one_tick_of_the_clock_are_both_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let (revoked, second) = (Revoked::of(folder.path()), Duration::from_secs(1));
        revoked.add("ab").unwrap();
        assert!(revoked.has("ab", second));
        let written = std::fs::metadata(&revoked.path).unwrap().modified().unwrap();
        revoked.add("cd").unwrap();
        let file = OpenOptions::new().append(true).open(&revoked.path).unwrap();
        file.set_modified(written).unwrap();
        assert!(revoked.has("cd", 2 * second) && revoked.has("ab", 2 * second));
    }
}
