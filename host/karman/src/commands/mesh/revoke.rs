use crate::app::App;
use crate::control::{Control, escape};
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_node::Revoked;
use karman_types::TaskError;
use serde_json::json;

/// `karman mesh revoke`
#[derive(Args, Debug)]
pub(super) struct Revoke {
    /// The node's id, or its beginning; or its key, as `karman mesh peers --json` shows it
    node: String,
}

impl Revoke {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let path = format!("/mesh/revoked/{}", escape(&self.node));
        let Revoked {
            node,
            keeper,
            doubtful,
        } = Control::new(app)?.order(Method::POST, &path, Bytes::new())?;
        app.output.result(
            || {
                format!(
                    "{}   revoked; nodes that are cut off learn it at their next contact",
                    node.short()
                )
            },
            || json!({ "revoked": node, "keeper": keeper, "doubtful": doubtful }),
        )?;
        if doubtful {
            app.output.note(
                "this node has not met it since it was started: if it holds the root key, or every right by it, the revocation does not \
                 count, and only that key puts it out",
            );
        }
        if keeper {
            app.output
                .note("it was a keeper: name another in its place (`karman mesh keepers`)");
        }
        Ok(())
    }
}
