use super::view::{View, doing, waits};
use crate::app::App;
use crate::commands::serve;
use crate::control::{Control, escape};
use crate::input;
use crate::load::{self, GrantArgs};
use crate::source::Source;
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_node::{FedEvent, FedStatus, check_run, simulate};
use karman_types::{ErrorKind, TaskError};
use serde_json::json;
use std::path::PathBuf;

/// How long one question waits at the node; and where somebody watches how a round goes.
const WAIT_MS: u64 = 20_000;
const WATCHED_MS: u64 = 1_000;

/// `karman fed run`
#[derive(Args, Debug)]
pub(super) struct Run {
    /// The description of the run; - is standard input
    file: PathBuf,
    /// The plugin that trains, in place of `clients.plugin`
    #[arg(long, value_name = "PLUGIN")]
    plugin: Option<String>,
    /// Begin anew a run that has ended, or has begun otherwise
    #[arg(long)]
    again: bool,
    /// Do not watch it: the node drives it
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    grants: GrantArgs,
}

impl Run {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let mut run = input::toml(&self.file, karman_fed::Run::from_toml)?;
        if let Some(plugin) = &self.plugin {
            run.clients.plugin = plugin.clone();
        }
        check_run(&run)?;
        match run.clients.simulated {
            0 => self.on_nodes(app, &run),
            _ => self.here(app, run),
        }
    }

    /// Clients on nodes: the running node drives, this process watches.
    fn on_nodes(&self, app: &App, run: &karman_fed::Run) -> Result<(), TaskError> {
        let control = Control::new(app)?;
        let body = serde_json::to_vec(run).map_err(|error| TaskError::internal(error.to_string()))?;
        let path = format!("/fed?again={}", self.again);
        let started: FedStatus = control.order(Method::POST, &path, Bytes::from(body))?;
        if self.detach {
            return app.output.result(
                || format!("{}   driven by the node", started.name),
                || json!({ "name": started.name }),
            );
        }
        let watched = app.output.shows_progress();
        if watched {
            app.output.note(format!(
                "this node drives `{}`: Ctrl-C ends the watching alone, `karman fed stop {0}` the run",
                run.name
            ));
        }
        let wait = if watched { WATCHED_MS } else { WAIT_MS };
        let progress = app.progress(&run.name);
        let mut view = View::default();
        let (mut seen, mut noted) = (0, None);
        let mut last = None;
        loop {
            let path = format!("/fed/{}?after={seen}&wait_ms={wait}", escape(&run.name));
            let status: FedStatus = control.get(&path).map_err(goes_on)?;
            progress.step(&doing(&status, run));
            progress.aside(|| {
                status
                    .log
                    .iter()
                    .try_for_each(|event| view.show(app, event, &status))
            })?;
            seen = status.events;
            // Where nobody sees the progress, what keeps a run from its first round is said once.
            let waits = waits(&status, run).filter(|_| !watched && status.log.is_empty());
            if waits.is_some() && waits != noted {
                waits.iter().for_each(|waits| app.output.note(waits));
                noted = waits;
            }
            // The answer that tells of the end may come after the one with the last event.
            last = latest(status.log, last);
            if !status.running {
                return outcome(&status.name, last.as_ref());
            }
        }
    }

    /// Clients that this process plays.
    fn here(&self, app: &App, run: karman_fed::Run) -> Result<(), TaskError> {
        let source = Source::find(app, &run.clients.plugin)?;
        let threads = serve::threads()?;
        let _inside = threads.enter();
        let runtime = load::runtime(app, &source.name, &self.grants)?;
        let plugin = load::plugin(app, &runtime, &source, &self.grants)?;
        let brings = match run.strategy.plugin() {
            Some(named) => {
                let source = Source::find(app, &named.plugin)?;
                // It reaches nothing: there is nothing to allow it.
                Some(load::plugin(app, &runtime, &source, &GrantArgs::default())?)
            }
            None => None,
        };
        let mut view = View::default();
        let mut shown = Ok(());
        let described = run.clone();
        let begins = format!(
            "{}: {} clients say what they have",
            run.name, run.clients.simulated
        );
        let progress = app.progress(&begins);
        let told = |event: &FedEvent, status: &FedStatus| {
            progress.step(&doing(status, &described));
            if shown.is_ok() {
                shown = progress.aside(|| view.show(app, event, status));
            }
        };
        let plugins = (plugin, brings);
        let status = threads.block_on(simulate(&runtime, plugins, run, self.again, told))?;
        drop(progress);
        shown?;
        outcome(&status.name, status.log.last())
    }
}

/// That the node is gone ends the watching, not the run.
fn goes_on(error: TaskError) -> TaskError {
    match error.kind {
        ErrorKind::Unavailable => error
            .with_hint("the run goes on when the node is started again; the same command watches it then"),
        _ => error,
    }
}

/// The last event of all answers so far.
fn latest(log: Vec<FedEvent>, before: Option<FedEvent>) -> Option<FedEvent> {
    log.into_iter().next_back().or(before)
}

/// A run that did not get where it should has failed: its last event says so.
fn outcome(name: &str, last: Option<&FedEvent>) -> Result<(), TaskError> {
    match last {
        Some(FedEvent::Finished {
            failure: Some(why), ..
        }) => Err(TaskError::failed(format!("`{name}`: {why}"))
            .with_hint("karman fed status shows its clients; karman fed run … --again begins it anew")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_failed_also_where_the_last_answer_holds_no_event() {
        let finished = FedEvent::Finished {
            version: 2,
            failure: Some("too few clients".into()),
        };
        let last = latest(vec![finished], None);
        let last = latest(Vec::new(), last);
        let error = outcome("digits", last.as_ref()).unwrap_err();
        assert_eq!(error.message, "`digits`: too few clients");
        assert_eq!(outcome("digits", None), Ok(()));
    }

    #[test]
    fn whose_node_is_gone_hears_that_the_run_goes_on() {
        let gone = TaskError::unavailable("the node did not answer").with_hint("see `karman node logs`");
        assert!(
            goes_on(gone)
                .hint
                .unwrap()
                .contains("the same command watches it")
        );
        let refused = TaskError::denied("no");
        assert_eq!(goes_on(refused.clone()), refused);
    }
}
