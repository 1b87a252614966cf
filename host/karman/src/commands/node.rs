mod join;
mod reset_clock;

use crate::app::App;
use crate::cli;
use crate::commands::build::list;
use crate::commands::serve;
use crate::control::{Control, escape};
use crate::error::Worded;
use crate::held::{self, Held};
use crate::input;
use crate::link_profile;
use crate::load::note_unasked;
use crate::logging;
use crate::parent;
use crate::source::Source;
use crate::supervisor;
use bytes::Bytes;
use clap::{Args, Subcommand};
use http::Method;
use join::Given;
use karman_node::{ComputeProfile, LogEvent, LogRing, NodeConfig, TaskState, TaskStatus};
use karman_package::{Package, PublicKey, ReadLimits};
use karman_types::{Grant, NodeId, TaskError, Tier, from_toml};
use reset_clock::ResetClock;
use rustix::process::Pid;
use serde_json::json;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// How often new events are asked for.
const POLL: Duration = Duration::from_millis(500);

/// `karman node`
#[derive(Args, Debug)]
pub(crate) struct Node {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do with the node.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a node: the plugins that it holds, on its address
    #[command(
        after_help = "Examples:\n  karman node up --listen 0.0.0.0:8080\n  karman node up --join kmn1…\n  karman node up --link-profile satellite.toml"
    )]
    Up(Up),
    /// Show who this node is: its id, and the key that an invitation for it names
    #[command(after_help = "Examples:\n  karman node id\n  karman node id --long")]
    Id(Id),
    /// Allow a plugin what it asks for, or take it back
    #[command(
        after_help = "Examples:\n  karman node grant classify http:tiles.example\n  karman node grant classify http:tiles.example --revoke"
    )]
    Grant(Allow),
    /// Show the node's last events
    #[command(after_help = "Examples:\n  karman node logs --follow\n  karman node logs --plugin classify")]
    Logs(Logs),
    /// Take the node out of service until it is started again: it takes nothing new, and what waits goes to other nodes
    #[command(after_help = "Examples:\n  karman node drain\n  karman node drain --json")]
    Drain,
    /// Have a stopped node believe its clock again, after that was once ahead
    #[command(after_help = "Examples:\n  karman node reset-clock\n  karman node reset-clock --json")]
    ResetClock(ResetClock),
}

/// `karman node up`
#[derive(Args, Debug)]
pub(crate) struct Up {
    /// Where to listen [default: `listen` of node.toml, 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", value_parser = cli::listen)]
    listen: Option<SocketAddr>,
    /// Where to listen for other nodes, UDP and TCP [default: `mesh.listen` of node.toml, 0.0.0.0:7117]
    #[arg(long, value_name = "ADDRESS", value_parser = cli::listen)]
    mesh_listen: Option<SocketAddr>,
    /// Where this node stands, until an invitation says so: edge, fog, cloud or space [default: `tier` of node.toml, edge]
    #[arg(long, value_name = "TIER")]
    tier: Option<Tier>,
    /// Join a mesh: the invitation, or the path of a file that holds it and is deleted once it is used; a member goes on without that file
    #[arg(long, value_name = "INVITATION")]
    join: Option<String>,
    /// Rehearse: let the links that leave this node behave as in this file (delay, loss, rate, outages), and anew when it changes
    #[arg(long, value_name = "FILE")]
    link_profile: Option<PathBuf>,
    /// Rehearse: let models run as slowly as this file says (`slowdown = 8`)
    #[arg(long, value_name = "FILE")]
    compute_profile: Option<PathBuf>,
    /// End once the process of this id is no longer the parent: as a child of our own
    #[arg(long, value_name = "PID", hide = true)]
    end_with: Option<NonZero<i32>>,
}

/// `karman node id`
#[derive(Args, Debug)]
pub(crate) struct Id {
    /// The id in full length
    #[arg(long)]
    long: bool,
}

/// `karman node grant`
#[derive(Args, Debug)]
pub(crate) struct Allow {
    /// The name of an installed plugin, or the file or folder of any other
    plugin: String,
    /// Permissions such as http:example.org
    #[arg(required = true, value_name = "GRANT")]
    grants: Vec<Grant>,
    /// Take them back
    #[arg(long)]
    revoke: bool,
}

/// `karman node logs`
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// Go on showing what happens
    #[arg(short, long)]
    follow: bool,
    /// Only what is about this plugin
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
}

impl Node {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Up(verb) => verb.run(app),
            Verb::Grant(verb) => verb.run(app),
            Verb::Logs(verb) => verb.run(app),
            Verb::Drain => drain(app),
            Verb::Id(verb) => verb.run(app),
            Verb::ResetClock(verb) => verb.run(app),
        }
    }
}

impl Id {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let keys = app.keys()?;
        let (id, key) = (keys.node().id(), PublicKey::from_bytes(keys.node().public()));
        let shown = if self.long { id.to_string() } else { id.short() };
        app.output.result(
            || format!("{shown}   {key}"),
            || json!({ "node": id, "key": key }),
        )
    }
}

/// Answers when nothing runs any more and what waited is elsewhere.
fn drain(app: &App) -> Result<(), TaskError> {
    let control = Control::new(app)?;
    let progress = app.progress("draining");
    let heirs = control.order::<Vec<NodeId>>(Method::POST, "/drain", Bytes::new());
    drop(progress);
    let heirs = heirs?;
    let left: Vec<TaskStatus> = control.get("/accepted")?;
    let left = left
        .iter()
        .filter(|task| matches!(task.state, TaskState::Waiting | TaskState::DeadlineUnknown))
        .count();
    let tasks = match left {
        1 => "1 task waits".to_owned(),
        left => format!("{left} tasks wait"),
    };
    app.output.note("it takes work again once it is started anew");
    app.output.result(
        || match (heirs.is_empty(), left) {
            (_, 0) => "drained: nothing runs or waits here".into(),
            (true, _) => format!("drained: no node in reach takes over, {tasks} here for the next start"),
            (false, _) => format!("drained: {tasks} here for the next start"),
        },
        || json!({ "heirs": heirs, "waiting": left }),
    )
}

fn compute_profile(file: &Path) -> Result<ComputeProfile, TaskError> {
    input::toml(file, from_toml)
}

impl Up {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let (ring, _lines) = logging::start_node(app)?;
        serve::threads()?.block_on(async {
            let node = self.start(app, self.config(app)?, ring).await?;
            let shut_down = serve::stop_by_signal()?;
            let up = |address: SocketAddr| {
                supervisor::watched(&node, &shut_down);
                let status = node.status();
                let (id, count) = (status.node.get(..8).unwrap_or(&status.node), status.plugins.len());
                let plugins = if count == 1 {
                    "1 plugin".into()
                } else {
                    format!("{count} plugins")
                };
                app.output.note(format!(
                    "node {id} ({}) on http://{address}   {plugins}",
                    status.tier
                ));
                if app.output.json {
                    let url = format!("http://{address}");
                    let _ = app
                        .output
                        .line(json!({ "node": status.node, "tier": status.tier, "url": url }));
                }
            };
            node.serve(&shut_down, up).await
        })
    }
}

impl Up {
    /// Whether the arguments say where to listen.
    pub(crate) const fn says_where(&self) -> bool {
        self.listen.is_some()
    }

    /// The node's configuration, overlaid with what the arguments say.
    pub(crate) fn config(&self, app: &App) -> Result<NodeConfig, TaskError> {
        if let Some(pid) = self.end_with {
            parent::end_with(Pid::from_raw(pid.get()));
        }
        let mut config = app.config()?;
        config.listen = self.listen.unwrap_or(config.listen);
        config.mesh.listen = self.mesh_listen.unwrap_or(config.mesh.listen);
        config.tier = self.tier.or(config.tier);
        if let Some(file) = &self.compute_profile {
            config.compute = compute_profile(file)?;
        }
        Ok(config)
    }

    /// Starts the node, and takes it into its mesh.
    pub(crate) async fn start(
        &self,
        app: &App,
        config: NodeConfig,
        ring: LogRing,
    ) -> Result<karman_node::Node, TaskError> {
        let invitation = self.join.as_deref().map(Given::read).transpose()?;
        let started = karman_node::Node::start(config, app.runtime_options(), ring).await;
        let node = started.map_err(Worded::worded)?;
        self.join(app, &node, invitation).await?;
        if let Some(file) = &self.link_profile {
            link_profile::follow(&node, file.clone());
        }
        Ok(node)
    }
}

impl Allow {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let held = Held::open(app)?;
        let installed = held.installed()?;
        let (identity, file) = match installed.into_iter().find(|plugin| plugin.name == self.plugin) {
            Some(plugin) => (plugin.identity, None),
            None => {
                let package = self.file(app)?;
                (package.identity().to_string(), Some(package))
            }
        };
        if !self.revoke {
            app.home().must_not_be_granted(&self.grants)?;
        }
        let now = held.allow(&identity, &self.grants, self.revoke)?;
        let name = &self.plugin;
        app.output.result(
            || format!("{name}   allowed: {}", list(now.iter())),
            || json!({ "plugin": name, "identity": identity, "allowed": now }),
        )?;
        let used = match file {
            Some(package) => held::used_by(&package),
            // It is allowed by now, whatever the plugin's file says.
            None => held.used(&identity).unwrap_or_default(),
        };
        if let Some(used) = used.filter(|_| !self.revoke) {
            note_unasked(app, name, &used, self.grants.iter());
        }
        Ok(())
    }

    fn file(&self, app: &App) -> Result<Package, TaskError> {
        if !Path::new(&self.plugin).exists() {
            return Err(
                TaskError::invalid(format!("no plugin `{}` is installed here", self.plugin))
                    .with_field("plugin")
                    .with_hint(
                        "`karman top` lists those of the running node; or name a file or a project's folder",
                    ),
            );
        }
        let source = Source::local(app, Path::new(&self.plugin))?;
        Package::read(&source.bytes, &ReadLimits::default()).map_err(Worded::worded)
    }
}

impl Logs {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let control = Control::new(app)?;
        let plugin = self
            .plugin
            .as_deref()
            .map(|name| format!("&plugin={}", escape(name)))
            .unwrap_or_default();
        let mut last = 0;
        loop {
            let events: Vec<LogEvent> = control.get(&format!("/logs?after={last}{plugin}"))?;
            last = events.last().map_or(last, |event| event.number);
            for event in &events {
                app.output.result(|| text(event), || json!(event))?;
            }
            if !self.follow {
                return Ok(());
            }
            app.block_on(async {
                tokio::time::sleep(POLL).await;
                Ok(())
            })?;
        }
    }
}

/// `12:04:07  info   classify   loaded`, in universal time as the node's own lines are.
fn text(event: &LogEvent) -> String {
    let since = UNIX_EPOCH + Duration::from_millis(event.unix_ms);
    let seconds = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let plugin = event
        .plugin
        .as_deref()
        .map(|name| format!("{name}   "))
        .unwrap_or_default();
    format!(
        "{hours:02}:{minutes:02}:{seconds:02}  {:5}  {plugin}{}",
        event.level, event.message
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let event = LogEvent {
            number: 1,
            unix_ms: 1_700_000_047_000,
            level: "info".into(),
            plugin: Some("classify".into()),
            message: "loaded".into(),
        };
        assert_eq!(text(&event), "22:14:07  info   classify   loaded");
    }
}
