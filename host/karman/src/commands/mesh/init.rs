use crate::app::App;
use crate::control::Control;
use crate::error::{self, Worded};
use clap::Args;
use karman_mesh::membership::{MembershipError, RootKey};
use karman_store::NodeKeys;
use karman_types::TaskError;
use serde_json::json;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// The variable that holds the passphrase where nobody can be asked.
const PASSPHRASE: &str = "KARMAN_PASSPHRASE";

/// `karman mesh init`
#[derive(Args, Debug)]
pub(super) struct Init {
    /// Also write the root key here, encrypted with a passphrase (asked for, or KARMAN_PASSPHRASE); of a mesh that is there, write its key
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
    /// Take the root key from a backup instead of making one
    #[arg(long, value_name = "FILE", conflicts_with = "backup")]
    restore: Option<PathBuf>,
}

impl Init {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let keys = app.keys()?;
        if let Some(file) = &self.backup
            && let Some(seed) = keys.mesh_root().map_err(Worded::worded)?
        {
            return back_up_again(app, &keys, &RootKey::from_seed(&seed), file);
        }
        refuse_another(&keys)?;
        let root = match &self.restore {
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(|failed| error::file(file, &failed))?;
                RootKey::restore(&text, &passphrase(false)?).map_err(refused)?
            }
            None => RootKey::generate().map_err(refused)?,
        };
        back_up(&root, self.backup.as_deref())?;
        keys.keep_mesh_root(root.seed()).map_err(|failed| {
            TaskError::invalid(failed.to_string())
                .with_hint("use it as it is: karman mesh invite; or name another folder with --state")
        })?;
        let mesh = root.public();
        let node = keys.node().id();
        app.output.result(
            || {
                format!(
                    "mesh {}   root key on this machine only   node {}",
                    mesh.short(),
                    node.short()
                )
            },
            || json!({ "mesh": mesh.to_string(), "node": node, "backup": self.backup }),
        )?;
        if self.backup.is_none() && self.restore.is_none() {
            app.output.note(
                "no backup was made: should this machine be lost, nobody can be invited any more (`karman mesh init --backup FILE` \
                 makes one)",
            );
        }
        if Control::of_running(app)?.is_some() {
            app.output
                .note("the node that runs here does not use the key yet: stop it, and start it again");
        }
        Ok(())
    }
}

/// Writes down the key of a mesh that was made without a backup.
fn back_up_again(app: &App, keys: &NodeKeys, root: &RootKey, file: &Path) -> Result<(), TaskError> {
    back_up(root, Some(file))?;
    let (mesh, node) = (root.public(), keys.node().id());
    app.output.result(
        || {
            format!(
                "mesh {}   root key backed up in {}   node {}",
                mesh.short(),
                file.display(),
                node.short()
            )
        },
        || json!({ "mesh": mesh.to_string(), "node": node, "backup": file }),
    )
}

/// Refuses a second root key. Before anything is written: the backup of a key that is never used is of no use.
fn refuse_another(keys: &NodeKeys) -> Result<(), TaskError> {
    match keys.mesh_root().map_err(Worded::worded)? {
        None => Ok(()),
        Some(_) => Err(TaskError::invalid(
            "the root key of a mesh is there already; a machine holds that of one mesh",
        )
        .with_hint(
            "use it as it is: karman mesh invite, or mesh init --backup FILE; or name another folder with --state",
        )),
    }
}

/// Writes the key to this file, under a passphrase. Before the key is used: one that was used and is lost cannot be made again.
///
/// # Errors
/// When something has the file's name already.
pub(super) fn back_up(root: &RootKey, file: Option<&Path>) -> Result<(), TaskError> {
    let Some(file) = file else { return Ok(()) };
    // Nobody is asked for a passphrase in vain.
    if file.symlink_metadata().is_ok() {
        return Err(taken(file));
    }
    let text = root.backup(&passphrase(true)?).map_err(refused)?;
    write_new(file, text.as_bytes())
}

/// Writes a file that was not there, whole or not at all. What is there stays: it may be the only backup of a key in use.
fn write_new(file: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    let mut new = std::fs::File::create_new(file).map_err(|failed| match failed.kind() {
        ErrorKind::AlreadyExists => taken(file),
        _ => error::file(file, &failed),
    })?;
    let written = new.write_all(bytes).and_then(|()| new.sync_all());
    written.map_err(|failed| {
        let _ = std::fs::remove_file(file);
        error::file(file, &failed)
    })
}

fn taken(file: &Path) -> TaskError {
    TaskError::invalid(format!("{} is there already", file.display()))
        .with_field("backup")
        .with_hint("name another file with --backup: this one may be the only backup of a key in use")
}

fn passphrase(again: bool) -> Result<String, TaskError> {
    if let Ok(given) = std::env::var(PASSPHRASE) {
        return Ok(given);
    }
    let unread = |failed: std::io::Error| TaskError::invalid(format!("no passphrase: {failed}"));
    if !std::io::stdin().is_terminal() {
        return Err(TaskError::invalid("no passphrase, and no terminal to ask on")
            .with_hint(format!("set {PASSPHRASE}")));
    }
    let first = rpassword::prompt_password("passphrase: ").map_err(unread)?;
    if again && rpassword::prompt_password("once more: ").map_err(unread)? != first {
        return Err(TaskError::invalid("the two passphrases differ"));
    }
    Ok(first)
}

pub(super) fn refused(error: MembershipError) -> TaskError {
    TaskError::new(error.kind(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_never_written_over_something() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mesh-root.txt");
        write_new(&file, b"the good one").unwrap();
        let root = RootKey::generate().unwrap();
        for error in [
            write_new(&file, b"another").unwrap_err(),
            back_up(&root, Some(&file)).unwrap_err(),
        ] {
            assert!(error.message.contains("mesh-root.txt"), "{error}");
            assert!(error.hint.unwrap().contains("another file"));
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"the good one");
    }

    #[test]
    fn a_machine_with_a_root_key_is_refused_another() {
        let folder = tempfile::tempdir().unwrap();
        let keys = NodeKeys::open(folder.path()).unwrap();
        refuse_another(&keys).unwrap();
        keys.keep_mesh_root(&[7; 32]).unwrap();
        let error = refuse_another(&keys).unwrap_err();
        assert!(error.message.contains("is there already"), "{error}");
    }
}
