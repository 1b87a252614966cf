use crate::app::App;
use crate::control::{Control, escape};
use clap::Args;
use http::Method;
use karman_types::TaskError;
use serde_json::json;

/// `karman undeploy`
#[derive(Args, Debug)]
pub(crate) struct Undeploy {
    /// The plugin's name
    name: String,
}

impl Undeploy {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let path = format!("/plugins/{}", escape(&self.name));
        Control::new(app)?.order::<()>(Method::DELETE, &path, Default::default())?;
        let name = &self.name;
        app.output
            .result(|| format!("{name} is out of service"), || json!({ "name": name }))
    }
}
