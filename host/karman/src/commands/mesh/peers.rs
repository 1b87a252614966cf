use crate::app::App;
use crate::control::Control;
use crate::output::table;
use clap::Args;
use karman_node::{MeasuredRate, PeerStatus};
use karman_types::{Offer, TaskError, format_bytes, format_duration};
use serde_json::json;
use std::time::Duration;

/// `karman mesh peers`
#[derive(Args, Debug)]
pub(super) struct Peers {
    /// Ids in full length
    #[arg(long)]
    long: bool,
}

impl Peers {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let peers: Vec<PeerStatus> = Control::new(app)?.get("/mesh/peers")?;
        if app.output.json {
            return peers.iter().try_for_each(|peer| app.output.line(json!(peer)));
        }
        let head = ["NODE", "TIER", "PATH", "RTT", "DOWN/UP", "LAST SEEN", "OFFERS"];
        let rows: Vec<Vec<String>> = std::iter::once(head.map(str::to_owned).to_vec())
            .chain(peers.iter().map(|peer| self.row(peer)))
            .collect();
        app.output.line(table(&rows))
    }

    fn row(&self, peer: &PeerStatus) -> Vec<String> {
        let nothing = || "-".to_owned();
        let seconds = |ms: u64| format_duration(Duration::from_secs(ms / 1000));
        let [path, round_trip, down_and_up] = match (peer.path, &peer.contact) {
            (None, Some(contact)) if contact.in_ms > 0 => [
                "next contact".to_owned(),
                format!("in {}", seconds(contact.in_ms)),
                format!("{} at {}", seconds(contact.for_ms), contact.rate),
            ],
            (path, _) => {
                let mbit_s = |rate: Option<MeasuredRate>| rate.map(|rate| rate.mbit_s);
                [
                    path.map_or_else(nothing, |path| path.to_string()),
                    peer.round_trip_us
                        .map_or_else(nothing, |us| format_duration(Duration::from_micros(us))),
                    rates(mbit_s(peer.down), mbit_s(peer.up)),
                ]
            }
        };
        vec![
            if self.long {
                peer.node.to_string()
            } else {
                peer.node.short()
            },
            peer.tier.map_or_else(nothing, |tier| tier.to_string()),
            path,
            round_trip,
            down_and_up,
            match peer.path {
                Some(_) => "now".into(),
                None => format!("{} ago", seconds(peer.last_seen_ms)),
            },
            peer.offer.as_ref().map_or_else(nothing, in_words),
        ]
    }
}

/// `9.1/2.2 Mbit/s`, down first; `-` is what was not measured.
pub(super) fn rates(down: Option<f64>, up: Option<f64>) -> String {
    let figure = |mbit_s: Option<f64>| match mbit_s {
        None => "-".to_owned(),
        Some(mbit_s) if mbit_s < 10.0 => format!("{mbit_s:.1}"),
        Some(mbit_s) => format!("{mbit_s:.0}"),
    };
    match (down, up) {
        (None, None) => figure(None),
        _ => format!("{}/{} Mbit/s", figure(down), figure(up)),
    }
}

/// `4 cores, 3.6 GiB, tasks: event-screen, models: digits-s`.
pub(super) fn in_words(offer: &Offer) -> String {
    let mut parts = vec![format!("{} cores", offer.cores), format_bytes(offer.memory)];
    if !offer.tasks.is_empty() {
        let names: Vec<&str> = offer.tasks.iter().map(|task| task.name.as_str()).collect();
        parts.push(format!("tasks: {}", names.join(" ")));
    }
    if !offer.models.is_empty() {
        parts.push(format!("models: {}", offer.models.join(" ")));
    }
    parts.join(", ")
}
