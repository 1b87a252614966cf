use crate::app::App;
use crate::cli::Cli;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use karman_types::TaskError;

/// `karman completions`
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// For which shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        // Into memory: the generator panics where it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "karman", &mut script);
        app.output.bytes(&script)
    }
}
