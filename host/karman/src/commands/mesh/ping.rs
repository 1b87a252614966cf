use super::peers::rates;
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
    /// Measure how fast the links there and back are, too: with 96 KiB each where they are slow, 3 MiB more where they are fast
    #[arg(long)]
    rates: bool,
}

impl Ping {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let way = format!("/mesh/ping/{}?rates={}", escape(&self.node), self.rates);
        let pinged: Pinged = Control::new(app)?.get(&way)?;
        app.output.result(
            || {
                let path = pinged.path.map_or_else(|| "-".into(), |path| path.to_string());
                let time = format_duration(Duration::from_micros(pinged.round_trip_us));
                let why = pinged
                    .obstacle
                    .as_ref()
                    .map_or_else(String::new, |why| format!("   {why}"));
                let rates = match (pinged.down_mbit_s, pinged.up_mbit_s) {
                    (None, None) => String::new(),
                    (down, up) => format!("   {}", rates(down, up)),
                };
                format!("{}   {path}   {time}{rates}{why}", pinged.node.short())
            },
            || json!(pinged),
        )
    }
}
