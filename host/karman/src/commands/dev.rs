use crate::app::App;
use crate::cli;
use crate::commands::run::Once;
use crate::commands::{build, serve};
use crate::error::Worded;
use crate::input::CallArgs;
use crate::load::{self, GrantArgs};
use crate::source::{self, Source};
use crate::watch::Watch;
use clap::Args;
use karman_engine::Plugin;
use karman_kit::Project;
use karman_node::{Listener, Runtime, ShutDown, serve_plugin};
use karman_types::{TaskError, World};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// `karman dev`
#[derive(Args, Debug)]
pub(crate) struct Dev {
    /// The project's folder
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// A file with the input of each run
    input: Option<String>,
    /// Arguments for a command
    #[arg(last = true)]
    args: Vec<String>,
    /// Where an HTTP plugin listens [default: `listen` of node.toml, 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", value_parser = cli::listen)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    call: CallArgs,
    #[command(flatten)]
    grants: GrantArgs,
}

impl Dev {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        if self.input.as_deref() == Some("-") {
            return Err(TaskError::invalid("standard input can be read only once")
                .with_hint("name a file with the input"));
        }
        let project = Project::open(&self.dir).map_err(Worded::worded)?;
        let mut watch = Watch::new(&project.dir)?;
        let runtime = load::runtime(app, &project.manifest.name, &self.grants)?;
        let threads = serve::threads()?;
        let _inside = threads.enter();
        let mut serving = None;
        loop {
            let began = SystemTime::now();
            // Whatever is wrong with this state of the sources, the next may be right.
            if let Err(error) = self.turn(app, &runtime, &threads, &mut serving) {
                app.output.error(&error);
            }
            app.output
                .note(format!("watching {}; Ctrl-C ends", project.dir.display()));
            let built = source::built_at(&project).filter(|built| *built > began);
            watch.wait(built.unwrap_or(began))?;
        }
    }

    fn turn(
        &self,
        app: &App,
        runtime: &Runtime,
        threads: &tokio::runtime::Runtime,
        serving: &mut Option<ShutDown>,
    ) -> Result<(), TaskError> {
        let project = Project::open(&self.dir).map_err(Worded::worded)?;
        let built = source::build(app, &project)?;
        build::show(app, &built)?;
        let plugin = load::plugin(app, runtime, &Source::local(app, &built.path)?, &self.grants)?;
        if plugin.package().world == World::Http {
            // The version before serves until here: a broken one never takes its place.
            serving.take().inspect(ShutDown::now);
            *serving = Some(threads.block_on(self.serve(app, runtime, plugin))?);
            return Ok(());
        }
        let once = Once {
            app,
            runtime,
            plugin: &plugin,
            call: &self.call,
        };
        match once.run(self.input.as_deref(), &self.args)? {
            0 => {}
            code => app.output.note(format!("exit code {code}")),
        }
        Ok(())
    }

    async fn serve(&self, app: &App, runtime: &Runtime, plugin: Arc<Plugin>) -> Result<ShutDown, TaskError> {
        let address = self.listen.unwrap_or_else(|| runtime.config().listen);
        let mut bound = Listener::bind(address).await;
        // The version before lets go of the address in a moment.
        for _ in 0..50 {
            if bound.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            bound = Listener::bind(address).await;
        }
        let listener = bound?;
        serve::announce(app, &plugin, &listener)?;
        let (runtime, shut_down) = (runtime.clone(), ShutDown::default());
        let stop = shut_down.clone();
        tokio::spawn(async move { serve_plugin(listener, runtime, plugin, &stop).await });
        Ok(shut_down)
    }
}
