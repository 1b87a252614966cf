use crate::{KitError, Project, Tools, c, js, python, rust};
use karman_types::{Language, Manifest};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A plugin that is ready to run.
#[derive(Clone, Debug)]
pub struct Built {
    /// The one file: `DIR/build/NAME.wasm`.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// What it says of itself: as in `karman.toml`, without `build`.
    pub manifest: Manifest,
    /// How long it took.
    pub took: Duration,
}

/// Compiles a project, puts its manifest inside the component and writes `DIR/build/NAME.wasm`, whole or not at all.
///
/// `progress` hears each step as it begins, in a few words. Seconds at the first time (Python: tens of seconds).
///
/// # Errors
/// When a toolchain is missing, the sources do not compile, files are not where the language has them, or the manifest
/// does not go into the component.
pub fn build(project: &Project, tools: &Tools, progress: &mut dyn FnMut(&str)) -> Result<Built, KitError> {
    let start = Instant::now();
    let component = match project.language()? {
        Language::Rust => rust::compile(project, tools, progress)?,
        Language::C => c::compile(project, tools, progress)?,
        Language::Python => python::compile(project, tools, progress)?,
        Language::Js => js::compile(project, tools, progress)?,
    };
    let manifest = Manifest {
        build: None,
        ..project.manifest.clone()
    };
    let file = karman_package::embed(&component, &manifest)?;
    let path = project.build_dir()?.join(format!("{}.wasm", manifest.name));
    write(&path, &file).map_err(KitError::io(&path))?;
    Ok(Built {
        path,
        bytes: file.len() as u64,
        manifest,
        took: start.elapsed(),
    })
}

/// A reader sees the old file or the new one, never a part.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".building-")
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.as_file()
            .set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    file.persist(path)?;
    Ok(())
}
