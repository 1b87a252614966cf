use crate::answer::{self, Answer, body_value, millis};
use crate::app::App;
use crate::input::{self, CallArgs, Input};
use crate::load::{self, GrantArgs};
use crate::output::end_if_unread;
use crate::source::Source;
use clap::Args;
use karman_engine::stdio::{self, MemoryInputPipe, MemoryOutputPipe, StdinStream, StdoutStream};
use karman_engine::{CallReport, CommandIo, Plugin, StreamRequest};
use karman_node::Runtime;
use karman_types::{TaskError, TaskRequest, TaskResponse, World};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};

/// `karman run`
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// A .wasm file, a project's folder, or a reference in a registry
    plugin: String,
    /// A file with the input, or - for standard input
    pub(crate) input: Option<String>,
    /// Arguments for a command
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
    #[command(flatten)]
    call: CallArgs,
    #[command(flatten)]
    grants: GrantArgs,
}

impl Run {
    pub(crate) fn run(&self, app: &App) -> Result<u8, TaskError> {
        let source = Source::find(app, &self.plugin)?;
        let runtime = load::runtime(app, &source.name, &self.grants)?;
        let plugin = load::plugin(app, &runtime, &source, &self.grants)?;
        let once = Once {
            app,
            runtime: &runtime,
            plugin: &plugin,
            call: &self.call,
        };
        once.run(self.input.as_deref(), &self.args)
    }
}

/// One run of a plugin.
pub(crate) struct Once<'a> {
    pub(crate) app: &'a App,
    pub(crate) runtime: &'a Runtime,
    pub(crate) plugin: &'a Arc<Plugin>,
    pub(crate) call: &'a CallArgs,
}

impl Once<'_> {
    /// Runs it as its world says and prints what it answers; the exit code is the command's own, 0 for a task.
    pub(crate) fn run(&self, input: Option<&str>, args: &[String]) -> Result<u8, TaskError> {
        let (name, world) = (&self.plugin.manifest().name, self.plugin.package().world);
        if world != World::Command && !args.is_empty() {
            return Err(
                TaskError::invalid(format!("`{name}` is {world} and takes no arguments"))
                    .with_hint("give it input: a file, or - for standard input"),
            );
        }
        match world {
            World::Task => self.task(input).map(|()| 0),
            World::TaskStream => self.stream(input).map(|()| 0),
            World::Command => self.command(input, args),
            World::Client => Err(TaskError::invalid(format!(
                "`{name}` trains in a federated run and does not run by itself"
            ))
            .with_hint("karman fed run fed.toml --plugin PLUGIN")),
            World::Strategy => Err(TaskError::invalid(format!(
                "`{name}` makes the versions of a federated run and does not run by itself"
            ))
            .with_hint("name it in the run's description: `[strategy]` with `name = \"plugin\"` and `plugin = \"PLUGIN\"`")),
            World::PolicySelect => Err(TaskError::invalid(format!(
                "`{name}` decides for a node and does not run by itself"
            ))
            .with_hint("`karman deploy` it, and name it in a workflow: `select = \"NAME\"`")),
            World::PolicyRoute => Err(TaskError::invalid(format!(
                "`{name}` decides for a node and does not run by itself"
            ))
            .with_hint("`karman deploy` it, and name it in node.toml: `route = \"NAME\"` under `[policies]`")),
            World::PolicyPlace => Err(TaskError::invalid(format!(
                "`{name}` decides about placements and does not run by itself"
            ))
            .with_hint("`karman deploy` it, and name it in node.toml: `place = \"NAME\"` under `[policies]`")),
            World::Http => Err(TaskError::invalid(format!(
                "`{name}` answers HTTP requests and does not run by itself"
            ))
            .with_hint("karman serve PLUGIN")),
        }
    }

    fn task(&self, input: Option<&str>) -> Result<(), TaskError> {
        let input = Input::read(
            input,
            self.call.content_type.as_deref(),
            self.plugin.limits().input,
        )?;
        let metadata = self.call.metadata.clone();
        let request = TaskRequest {
            content_type: input.content_type,
            metadata,
            body: input.body,
        };
        let context = self.runtime.context(self.call.within);
        let called = self.app.block_on(self.plugin.call(request, context));
        let (response, report) = called.map_err(|error| self.refused(error))?;
        self.print(&response, &report)
    }

    fn stream(&self, input: Option<&str>) -> Result<(), TaskError> {
        let output = &self.app.output;
        let refused = |error| self.refused(error);
        let context = self.runtime.context(self.call.within);
        let called = self.app.block_on(async {
            let request = self.stream_request(input)?;
            if output.json {
                let called = self.plugin.call_gathered(request, context).await;
                return called.map(Some).map_err(refused);
            }
            let begin = Box::new(|_| Box::pin(Stdout) as Pin<Box<dyn AsyncWrite + Send>>);
            let called = self.plugin.call_stream(request, begin, context).await;
            called.map(|_| None).map_err(refused)
        })?;
        let Some((response, report)) = called else {
            return Ok(());
        };
        self.print(&response, &report)
    }

    fn refused(&self, error: TaskError) -> TaskError {
        let manifest = self.plugin.manifest();
        let name = &manifest.name;
        answer::refused(error, || match &manifest.task {
            Some(_) => format!("`karman inspect` on the file of `{name}` shows what it takes"),
            None => format!("`{name}` itself refuses the input: correct it"),
        })
    }

    fn print(&self, response: &TaskResponse, report: &CallReport) -> Result<(), TaskError> {
        let answer = Answer {
            content_type: &response.content_type,
            body: &response.body,
            took: report.took,
            memory_peak: report.memory_peak,
            ran_on: report.ran_on.as_deref(),
            there: None,
        };
        answer.print(&self.app.output)
    }

    fn stream_request(&self, input: Option<&str>) -> Result<StreamRequest, TaskError> {
        let body: Pin<Box<dyn AsyncRead + Send>> = match input {
            None => Box::pin(tokio::io::empty()),
            Some("-") => Box::pin(tokio::io::stdin()),
            Some(path) => Box::pin(tokio::fs::File::from_std(input::open(Path::new(path))?)),
        };
        let path = input.filter(|input| *input != "-").map(Path::new);
        let given = self.call.content_type.clone();
        Ok(StreamRequest {
            content_type: given.unwrap_or_else(|| input::type_of(path, b"").to_owned()),
            metadata: self.call.metadata.clone(),
            body,
        })
    }

    fn command(&self, input: Option<&str>, args: &[String]) -> Result<u8, TaskError> {
        let (output, limits) = (&self.app.output, self.plugin.limits());
        let stdin: Box<dyn StdinStream> = match input {
            None | Some("-") => Box::new(stdio::stdin()),
            Some(_) => Box::new(MemoryInputPipe::new(Input::read(input, None, limits.input)?.body)),
        };
        let kept = MemoryOutputPipe::new(limits.output.as_usize());
        let stdout: Box<dyn StdoutStream> = match output.json {
            true => Box::new(kept.clone()),
            false => Box::new(stdio::stdout()),
        };
        let name = self.plugin.manifest().name.clone();
        let args = std::iter::once(name).chain(args.iter().cloned()).collect();
        let io = CommandIo {
            args,
            stdin,
            stdout,
            stderr: Box::new(stdio::stderr()),
        };
        let context = self.runtime.context(self.call.within);
        let (code, report) = self.app.block_on(self.plugin.run_command(io, context))?;
        if output.json {
            self.command_object(code, &kept.contents(), &report)?;
        }
        Ok(code)
    }

    fn command_object(&self, code: u8, stdout: &[u8], report: &CallReport) -> Result<(), TaskError> {
        let mut object = json!({
            "exit_code": code, "content_type": "", "took_ms": millis(report.took),
            "memory_peak_bytes": report.memory_peak, "ran_on": report.ran_on,
        });
        let (key, value) = body_value("", stdout);
        object[key] = value;
        self.app.output.line(object)
    }
}

/// Standard output, as the response comes.
struct Stdout;

impl AsyncWrite for Stdout {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        // In place: what is printed must not wait in a buffer that nobody flushes.
        let mut out = std::io::stdout().lock();
        let written = out.write(bytes).and_then(|count| out.flush().map(|()| count));
        Poll::Ready(written.or_else(end_if_unread))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
