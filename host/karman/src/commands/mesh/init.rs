use crate::app::App;
use crate::commands::sign::replace;
use crate::error;
use clap::Args;
use karman_mesh::membership::{MembershipError, RootKey};
use karman_store::NodeKeys;
use karman_types::TaskError;
use serde_json::json;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// The variable that holds the passphrase where nobody can be asked.
const PASSPHRASE: &str = "KARMAN_PASSPHRASE";

/// `karman mesh init`
#[derive(Args, Debug)]
pub(super) struct Init {
    /// Also write the root key here, encrypted with a passphrase (asked for, or KARMAN_PASSPHRASE)
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
    /// Take the root key from a backup instead of making one
    #[arg(long, value_name = "FILE", conflicts_with = "backup")]
    restore: Option<PathBuf>,
}

impl Init {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let keys = NodeKeys::open(&app.places.state).map_err(internal)?;
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
            app.output
                .note("no backup was made: should this machine be lost, nobody can be invited any more (--backup FILE)");
        }
        Ok(())
    }
}

/// Writes the key to this file, under a passphrase. Before the key is used: one that was used and is lost cannot be made again.
pub(super) fn back_up(root: &RootKey, file: Option<&Path>) -> Result<(), TaskError> {
    let Some(file) = file else { return Ok(()) };
    let text = root.backup(&passphrase(true)?).map_err(refused)?;
    replace(file, text.as_bytes())
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

pub(super) fn internal(error: karman_store::StoreError) -> TaskError {
    TaskError::internal(error.to_string())
}
