use crate::app::App;
use crate::control::Control;
use crate::error::Worded;
use clap::Args;
use karman_mesh::Standing;
use karman_types::TaskError;
use serde_json::json;

/// `karman mesh leave`
#[derive(Args, Debug)]
pub(super) struct Leave {}

impl Leave {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        if Control::of_running(app)?.is_some() {
            return Err(TaskError::unavailable("the node is running")
                .with_hint("`karman node drain` hands over what waits here; then stop it, and leave"));
        }
        let keys = app.keys()?;
        if keys.mesh_root().map_err(Worded::worded)?.is_some() {
            return Err(
                TaskError::denied("this machine holds the root key of its mesh").with_hint(
                    "restore the key from its backup elsewhere first, then remove keys/mesh-root.key here",
                ),
            );
        }
        let store = app.home().store().map_err(Worded::worded)?;
        let left = Standing::forget(&store)
            .map_err(|error| TaskError::internal(error.to_string()))?
            .ok_or_else(|| {
                TaskError::unavailable("this node belongs to no mesh")
                    .with_hint("there is nothing to leave; --state names the folder of another node")
            })?;
        app.output.result(
            || {
                format!(
                    "left mesh {}; another node may still revoke its membership",
                    left.short()
                )
            },
            || json!({ "left": left.to_string() }),
        )
    }
}
