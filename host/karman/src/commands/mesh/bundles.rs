use crate::app::App;
use crate::control::Control;
use crate::output::table;
use clap::Args;
use karman_node::{BundleState, BundleStatus};
use karman_types::{TaskError, format_bytes};
use serde_json::json;

/// `karman mesh bundles`
#[derive(Args, Debug)]
pub(super) struct Bundles {}

impl Bundles {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let bundles: Vec<BundleStatus> = Control::new(app)?.get("/mesh/bundles")?;
        if app.output.json {
            return bundles
                .iter()
                .try_for_each(|bundle| app.output.line(json!(bundle)));
        }
        let head = ["BUNDLE", "WHAT", "FROM", "FOR", "SIZE", "EXPIRES", "STATE"].map(str::to_owned);
        let rows: Vec<Vec<String>> = std::iter::once(head.to_vec())
            .chain(bundles.iter().map(|bundle| {
                vec![
                    bundle.bundle.short(),
                    match bundle.label.as_str() {
                        "" => "sealed".into(),
                        label => label.into(),
                    },
                    bundle.source.short(),
                    bundle.destination.short(),
                    format_bytes(bundle.bytes),
                    bundle.expires.to_string(),
                    in_words(&bundle.state),
                ]
            }))
            .collect();
        app.output.line(table(&rows))
    }
}

fn in_words(state: &BundleState) -> String {
    match state {
        BundleState::Waiting => "waits".into(),
        BundleState::Passed { to, .. } => format!("passed to {}", to.short()),
        BundleState::Delivered => "delivered".into(),
        BundleState::Refused { why } => format!("refused: {why}"),
        BundleState::Expired => "expired".into(),
    }
}
