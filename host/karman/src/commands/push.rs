use crate::app::App;
use crate::error::Worded;
use crate::source::{self, Source};
use clap::Args;
use karman_registry::{Auth, Options, Registry};
use karman_types::{TaskError, format_bytes};
use serde_json::json;
use std::path::PathBuf;

/// `karman push`
#[derive(Args, Debug)]
pub(crate) struct Push {
    /// A .wasm file, or a project's folder
    file: PathBuf,
    /// Where to: ghcr.io/acme/hello:0.1.0; credentials come from `docker login`
    reference: String,
    /// Plain HTTP, with any registry
    #[arg(long)]
    insecure: bool,
}

impl Push {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let reference = source::reference(&self.reference).map_err(Worded::worded)?;
        let source = Source::local(app, &self.file)?;
        let size = source.bytes.len() as u64;
        let progress = app.progress(&format!("pushing {} to {reference}", format_bytes(size)));
        let pushed = app.block_on(async {
            let registry = Registry::new(Options {
                insecure: self.insecure,
                ..Options::default()
            });
            registry
                .push(&reference, source.bytes.into(), &Auth::Docker)
                .await
                .map_err(Worded::worded)
        });
        drop(progress);
        let digest = pushed?;
        app.output.result(
            || format!("{reference}   {digest}   {}", format_bytes(size)),
            || json!({ "reference": reference.to_string(), "digest": digest, "bytes": size }),
        )
    }
}
