use crate::app::App;
use crate::held::Held;
use clap::Args;
use karman_types::TaskError;
use serde_json::json;

/// `karman mesh withdraw`
#[derive(Args, Debug)]
pub(super) struct Withdraw {
    /// The invitation's id, or its beginning: `karman mesh invitations` shows it
    invitation: String,
}

impl Withdraw {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let withdrawn = Held::open(app)?.withdraw(&self.invitation)?;
        app.output.result(
            || format!("{}   withdrawn; no node joins by it any more", withdrawn.id),
            || json!(withdrawn),
        )
    }
}
