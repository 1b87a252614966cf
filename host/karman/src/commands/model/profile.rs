use crate::app::App;
use crate::control::{Control, escape};
use crate::output::table;
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_infer::profile::{LayerProfile, Origin, Timing};
use karman_node::NodeProfile;
use karman_types::{TaskError, format_bytes};
use serde_json::json;

/// `karman model profile`
#[derive(Args, Debug)]
pub(super) struct Profile {
    /// The model's name
    name: String,
    /// Times it once more, also where it was timed before: the node may have been busy then, or hot
    #[arg(long)]
    again: bool,
}

impl Profile {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let progress = app.progress("timing every layer");
        let (control, path) = (
            Control::new(app)?,
            format!("/models/{}/profile", escape(&self.name)),
        );
        let method = if self.again { Method::POST } else { Method::GET };
        let told: Result<NodeProfile, TaskError> = control.order(method, &path, Bytes::new());
        drop(progress);
        let told = told?;
        if app.output.json {
            return app.output.line(json!(told));
        }
        let profile = &told.profile;
        let head = ["LAYER", "OPERATORS", "MACS", "WEIGHTS", "IN", "OUT", "TIME"]
            .map(str::to_owned)
            .to_vec();
        let rows: Vec<Vec<String>> = std::iter::once(head)
            .chain(profile.layers.iter().map(row))
            .collect();
        app.output.line(table(&rows))?;
        app.output.note(format!(
            "{} {}, {} thread(s): the whole takes {}",
            profile.backend,
            profile.version,
            profile.threads,
            words(&profile.whole)
        ));
        if let Some(gpu) = &told.gpu {
            app.output
                .note(format!("{}: the whole takes {}", gpu.runs_on, words(&gpu.whole)));
        }
        for (what, channel) in told.power.channels() {
            app.output.note(format!("draws, {what}: {channel}"));
        }
        Ok(())
    }
}

fn row(layer: &LayerProfile) -> Vec<String> {
    vec![
        layer.name.clone(),
        layer.op.clone(),
        layer.macs.to_string(),
        format_bytes(layer.parameter_bytes),
        format_bytes(layer.bytes_in),
        format_bytes(layer.bytes_out),
        words(&layer.time),
    ]
}

/// A time, and where it comes from if it was not measured.
fn words(time: &Timing) -> String {
    let ms = format!("{:.3} ms", time.seconds * 1e3);
    match &time.origin {
        Origin::Measured { .. } => ms,
        Origin::Predicted { .. } => format!("{ms} (predicted)"),
        Origin::Unavailable { reason } => format!("not timed: {reason}"),
    }
}
