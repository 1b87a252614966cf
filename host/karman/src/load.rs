use crate::app::{App, Progress};
use crate::error::Worded;
use crate::held::Held;
use crate::source::Source;
use clap::Args;
use karman_engine::Plugin;
use karman_node::Runtime;
use karman_types::{Grant, GrantSet, TaskError, format_bytes};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// What takes longer to load is being compiled: out of the cache it comes in milliseconds.
const COMPILES: Duration = Duration::from_secs(1);

/// The operator's word for one run.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GrantArgs {
    /// Allow what the plugin asks for, such as http:example.org, for this run; may be given again
    #[arg(long = "grant", value_name = "GRANT")]
    grants: Vec<Grant>,
    /// Let the plugin see this variable of the environment (--grant env:NAME); may be given again
    #[arg(long, value_name = "NAME", value_parser = variable)]
    env: Vec<Grant>,
}

impl GrantArgs {
    fn all(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().chain(&self.env)
    }
}

fn variable(name: &str) -> Result<Grant, String> {
    match name.split_once('=') {
        Some((name, value)) => Err(format!(
            "name it alone and give the value before the command: {name}={value} karman …"
        )),
        None => format!("env:{name}")
            .parse()
            .map_err(|error: karman_types::GrantError| error.to_string()),
    }
}

/// The engine with this user's folder behind it, for a plugin of this name.
///
/// # Errors
/// `invalid` for a bad configuration, `internal` when the engine cannot start.
pub(crate) fn runtime(app: &App, name: &str, words: &GrantArgs) -> Result<Runtime, TaskError> {
    let mut config = app.config()?;
    if words.all().next().is_some() {
        // A component without a manifest asks for nothing by itself: for this run it asks for what it is given.
        config
            .foreign
            .entry(name.to_owned())
            .or_default()
            .grants
            .extend(words.all().cloned());
    }
    Runtime::new(config, app.runtime_options(), None).map_err(Worded::worded)
}

/// Loads a plugin. It holds what it asks for and the node's defaults, the operator's earlier word or this run's allow; the
/// store is opened only for what the other two do not allow.
///
/// # Errors
/// Those of [`Runtime::load`].
pub(crate) fn plugin(
    app: &App,
    runtime: &Runtime,
    source: &Source,
    words: &GrantArgs,
) -> Result<Arc<Plugin>, TaskError> {
    let progress = app.progress(&format!("loading {}", source.name));
    let mut allowed: GrantSet = words.all().cloned().collect();
    let mut plugin = telling(app, &progress, source, || {
        runtime.load(&source.bytes, &source.name, &allowed)
    })
    .map_err(Worded::worded)?;
    let asked: GrantSet = plugin.manifest().asks.iter().cloned().collect();
    let used: GrantSet = plugin.manifest().permissions().cloned().collect();
    if used.beyond(plugin.grants()).next().is_some() {
        let earlier = allowed_before(app, &plugin.identity().to_string());
        if !earlier.is_empty() {
            allowed = allowed.iter().chain(earlier.iter()).cloned().collect();
            plugin = runtime
                .load(&source.bytes, &source.name, &allowed)
                .map_err(Worded::worded)?;
        }
    }
    let name = &plugin.manifest().name;
    for grant in asked.beyond(plugin.grants()) {
        app.output.note(format!(
            "note: {name} asks for {grant} and does not hold it; --grant {grant} allows it for this run"
        ));
    }
    note_unasked(app, name, &used, words.all());
    Ok(plugin)
}

/// Notes which of these grants give nothing to a plugin that asks for `asked`.
pub(crate) fn note_unasked<'a>(
    app: &App,
    name: &str,
    asked: &GrantSet,
    grants: impl Iterator<Item = &'a Grant>,
) {
    for grant in grants.filter(|grant| GrantSet::new([(*grant).clone()]).intersection(asked).is_empty()) {
        app.output.note(format!(
            "note: {name} does not ask for {grant}; list it under `asks` in karman.toml, or where it brings no manifest under `grants` of \
             `[foreign.{name}]` in node.toml"
        ));
    }
}

/// Loads, and says so where it takes long.
fn telling<T>(app: &App, progress: &Progress, source: &Source, load: impl FnOnce() -> T) -> T {
    let (loaded, waits) = mpsc::channel::<()>();
    std::thread::scope(|threads| {
        let tell = move || {
            if waits.recv_timeout(COMPILES) == Err(RecvTimeoutError::Timeout) {
                let size = format_bytes(source.bytes.len() as u64);
                let what = format!("compiling {} ({size}) for this machine, once", source.name);
                progress.aside(|| app.output.note(what));
            }
        };
        // Where the system has no thread to spare, nobody is told.
        let _ = std::thread::Builder::new().spawn_scoped(threads, tell);
        let done = load();
        drop(loaded);
        done
    })
}

fn allowed_before(app: &App, identity: &str) -> GrantSet {
    let asked = Held::if_any(app).and_then(|held| held.map(|held| held.allowed(identity)).transpose());
    asked
        .inspect_err(|error| tracing::warn!(%error, "what the operator allowed before is not known"))
        .ok()
        .flatten()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_a_grant() {
        assert_eq!(variable("HOME").unwrap().to_string(), "env:HOME");
        assert!(variable("A=b").unwrap_err().contains("A=b karman"));
    }
}
