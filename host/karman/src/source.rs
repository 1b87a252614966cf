use crate::app::App;
use crate::error::{self, Worded};
use crate::watch;
use karman_kit::{Built, Project};
use karman_package::ReadLimits;
use karman_registry::{Auth, Options, Reference, Registry, WkgConfig};
use karman_types::{ByteSize, Manifest, TaskError, World, format_bytes, format_duration};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A plugin's file, wherever it came from.
pub(crate) struct Source {
    /// The file.
    pub(crate) bytes: Vec<u8>,
    /// What a component is called that brings no manifest.
    pub(crate) name: String,
    /// Where it lies on this machine.
    pub(crate) path: Option<PathBuf>,
}

impl Source {
    /// Takes a `.wasm` file, a project's folder (which is built if its sources are newer) or an artifact of a registry.
    ///
    /// # Errors
    /// `invalid` when there is no such thing; those of building and pulling.
    pub(crate) fn find(app: &App, text: &str) -> Result<Self, TaskError> {
        if Path::new(text).exists() {
            return Self::local(app, Path::new(text));
        }
        let reference = reference(text).map_err(|error| match looks_like_path(text) {
            true => missing(text),
            false => error.worded().with_hint(format!(
                "there is no file `{text}`, and a reference is written ghcr.io/acme/hello:0.1.0"
            )),
        })?;
        let progress = app.progress(&format!("pulling {reference}"));
        let pulled = app.block_on(async {
            let registry = Registry::new(Options::default());
            registry
                .pull(&reference, &Auth::Docker, most())
                .await
                .map_err(Worded::worded)
        });
        drop(progress);
        let name = reference
            .repository()
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        Ok(Self {
            bytes: pulled?.bytes.into(),
            name: plain(&name),
            path: None,
        })
    }

    /// Takes a file or a project's folder.
    ///
    /// # Errors
    /// `invalid` when there is no such thing; those of building.
    pub(crate) fn local(app: &App, path: &Path) -> Result<Self, TaskError> {
        if path.is_dir() {
            let project = Project::open(path).map_err(Worded::worded)?;
            return Self::read(&up_to_date(app, &project)?);
        }
        match path.exists() {
            true => Self::read(path),
            false => Err(missing(&path.display().to_string())),
        }
    }

    fn read(path: &Path) -> Result<Self, TaskError> {
        let unread = |failed: std::io::Error| error::file(path, &failed);
        let (length, most) = (std::fs::metadata(path).map_err(unread)?.len(), most());
        if length > most.0 {
            let error = TaskError::limit(format!(
                "{}: a plugin may have {most}, and this has {}",
                path.display(),
                ByteSize(length)
            ));
            return Err(error
                .with_field("file")
                .with_hint("strip the component, or bring what is large as a model"));
        }
        let bytes = std::fs::read(path).map_err(unread)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Ok(Self {
            bytes,
            name: plain(&name),
            path: Some(path.to_path_buf()),
        })
    }
}

/// Builds a project and shows what it is at.
///
/// # Errors
/// Those of [`karman_kit::build`].
pub(crate) fn build(app: &App, project: &Project) -> Result<Built, TaskError> {
    let start = SystemTime::now();
    let name = &project.manifest.name;
    let progress = app.progress(&format!("building {name}"));
    let built = karman_kit::build(project, &app.tools(), &mut |step| {
        progress.step(&format!("building {name}: {step}"));
        tracing::info!(step, "building {name}");
    })
    .map_err(Worded::worded)?;
    if watch::saved_since(&project.dir, start) {
        // What was saved while the compiler ran may be missing in the file: dated back, it is built again at the next look.
        let file = File::options().write(true).open(&built.path);
        let dated = file.and_then(|file| file.set_modified(start));
        dated.map_err(|error| error::file(&built.path, &error))?;
    }
    Ok(built)
}

/// When the project's file was built, as far as its sources go.
pub(crate) fn built_at(project: &Project) -> Option<SystemTime> {
    std::fs::metadata(file_of(project)).ok()?.modified().ok()
}

fn file_of(project: &Project) -> PathBuf {
    project
        .dir
        .join("build")
        .join(format!("{}.wasm", project.manifest.name))
}

/// The project's file, built when a source is newer.
fn up_to_date(app: &App, project: &Project) -> Result<PathBuf, TaskError> {
    let path = file_of(project);
    if built_at(project).is_some_and(|made| !watch::changed_since(&project.dir, made)) {
        return Ok(path);
    }
    let built = build(app, project)?;
    let (name, size, took) = (
        &built.manifest.name,
        format_bytes(built.bytes),
        format_duration(built.took),
    );
    app.output.note(format!(
        "built {name} {}   {size}   {took}",
        built.manifest.version
    ));
    Ok(built.path)
}

/// Reads a reference, or the name of a package that the user's `wkg` knows.
///
/// # Errors
/// When it is neither, or the configuration of `wkg` does not read.
pub(crate) fn reference(text: &str) -> Result<Reference, karman_registry::RegistryError> {
    Ok(WkgConfig::load()?.resolve(text)?)
}

/// The most bytes that are pulled: no plugin may have more.
pub(crate) fn most() -> ByteSize {
    ByteSize(ReadLimits::default().bytes as u64)
}

fn looks_like_path(text: &str) -> bool {
    text.starts_with(['.', '/', '~']) || text.ends_with(".wasm") || !text.contains([':', '/'])
}

fn missing(text: &str) -> TaskError {
    TaskError::invalid(format!("there is no file or folder `{text}`"))
        .with_field("plugin")
        .with_hint("name a .wasm file, a project's folder, or a reference such as ghcr.io/acme/hello:0.1.0")
}

/// A file's name as a plugin may be called.
fn plain(name: &str) -> String {
    match Manifest::foreign(
        &name.to_ascii_lowercase().replace(['_', '.', ' '], "-"),
        World::Task,
    )
    .name
    {
        name if name.is_empty() => "plugin".into(),
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_a_foreign_component() {
        for (file, name) in [
            ("hello", "hello"),
            ("Hello_World", "hello-world"),
            ("日本", "plugin"),
        ] {
            assert_eq!(plain(file), name);
        }
    }

    #[test]
    fn paths_and_references_are_told_apart() {
        for text in ["hello.wasm", "./hello", "../a:b", "hello", "/tmp/x"] {
            assert!(looks_like_path(text), "{text}");
        }
        for text in ["ghcr.io/acme/hello", "acme:hello@0.1.0", "localhost/hello"] {
            assert!(!looks_like_path(text), "{text}");
        }
    }
}
