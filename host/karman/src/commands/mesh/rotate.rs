use super::init::{back_up, refused};
use crate::app::App;
use crate::control::Control;
use crate::error::Worded;
use clap::Args;
use http::Method;
use karman_mesh::membership::RootKey;
use karman_node::Rotated;
use karman_types::{TaskError, parse_duration};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// `karman mesh rotate`
#[derive(Args, Debug)]
pub(super) struct Rotate {
    /// Also write the new root key here, encrypted with a passphrase (asked for, or KARMAN_PASSPHRASE)
    #[arg(long, value_name = "FILE")]
    backup: Option<PathBuf>,
    /// How long memberships and invitations hold that the old key has signed; 0s where others have that key
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_duration)]
    grace: Duration,
}

impl Rotate {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let keys = app.keys()?;
        if keys.mesh_root().map_err(Worded::worded)?.is_none() {
            return Err(
                TaskError::unavailable("this machine does not hold the root key of a mesh")
                    .with_hint("replace it on the machine where `karman mesh init` was run"),
            );
        }
        let control = Control::of_running(app)?.ok_or_else(|| {
            TaskError::unavailable("this node does not run, and the others learn of the new key from it")
                .with_hint("start it with `karman node up`, and try again")
        })?;
        let next = RootKey::generate().map_err(refused)?;
        back_up(&next, self.backup.as_deref())?;
        keys.keep_next_mesh_root(next.seed()).map_err(Worded::worded)?;
        let order = json!({ "grace-ms": self.grace.as_millis() as u64 });
        let rotated: Rotated = control.order(Method::POST, "/mesh/root", order.to_string().into())?;
        app.output.result(
            || {
                format!(
                    "mesh {} is mesh {} from now on   what the old root key signed holds until {}",
                    rotated.before.short(),
                    rotated.mesh.short(),
                    rotated.until
                )
            },
            || {
                json!({
                    "mesh": rotated.mesh,
                    "before": rotated.before,
                    "until": rotated.until.seconds(),
                    "backup": self.backup,
                })
            },
        )?;
        if self.backup.is_none() {
            app.output
                .note("no backup was made, and that of the old key is of no use now (--backup FILE)");
        }
        Ok(())
    }
}
