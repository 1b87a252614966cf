use crate::app::App;
use crate::cli;
use crate::load::{self, GrantArgs};
use crate::source::Source;
use clap::Args;
use karman_engine::Plugin;
use karman_node::{Listener, ShutDown, serve_plugin};
use karman_types::{TaskError, World};
use serde_json::json;
use std::net::SocketAddr;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// `karman serve`
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// A .wasm file, a project's folder, or a reference in a registry
    plugin: String,
    /// Where to listen [default: `listen` of node.toml, 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", value_parser = cli::listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    grants: GrantArgs,
}

impl Serve {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let source = Source::find(app, &self.plugin)?;
        let thread = this_thread()?;
        let _inside = thread.enter();
        let runtime = load::runtime(app, &source.name, &self.grants)?;
        // The address before the code: it is the cheaper one to fail, and who comes early waits instead of failing.
        let address = self.listen.unwrap_or_else(|| runtime.config().listen);
        let listener = thread.block_on(Listener::bind(address))?;
        let plugin = load::plugin(app, &runtime, &source, &self.grants)?;
        check(&plugin)?;
        let shut_down = stop_by_signal()?;
        announce(app, &plugin, &listener)?;
        thread.block_on(serve_plugin(listener, runtime, plugin, &shut_down));
        Ok(())
    }
}

/// # Errors
/// `invalid` when the plugin serves no HTTP.
pub(crate) fn check(plugin: &Plugin) -> Result<(), TaskError> {
    let (name, world) = (&plugin.manifest().name, plugin.package().world);
    match world {
        World::Http => Ok(()),
        _ => Err(
            TaskError::invalid(format!("`{name}` is {world} and serves no HTTP"))
                .with_hint("karman run PLUGIN, or `karman node up` and `karman deploy` for POST /tasks/NAME"),
        ),
    }
}

/// Says that requests are answered now, and where.
pub(crate) fn announce(app: &App, plugin: &Plugin, listener: &Listener) -> Result<(), TaskError> {
    let address = listener
        .address()
        .map_err(|error| TaskError::internal(error.to_string()))?;
    let (name, version) = (&plugin.manifest().name, &plugin.manifest().version);
    if app.output.json {
        let url = format!("http://{address}");
        app.output
            .line(json!({ "name": name, "version": version, "url": url }))?;
    }
    app.output
        .note(format!("serving {name} {version} on http://{address}"));
    Ok(())
}

/// Threads for all that a node does, one for each core.
pub(crate) fn threads() -> Result<Runtime, TaskError> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| TaskError::internal(error.to_string()))
}

/// This thread alone, for who only listens: connections have threads of their own.
fn this_thread() -> Result<Runtime, TaskError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| TaskError::internal(error.to_string()))
}

/// A shutdown that SIGINT or SIGTERM starts; a second one lets nobody wait for what is under way.
pub(crate) fn stop_by_signal() -> Result<ShutDown, TaskError> {
    let failed = |error: std::io::Error| TaskError::internal(error.to_string());
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let shut_down = ShutDown::default();
    let stop = shut_down.clone();
    tokio::spawn(async move {
        either(&mut interrupt, &mut terminate).await;
        tracing::info!("shutting down: what is under way may finish; a second signal ends it");
        stop.now();
        either(&mut interrupt, &mut terminate).await;
        stop.hurry();
    });
    Ok(shut_down)
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
