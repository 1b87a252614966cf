use crate::KitError;
use karman_types::{Language, Manifest};
use std::path::{Path, PathBuf};
use wit_parser::{Resolve, WorldId};

/// A plugin's source tree: a folder with `karman.toml`, sources and `wit/`.
#[derive(Clone, Debug)]
pub struct Project {
    /// The folder, absolute.
    pub dir: PathBuf,
    /// What `karman.toml` says, with `build`.
    pub manifest: Manifest,
}

impl Project {
    /// Reads the project in this folder.
    ///
    /// # Errors
    /// When the folder has no `karman.toml`, or one that does not read or names no language to build.
    pub fn open(dir: &Path) -> Result<Self, KitError> {
        let dir = dir.canonicalize().map_err(KitError::io(dir))?;
        let file = dir.join("karman.toml");
        if !file.exists() {
            return Err(KitError::WrongLayout {
                path: dir,
                problem: "has no karman.toml; `karman new NAME` writes a project with one".into(),
            });
        }
        let text = std::fs::read_to_string(&file).map_err(KitError::io(&file))?;
        let manifest = Manifest::from_toml(&text)?;
        Ok(Self { dir, manifest })
    }

    /// What it is written in.
    ///
    /// # Errors
    /// When `karman.toml` does not say.
    pub fn language(&self) -> Result<Language, KitError> {
        match &self.manifest.build {
            Some(build) => Ok(build.lang),
            None => Err(KitError::WrongLayout {
                path: self.dir.join("karman.toml"),
                problem: "does not say how to build it; add `[build]` with `lang = \"rust\"`, \"c\", \"python\" or \"js\""
                    .into(),
            }),
        }
    }

    /// The folder for everything that building makes; created when it is not there.
    pub(crate) fn build_dir(&self) -> Result<PathBuf, KitError> {
        let dir = self.dir.join("build");
        std::fs::create_dir_all(&dir).map_err(KitError::io(&dir))?;
        Ok(dir)
    }

    /// The project's interfaces.
    pub(crate) fn wit_dir(&self) -> PathBuf {
        self.dir.join("wit")
    }

    /// The one world of the package in `wit/`, with all that it refers to.
    pub(crate) fn world(&self) -> Result<(Resolve, WorldId), KitError> {
        let wit = self.wit_dir();
        let wrong = |problem: String| KitError::WrongLayout {
            path: wit.clone(),
            problem,
        };
        let mut resolve = Resolve::default();
        let (package, _) = resolve
            .push_dir(&wit)
            .map_err(|error| wrong(format!("{error:#}")))?;
        let world = resolve
            .select_world(&[package], None)
            .map_err(|error| wrong(format!("{error:#}; the package in wit/ has exactly one world")))?;
        Ok((resolve, world))
    }
}
