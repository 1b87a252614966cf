use crate::cli::Global;
use crate::error::Worded;
use crate::output::{Output, printable};
use crate::places::Places;
use indicatif::{ProgressBar, ProgressStyle};
use karman_kit::Tools;
use karman_node::{Home, NodeConfig, RuntimeOptions};
use karman_store::NodeKeys;
use karman_types::TaskError;
use std::time::Duration;

/// What every command works with. Nothing is opened or read before a command asks.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) output: Output,
    pub(crate) places: Places,
    /// How often `-v` was given.
    pub(crate) verbose: u8,
}

impl App {
    pub(crate) fn new(global: Global, output: Output) -> Self {
        let places = Places::find(
            global.state,
            global.config,
            |name| std::env::var_os(name),
            |path| path.exists(),
        );
        Self {
            output,
            places,
            verbose: global.verbose,
        }
    }

    /// The node's configuration: the file, overlaid with `KARMAN_…`.
    ///
    /// # Errors
    /// `invalid` when it does not read.
    pub(crate) fn config(&self) -> Result<NodeConfig, TaskError> {
        // KARMAN_CONFIG names the file; it is not the table `config` in it.
        let variables = std::env::vars_os()
            .filter(|(name, _)| name != "KARMAN_CONFIG")
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        NodeConfig::load(self.places.config.as_deref(), variables).map_err(Worded::worded)
    }

    /// Where a runtime keeps things.
    pub(crate) fn runtime_options(&self) -> RuntimeOptions {
        RuntimeOptions {
            state: self.places.state.clone(),
            cache: self.places.cache.clone(),
            program: std::env::current_exe().ok(),
        }
    }

    /// The node's folder.
    pub(crate) fn home(&self) -> Home {
        Home::new(&self.places.state)
    }

    /// The keys of the node; those that are not there are made.
    ///
    /// # Errors
    /// What the disk refuses: `denied` where the folder is another user's.
    pub(crate) fn keys(&self) -> Result<NodeKeys, TaskError> {
        NodeKeys::open(&self.places.state).map_err(Worded::worded)
    }

    /// The guest toolchains.
    pub(crate) fn tools(&self) -> Tools {
        Tools::find(self.places.tools.as_deref())
    }

    /// Runs a future where no threads are needed.
    ///
    /// # Errors
    /// What the future answers; `internal` when the system has no more descriptors.
    pub(crate) fn block_on<T>(
        &self,
        future: impl Future<Output = Result<T, TaskError>>,
    ) -> Result<T, TaskError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| TaskError::internal(error.to_string()))?;
        let result = runtime.block_on(future);
        // A thread may still wait for standard input, which nobody will write any more.
        runtime.shutdown_background();
        result
    }

    /// Shows that something takes its time, on a terminal only.
    pub(crate) fn progress(&self, what: &str) -> Progress {
        if !self.output.shows_progress() {
            return Progress(None);
        }
        let bar = ProgressBar::new_spinner();
        let style = if self.output.colour_err() {
            "{spinner:.cyan} {msg}"
        } else {
            "{spinner} {msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(printable(what).into_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress(Some(bar))
    }
}

/// Something that takes its time; gone from the terminal when dropped.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    /// Says which step it is at.
    pub(crate) fn step(&self, what: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(printable(what).into_owned());
        }
    }

    /// Does something that writes to the terminal, out of its way.
    pub(crate) fn aside<T>(&self, writes: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bar) => bar.suspend(writes),
            None => writes(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
