//! Runs of `wasi:cli/run`, 0.2 and 0.3.

use crate::capability::wasi;
use crate::fair::Fair;
use crate::host::Host;
use crate::plugin::{CallReport, Export, Plugin};
use karman_types::{CallContext, TaskError};
use std::sync::Arc;
use wasmtime::Store;
use wasmtime::component::InstancePre;
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::cli::{StdinStream, StdoutStream};
use wasmtime_wasi::p2::bindings::CommandPre as Command02;
use wasmtime_wasi::p3::bindings::CommandPre as Command03;

/// The arguments and standard streams of a command.
pub struct CommandIo {
    /// Its arguments, the program's name first.
    pub args: Vec<String>,
    /// Its standard input.
    pub stdin: Box<dyn StdinStream>,
    /// Its standard output.
    pub stdout: Box<dyn StdoutStream>,
    /// Its standard error.
    pub stderr: Box<dyn StdoutStream>,
}

impl Plugin {
    /// Runs a command to its end and answers its exit code.
    ///
    /// # Errors
    /// `invalid` when the plugin is no command, `limit`, `deadline`, `failed` (a trap).
    pub async fn run_command(
        self: &Arc<Self>,
        io: CommandIo,
        mut context: CallContext,
    ) -> Result<(u8, CallReport), TaskError> {
        let Export::Command(pre) = &self.export else {
            return Err(self.wrong_world("wasi:cli/command"));
        };
        let pre = pre.clone();
        let mut entered = self.enter(&mut context).await?;
        let mut store = self.store(context)?;
        let mut builder = wasi::prepare(&self.info)?;
        builder
            .args(&io.args)
            .stdin(Given(io.stdin))
            .stdout(Given(io.stdout))
            .stderr(Given(io.stderr));
        store.data_mut().wasi = Some(builder.build());
        self.stats.instantiated();
        let long = store.data().long.clone();
        let run = async move {
            let patience = store.data().patience();
            let ended = tokio::time::timeout(patience, run(&pre, &mut store)).await;
            let code = match ended {
                Ok(Ok(code)) => Ok(code),
                Ok(Err(error)) => match error.downcast_ref::<I32Exit>() {
                    Some(exit) => Ok(exit.0.clamp(0, 255) as u8),
                    None => Err(store.data().explain(&error)),
                },
                Err(_) => Err(store.data().time_over()),
            };
            let report = entered.end(Some(&store), code.as_ref().err());
            code.map(|code| (code, report))
        };
        Fair::new(run, long, self.engine.workers().clone()).await
    }
}

async fn run(pre: &InstancePre<Host>, store: &mut Store<Host>) -> wasmtime::Result<u8> {
    let ended_well = match Command02::new(pre.clone()) {
        Ok(pre) => {
            pre.instantiate_async(&mut *store)
                .await?
                .wasi_cli_run()
                .call_run(&mut *store)
                .await?
        }
        Err(_) => {
            let command = Command03::new(pre.clone())?
                .instantiate_async(&mut *store)
                .await?;
            store
                .run_concurrent(async |accessor| command.wasi_cli_run().call_run(accessor).await)
                .await??
        }
    };
    Ok(u8::from(ended_well.is_err()))
}

/// Lets a boxed stream be given where a stream type is wanted.
struct Given<T: ?Sized>(Box<T>);

impl<T: wasmtime_wasi::cli::IsTerminal + ?Sized> wasmtime_wasi::cli::IsTerminal for Given<T> {
    fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

impl StdinStream for Given<dyn StdinStream> {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncRead + Send + Sync> {
        self.0.async_stream()
    }

    fn p2_stream(&self) -> Box<dyn wasmtime_wasi::p2::InputStream> {
        self.0.p2_stream()
    }
}

impl StdoutStream for Given<dyn StdoutStream> {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        self.0.async_stream()
    }

    fn p2_stream(&self) -> Box<dyn wasmtime_wasi::p2::OutputStream> {
        self.0.p2_stream()
    }
}
