use crate::app::App;
use crate::commands::sign::replace;
use crate::error::Worded;
use crate::source;
use clap::Args;
use karman_package::{Package, ReadLimits};
use karman_registry::{Auth, Options, Registry};
use karman_types::{TaskError, format_bytes};
use serde_json::json;
use std::path::{Path, PathBuf};

/// `karman pull`
#[derive(Args, Debug)]
pub(crate) struct Pull {
    /// Where from: ghcr.io/acme/hello:0.1.0
    reference: String,
    /// Write it here, or - to standard output [default: NAME.wasm]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Plain HTTP, with any registry
    #[arg(long)]
    insecure: bool,
}

impl Pull {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let reference = source::reference(&self.reference).map_err(Worded::worded)?;
        let progress = app.progress(&format!("pulling {reference}"));
        let pulled = app.block_on(async {
            let registry = Registry::new(Options {
                insecure: self.insecure,
                ..Options::default()
            });
            registry
                .pull(&reference, &Auth::Docker, source::most())
                .await
                .map_err(Worded::worded)
        });
        drop(progress);
        let pulled = pulled?;
        // Nothing is written that is no plugin, or whose signature does not hold.
        let package = Package::read(&pulled.bytes, &ReadLimits::default()).map_err(Worded::worded)?;
        if self.output.as_deref() == Some(Path::new("-")) {
            return app.output.bytes(&pulled.bytes);
        }
        let last = reference.repository().rsplit('/').next().unwrap_or("plugin");
        let path = self
            .output
            .clone()
            .unwrap_or_else(|| format!("{last}.wasm").into());
        replace(&path, &pulled.bytes)?;
        let size = package.bytes_len as u64;
        app.output.result(
            || {
                let what = package
                    .manifest
                    .as_ref()
                    .map(|manifest| format!("{} {}   ", manifest.name, manifest.version));
                let signer = package
                    .publisher
                    .map_or_else(|| "not signed".into(), |key| format!("signed by {}", key.short()));
                let (what, size) = (what.unwrap_or_default(), format_bytes(size));
                format!("{what}{signer}   {size}   {}   {}", path.display(), pulled.digest)
            },
            || {
                json!({
                    "reference": reference.to_string(), "digest": pulled.digest, "bytes": size, "path": path,
                    "id": package.id, "signed_by": package.publisher,
                })
            },
        )
    }
}
