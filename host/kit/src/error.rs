use karman_package::PackageError;
use karman_types::{Language, ManifestError, World};
use std::path::{Path, PathBuf};

/// Why a plugin could not be created or built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitError {
    /// A toolchain is not here.
    #[error("{tool}: {why}; {hint}")]
    MissingTool {
        /// What is missing, as its own project calls it.
        tool: &'static str,
        /// Where it was looked for, or what is wrong with the one found.
        why: String,
        /// How to get it.
        hint: String,
    },
    /// The toolchain refused the sources.
    #[error("the {} sources do not build:\n{output}", name(*.lang))]
    Compile {
        /// Of the project.
        lang: Language,
        /// What the toolchain said.
        output: String,
    },
    /// The files are not where this language has them.
    #[error("{}: {problem}", path.display())]
    WrongLayout {
        /// The file or folder in question.
        path: PathBuf,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// There is nothing to begin with.
    #[error("there is no template of {world} in {}; a policy that selects models begins in rust or python, one that routes or places in rust, a strategy in rust, a task in rust, c, python or js", name(*.lang))]
    NoTemplate {
        /// The world.
        world: World,
        /// The language.
        lang: Language,
    },
    /// The name does not suit a new plugin.
    #[error(
        "`{name}` cannot name a plugin: use 1 to 64 lower-case letters, digits and hyphens, a letter first"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `karman.toml` is wrong.
    #[error("karman.toml: {0}")]
    Manifest(#[from] ManifestError),
    /// The manifest does not go into the component.
    #[error(transparent)]
    Package(#[from] PackageError),
}

impl KitError {
    /// Turns an error of the file system into one that names the path.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            path: path.into(),
            source,
        }
    }
}

/// A language as people write it.
pub(crate) const fn name(lang: Language) -> &'static str {
    match lang {
        Language::Rust => "Rust",
        Language::C => "C",
        Language::Python => "Python",
        Language::Js => "JavaScript",
    }
}
