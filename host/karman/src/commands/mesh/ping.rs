use crate::app::App;
use crate::control::{Control, escape};
use clap::Args;
use karman_node::Pinged;
use karman_types::{TaskError, format_duration};
use serde_json::json;
use std::time::Duration;

/// `karman mesh ping`
#[derive(Args, Debug)]
pub(super) struct Ping {
    /// The node's id, or its beginning
    node: String,
}

impl Ping {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let pinged: Pinged = Control::new(app)?.get(&format!("/mesh/ping/{}", escape(&self.node)))?;
        app.output.result(
            || {
                let path = pinged.path.map_or_else(|| "-".into(), |path| path.to_string());
                let time = format_duration(Duration::from_micros(pinged.round_trip_us));
                let why = pinged
                    .obstacle
                    .as_ref()
                    .map_or_else(String::new, |why| format!("   {why}"));
                format!("{}   {path}   {time}{why}", pinged.node.short())
            },
            || json!(pinged),
        )
    }
}
