use karman_types::TaskError;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The file has no secrets, and another user than the gateway's may write it: root, for a gateway that has a user of its own.
const READABLE: u32 = 0o644;
/// How long a look at the file counts.
const LATELY: Duration = Duration::from_secs(1);

/// The tokens that were taken back: a file in the node's folder, one id a line among empty ones, read again when it changes.
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
    /// Whether it is there and could not be read.
    unread: bool,
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
    /// `unavailable` with what the disk refuses: the token may still hold.
    pub fn add(&self, id: &str) -> Result<(), TaskError> {
        let add = || -> io::Result<()> {
            let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            let mut permissions = file.metadata()?.permissions();
            if permissions.mode() & READABLE != READABLE {
                permissions.set_mode(READABLE);
                file.set_permissions(permissions)?;
            }
            // One write for the line: two that revoke at once do not mix theirs. It begins on a line of its own, also where a full disk or a
            // loss of power has cut the last one short.
            file.write_all(format!("\n{id}\n").as_bytes())?;
            file.sync_all()
        };
        add().map_err(|error| {
            let error = TaskError::unavailable(format!("{}: {error}", self.path.display()));
            error.with_hint(
                "the token may still hold: see that this file can be written, then revoke it again",
            )
        })
    }

    /// Whether the token of this id was taken back; `now` counts from some start.
    ///
    /// # Errors
    /// `unavailable` where the file is there and cannot be read: any token may stand in it.
    pub(super) fn has(&self, id: &str, now: Duration) -> Result<bool, TaskError> {
        let mut known = self.known.lock();
        if known.looked == Duration::ZERO || now.saturating_sub(known.looked) >= LATELY {
            known.looked = now.max(Duration::from_nanos(1));
            let read = self.read(&mut known);
            known.unread = read.is_err();
            if let Err(error) = read {
                tracing::error!(file = %self.path.display(), %error, "revoked tokens are not read");
            }
        }
        match known.unread {
            true => Err(unread()),
            false => Ok(known.ids.contains(id)),
        }
    }

    fn read(&self, known: &mut Known) -> io::Result<()> {
        let about = match std::fs::metadata(&self.path) {
            // Nobody has been revoked yet; or the file is gone, which revokes nothing back.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            about => about?,
        };
        let changed = Some((about.modified()?, about.len()));
        if known.changed != changed {
            let text = std::fs::read_to_string(&self.path)?;
            let ids = text.lines().map(str::trim).filter(|line| !line.is_empty());
            known.ids = ids.map(str::to_owned).collect();
            known.changed = changed;
        }
        Ok(())
    }
}

fn unread() -> TaskError {
    let error = TaskError::unavailable("which tokens are revoked cannot be read, so none is taken");
    error.with_hint(
        "have the operator make `revoked-tokens` readable for the gateway: its log says what is wrong",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn a_token_is_revoked_while_the_gateway_runs() {
        let folder = tempfile::tempdir().unwrap();
        let revoked = Revoked::of(folder.path());
        let second = Duration::from_secs(1);
        assert_eq!(revoked.has("ab", second), Ok(false));
        Revoked::of(folder.path()).add("ab").unwrap();
        assert_eq!(revoked.has("ab", second), Ok(false));
        assert_eq!(revoked.has("ab", 2 * second), Ok(true));
        assert_eq!(revoked.has("abc", 2 * second), Ok(false));
    }

    #[test]
    fn two_that_are_revoked_in_one_tick_of_the_clock_are_both_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let (revoked, second) = (Revoked::of(folder.path()), Duration::from_secs(1));
        revoked.add("ab").unwrap();
        assert_eq!(revoked.has("ab", second), Ok(true));
        let written = std::fs::metadata(&revoked.path).unwrap().modified().unwrap();
        revoked.add("cd").unwrap();
        let file = OpenOptions::new().append(true).open(&revoked.path).unwrap();
        file.set_modified(written).unwrap();
        assert_eq!(revoked.has("cd", 2 * second), Ok(true));
        assert_eq!(revoked.has("ab", 2 * second), Ok(true));
    }

    #[test]
    fn a_line_that_was_cut_short_swallows_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let (revoked, second) = (Revoked::of(folder.path()), Duration::from_secs(1));
        std::fs::write(&revoked.path, "ab\ncd").unwrap();
        revoked.add("cdef").unwrap();
        for id in ["ab", "cdef"] {
            assert_eq!(revoked.has(id, second), Ok(true), "{id}");
        }
    }

    #[test]
    fn what_the_disk_refuses_is_told_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let revoked = Revoked::of(folder.path());
        // Not to be written by root either, who may run the tests.
        std::fs::create_dir(&revoked.path).unwrap();
        let error = revoked.add("ab").unwrap_err();
        assert_eq!(error.kind, karman_types::ErrorKind::Unavailable);
        assert!(error.hint.is_some());
    }

    #[test]
    fn whoever_revokes_leaves_a_file_that_the_gateway_reads() {
        let folder = tempfile::tempdir().unwrap();
        let revoked = Revoked::of(folder.path());
        std::fs::write(&revoked.path, "").unwrap();
        std::fs::set_permissions(&revoked.path, Permissions::from_mode(0o600)).unwrap();
        revoked.add("ab").unwrap();
        let mode = std::fs::metadata(&revoked.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, READABLE);
    }

    #[test]
    fn a_list_that_cannot_be_read_lets_no_token_in() {
        let folder = tempfile::tempdir().unwrap();
        let revoked = Revoked::of(folder.path());
        let second = Duration::from_secs(1);
        assert_eq!(revoked.has("ab", second), Ok(false));
        // Unreadable also for root, who may run the tests.
        std::fs::create_dir(&revoked.path).unwrap();
        let error = revoked.has("ab", 2 * second).unwrap_err();
        assert_eq!(error.kind, karman_types::ErrorKind::Unavailable);
        std::fs::remove_dir(&revoked.path).unwrap();
        assert_eq!(revoked.has("ab", 3 * second), Ok(false));
    }
}
