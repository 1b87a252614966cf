use crate::app::App;
use crate::error::Worded;
use crate::source::Source;
use clap::Args;
use karman_package::{Package, PublicKey, ReadLimits};
use karman_types::TaskError;
use serde_json::json;
use std::path::{Path, PathBuf};

/// `karman verify`
#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// A .wasm file, or a project's folder
    file: PathBuf,
    /// Who must have signed it: `ed25519:…`, or a file with the public key
    #[arg(long, value_name = "PUBLIC")]
    key: Option<String>,
}

impl Verify {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let wanted = self.key.as_deref().map(public_key).transpose()?;
        let source = Source::local(app, &self.file)?;
        let package = Package::read(&source.bytes, &ReadLimits::default()).map_err(Worded::worded)?;
        let file = self.file.display();
        let Some(signer) = package.publisher else {
            return Err(TaskError::denied(format!("{file} is not signed"))
                .with_hint("karman sign FILE --key KEYFILE"));
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != signer) {
            return Err(
                TaskError::denied(format!("{file} is signed by {signer}, not by {wanted}"))
                    .with_field("key")
                    .with_hint("get the file or the key from its publisher again"),
            );
        }
        let (name, version) = package
            .manifest
            .as_ref()
            .map_or((source.name.as_str(), None), |manifest| {
                (manifest.name.as_str(), Some(&manifest.version))
            });
        app.output.result(
            || {
                let version = version.map(|version| format!(" {version}")).unwrap_or_default();
                format!("{name}{version}   signed by {signer}   unchanged")
            },
            || json!({ "name": name, "version": version, "signed_by": signer, "id": package.id }),
        )
    }
}

fn public_key(text: &str) -> Result<PublicKey, TaskError> {
    match text.starts_with("ed25519:") {
        true => text.parse().map_err(|error: karman_package::KeyError| {
            TaskError::invalid(error.to_string()).with_field("key").worded()
        }),
        false => PublicKey::read(Path::new(text)).map_err(Worded::worded),
    }
}
