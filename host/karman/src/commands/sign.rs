use crate::app::App;
use crate::error::{self, Worded};
use crate::source::Source;
use clap::Args;
use karman_package::SecretKey;
use karman_types::TaskError;
use serde_json::json;
use std::path::{Path, PathBuf};

/// `karman sign`
#[derive(Args, Debug)]
pub(crate) struct Sign {
    /// A .wasm file, or a project's folder; signed in place
    #[arg(required_unless_present = "new_key")]
    file: Option<PathBuf>,
    /// The secret key to sign with
    #[arg(long, value_name = "KEYFILE", requires = "file")]
    key: Option<PathBuf>,
    /// Write the signed file here instead
    #[arg(short, long, value_name = "FILE", conflicts_with = "new_key")]
    output: Option<PathBuf>,
    /// Make a new key: the secret in KEYFILE, the public half in KEYFILE.pub
    #[arg(long, value_name = "KEYFILE", conflicts_with_all = ["file", "key"])]
    new_key: Option<PathBuf>,
}

impl Sign {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        if let Some(path) = &self.new_key {
            return new_key(app, path);
        }
        let (Some(file), Some(key)) = (&self.file, &self.key) else {
            return Err(
                TaskError::invalid("`karman sign` needs a secret key: --key KEYFILE")
                    .with_field("key")
                    .with_hint("`karman sign --new-key FILE` makes a key"),
            );
        };
        let key = SecretKey::read(key).map_err(Worded::worded)?;
        let source = Source::local(app, file)?;
        // Only what a node runs is worth a signature.
        let read =
            |bytes: &[u8]| karman_package::Package::read(bytes, &Default::default()).map_err(Worded::worded);
        let unsigned = source.bytes;
        read(&unsigned)?;
        let signed = karman_package::sign(&unsigned, &key).map_err(Worded::worded)?;
        let package = read(&signed)?;
        let to = self.output.as_deref().or(source.path.as_deref()).unwrap_or(file);
        replace(to, &signed)?;
        let (public, id) = (key.public(), package.id);
        let identity = package.identity();
        app.output.result(
            || format!("{}   signed by {}   id {}", to.display(), public, id.short()),
            || json!({ "path": to, "signed_by": public, "id": id, "identity": identity }),
        )
    }
}

fn new_key(app: &App, path: &Path) -> Result<(), TaskError> {
    let key = SecretKey::generate();
    let mut public_path = path.as_os_str().to_owned();
    public_path.push(".pub");
    let public_path = PathBuf::from(public_path);
    key.write(path).map_err(Worded::worded)?;
    key.public().write(&public_path).map_err(|error| {
        // A secret beside the public half of another one would sign what nobody can verify.
        let _ = std::fs::remove_file(path);
        error.worded()
    })?;
    let public = key.public();
    app.output.result(
        || public.to_string(),
        || json!({ "public": public, "secret_file": path, "public_file": public_path }),
    )?;
    app.output.note(format!(
        "{} is secret: keep it, and give {} away",
        path.display(),
        public_path.display()
    ));
    Ok(())
}

/// Writes a file whole or not at all, with the mode of the one that it replaces.
///
/// # Errors
/// When the folder cannot be written.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = std::fs::write(&temporary, bytes).and_then(|()| {
        // On the disk before it takes the name, or a power cut leaves the name with nothing behind it.
        std::fs::File::open(&temporary)?.sync_all()?;
        if let Ok(data) = std::fs::metadata(path) {
            std::fs::set_permissions(&temporary, data.permissions())?;
        }
        std::fs::rename(&temporary, path)
    });
    written.map_err(|failed| {
        let _ = std::fs::remove_file(&temporary);
        error::file(path, &failed)
    })
}
