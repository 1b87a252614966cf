use crate::app::App;
use crate::commands::sign::replace;
use crate::control::Control;
use crate::error;
use crate::load::{self, GrantArgs};
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_engine::policy::Policies;
use karman_node::DecisionLog;
use karman_sched::log::{Replay as Replayed, replay, replay_with};
use karman_sched::plugin::{Failed, Guests};
use karman_types::{GrantSet, TaskError};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

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
        let log = DecisionLog::read(&bytes).map_err(|error| match &self.log {
            Some(file) => TaskError {
                message: format!("{}: {}", file.display(), error.message),
                ..error
            },
            None => error,
        })?;
        let replayed = match log.policies.is_empty() {
            true => replay(&log.entries),
            false => replay_with(&log.entries, &policies(app, &log)?),
        };
        app.output.result(|| text(&replayed), || json!(replayed))?;
        Ok(u8::from(!replayed.holds()))
    }
}

/// The policies that the log brings. One that does not load is said to be, and its decisions are counted as those of one that is
/// missing.
fn policies(app: &App, log: &DecisionLog) -> Result<Arc<dyn Guests>, TaskError> {
    let runtime = load::runtime(app, "policy", &GrantArgs::default())?;
    let mut plugins = Vec::new();
    for file in &log.policies {
        let _progress = app.progress("loading a policy");
        match runtime.load(file, "policy", &GrantSet::default()) {
            Ok(plugin) => plugins.push(plugin),
            Err(error) => app
                .output
                .note(format!("note: a policy of the log does not load: {error}")),
        }
    }
    Ok(Arc::new(plugins.into_iter().collect::<Policies>()))
}

fn text(replayed: &Replayed) -> String {
    let mut lines = vec![format!(
        "{} decisions came out the same, {} did not",
        replayed.same,
        replayed.different.len() + replayed.repicked.len() + replayed.replaced.len()
    )];
    if replayed.without_checkpoint > 0 {
        lines.push(format!(
            "{} are older than the first checkpoint of their policy and cannot be made again",
            replayed.without_checkpoint
        ));
    }
    for absent in &replayed.without_plugin {
        lines.push(format!(
            "{} are of policy {}, whose file {} is not here",
            absent.decisions,
            absent.plugin,
            absent.id.short()
        ));
    }
    for repicked in &replayed.repicked {
        lines.push(format!(
            "entry {}, request {}: nodes were asked in the order {:?} then, {:?} now",
            repicked.entry, repicked.request, repicked.logged, repicked.now
        ));
        if let Some([then, now]) = &repicked.said {
            lines.push(format!("  the policy said: {then} then, {now} now"));
        }
    }
    for replaced in &replayed.replaced {
        let [then, now] = &replaced.told;
        lines.push(format!(
            "entry {}, request {}: {then}; now {now}",
            replaced.entry, replaced.request
        ));
    }
    for different in &replayed.different {
        let now = different.now.as_ref();
        let now = now.map_or_else(|| "none".to_owned(), |now| now.chosen.to_string());
        let [then_failed, now_failed] = &different.failures;
        lines.push(format!(
            "entry {}, request {}: candidate {} then, {now} now",
            different.entry, different.request, different.logged.chosen
        ));
        if then_failed != now_failed {
            let told = |failures: &[Failed]| match failures {
                [] => "nothing".to_owned(),
                all => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            };
            lines.push(format!(
                "  what failed before it: {} then, {} now",
                told(then_failed),
                told(now_failed)
            ));
        }
    }
    lines.join("\n")
}
