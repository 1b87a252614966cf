use crate::run::root;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Copies a test guest to `target/stage/NAME`, as deep below the repository as it was, so that its paths still hold. The
/// copy may differ: a feature is on by default, or a manifest is there for the build to be content. All guests in Rust
/// share one target folder, and so compile their dependencies once.
pub(crate) fn stage(name: &str, sources: &Path, feature: Option<&str>, foreign: bool) -> Result<PathBuf> {
    let stages = root().join("target/stage");
    let stage = stages.join(name);
    fs::create_dir_all(stages.join(".cargo"))?;
    let shared = format!("[build]\ntarget-dir = {:?}\n", root().join("target/plugins"));
    fs::write(stages.join(".cargo/config.toml"), shared)?;
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    for (path, file) in files(sources)? {
        let copy = stage.join(path);
        fs::create_dir_all(copy.parent().unwrap_or(&stage))?;
        fs::copy(file, copy)?;
    }
    if let Some(feature) = feature {
        let path = stage.join("Cargo.toml");
        let crate_toml = fs::read_to_string(&path)?;
        let default = format!("[features]\ndefault = [{feature:?}]\n");
        fs::write(&path, crate_toml.replacen("[features]\n", &default, 1))?;
    }
    if foreign {
        let lang = if sources.join("Cargo.toml").exists() {
            "rust"
        } else {
            "js"
        };
        let world = if name.contains("cli") {
            "wasi:cli/command"
        } else {
            "wasi:http/proxy"
        };
        let manifest =
            format!("name = {name:?}\nversion = \"0.0.0\"\nworld = {world:?}\n[build]\nlang = {lang:?}\n");
        fs::write(stage.join("karman.toml"), manifest)?;
    }
    Ok(stage)
}

/// The source files below a folder, or the one file, sorted, each relative and absolute: without what builds leave there.
pub(crate) fn files(folder: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
    if folder.is_file() {
        return Ok(vec![(
            folder.file_name().unwrap_or_default().into(),
            folder.into(),
        )]);
    }
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in next.read_dir().with_context(|| next.display().to_string())? {
            let path = entry?.path();
            let built = ["target", "build", "node_modules", "__pycache__"];
            if path.is_file() {
                found.push((path.strip_prefix(folder)?.to_path_buf(), path));
            } else if !built.iter().any(|name| path.ends_with(name)) {
                folders.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
