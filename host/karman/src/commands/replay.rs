use crate::app::App;
use crate::commands::sign::replace;
use crate::control::Control;
use crate::error;
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_node::read_decisions;
use karman_sched::log::{Replay as Replayed, replay};
use karman_types::TaskError;
use serde_json::json;
use std::path::PathBuf;

/// `karman replay`
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// A log that --save has written [default: that of the running node]
    log: Option<PathBuf>,
    /// Keep the log of the running node in a file
    #[arg(long, value_name = "FILE", conflicts_with = "log")]
    save: Option<PathBuf>,
}

impl Replay {
    /// The exit code: 1 when a decision came out different.
    pub(crate) fn run(&self, app: &App) -> Result<u8, TaskError> {
        let bytes = match &self.log {
            Some(file) => Bytes::from(std::fs::read(file).map_err(|failed| error::file(file, &failed))?),
            None => {
                let answer = Control::new(app)?.send(Method::GET, "/decisions", &[], Bytes::new())?;
                answer.into_body()
            }
        };
        if let Some(file) = &self.save {
            replace(file, &bytes)?;
        }
        let replayed = replay(&read_decisions(&bytes)?);
        app.output.result(|| text(&replayed), || json!(replayed))?;
        Ok(u8::from(!replayed.holds()))
    }
}

fn text(replayed: &Replayed) -> String {
    let mut lines = vec![format!(
        "{} decisions came out the same, {} did not",
        replayed.same,
        replayed.different.len()
    )];
    if replayed.without_checkpoint > 0 {
        lines.push(format!(
            "{} are older than the first checkpoint of their policy and cannot be made again",
            replayed.without_checkpoint
        ));
    }
    for different in &replayed.different {
        let now = different
            .now
            .map_or_else(|| "none".to_owned(), |now| now.chosen.to_string());
        lines.push(format!(
            "entry {}, request {}: candidate {} then, {now} now",
            different.entry, different.request, different.logged.chosen
        ));
    }
    lines.join("\n")
}
