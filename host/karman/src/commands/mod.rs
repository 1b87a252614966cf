//! One command per file: its arguments, and what it does with them.

pub(crate) mod build;
pub(crate) mod call;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod deploy;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod fed;
pub(crate) mod flow;
pub(crate) mod gateway;
pub(crate) mod gpu;
pub(crate) mod inspect;
pub(crate) mod mesh;
pub(crate) mod model;
pub(crate) mod new;
pub(crate) mod node;
pub(crate) mod probe;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod sign;
pub(crate) mod sim;
pub(crate) mod task;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod undeploy;
pub(crate) mod verify;
pub(crate) mod why;

use crate::app::App;
use crate::cli::Command;
use crate::logging;
use karman_types::TaskError;

/// Runs a command and answers the exit code.
///
/// # Errors
/// Whatever the command ends with.
pub(crate) fn run(command: Command, app: &App) -> Result<u8, TaskError> {
    if !matches!(
        command,
        Command::Node(node::Node {
            verb: node::Verb::Up(_)
        }) | Command::Gateway(_)
    ) {
        logging::start(app);
    }
    let done = match command {
        Command::Run(command) => return command.run(app),
        Command::Doctor(command) => return command.run(app),
        Command::New(command) => command.run(app),
        Command::Build(command) => command.run(app),
        Command::Dev(command) => command.run(app),
        Command::Serve(command) => command.run(app),
        Command::Inspect(command) => command.run(app),
        Command::Sign(command) => command.run(app),
        Command::Verify(command) => command.run(app),
        Command::Push(command) => command.run(app),
        Command::Pull(command) => command.run(app),
        Command::Demo(command) => command.run(app),
        Command::Deploy(command) => command.run(app),
        Command::Undeploy(command) => command.run(app),
        Command::Call(command) => command.run(app),
        Command::Task(command) => command.run(app),
        Command::Why(command) => command.run(app),
        Command::Replay(command) => return command.run(app),
        Command::Top(command) => command.run(app),
        Command::Node(command) => command.run(app),
        Command::Mesh(command) => command.run(app),
        Command::Model(command) => command.run(app),
        Command::Flow(command) => command.run(app),
        Command::Gpu(command) => command.run(app),
        Command::Gateway(command) => command.run(app),
        Command::Token(command) => command.run(app),
        Command::Fed(command) => command.run(app),
        Command::Sim(command) => command.run(app),
        Command::Secret(command) => command.run(app),
        Command::Completions(command) => command.run(app),
        Command::ProbeOnnxruntime(command) => command.run(app),
        Command::ProbeModel => probe::model(),
        Command::ProbeGpu => gpu::probe(app),
        Command::ServeGpu(command) => command.run(),
    };
    done.map(|()| 0)
}
