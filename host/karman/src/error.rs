//! The errors of the crates below as the one error that a person sees.

use karman_infer::InferError;
use karman_kit::KitError;
use karman_node::ConfigError;
use karman_package::{KeyFileError, PackageError, SignatureError};
use karman_registry::{ReferenceError, RegistryError};
use karman_store::StoreError;
use karman_types::{ErrorKind, ManifestError, TaskError};
use std::path::Path;

/// An error of another crate, on its way to the user.
pub(crate) trait Worded {
    /// What failed, and what to do next.
    fn worded(self) -> TaskError;
}

/// The crates below write `what failed; what to do` in one line; here the two are parted.
fn split(mut error: TaskError) -> TaskError {
    if error.hint.is_none()
        && !error.message.contains('\n')
        && let Some((what, hint)) = error.message.rsplit_once("; ")
    {
        error.hint = Some(hint.to_owned());
        error.message.truncate(what.len());
    }
    error
}

impl Worded for TaskError {
    fn worded(self) -> TaskError {
        split(self)
    }
}

impl Worded for KitError {
    fn worded(self) -> TaskError {
        match self {
            Self::MissingTool { tool, why, hint } => TaskError::unavailable(format!("{tool}: {why}"))
                .with_hint(hint)
                .with_field("tool"),
            Self::Compile { ref output, .. } => {
                let hint = match output.contains("wit_world") {
                    true => "what is imported of `wit_world` has to stand in the world of wit/plugin.wit",
                    false => "correct the sources and build again",
                };
                TaskError::new(ErrorKind::Failed, self.to_string()).with_hint(hint)
            }
            Self::Manifest(ref error) => {
                of_manifest(TaskError::invalid(self.to_string()), error, "correct karman.toml")
            }
            Self::Package(error) => error.worded(),
            Self::Io { path, source } => file(&path, &source),
            Self::WrongLayout { .. } => {
                let error = split(TaskError::invalid(self.to_string()));
                let hint = error.hint.clone();
                error.with_hint(hint.unwrap_or_else(|| "correct what stands there and build again".into()))
            }
            other => split(TaskError::invalid(other.to_string())),
        }
    }
}

impl Worded for PackageError {
    fn worded(self) -> TaskError {
        let worded = TaskError::new(self.kind(), self.to_string());
        match &self {
            Self::Manifest(error) => of_manifest(worded, error, "correct karman.toml and build it again"),
            _ => split(worded),
        }
    }
}

/// What is wrong with a manifest, and where its keys are described.
fn of_manifest(worded: TaskError, error: &ManifestError, correct: &str) -> TaskError {
    let error = TaskError {
        field: error.field().map(str::to_owned),
        ..split(worded)
    };
    match error.hint {
        Some(_) => error,
        None => error.with_hint(format!("{correct}; docs/configuration.md describes its keys")),
    }
}

impl Worded for SignatureError {
    fn worded(self) -> TaskError {
        split(TaskError::new(self.kind(), self.to_string()))
    }
}

impl Worded for KeyFileError {
    fn worded(self) -> TaskError {
        let error = split(TaskError::invalid(self.to_string()).with_field("key"));
        match error.hint {
            Some(_) => error,
            None => error.with_hint("`karman sign --new-key FILE` makes a key"),
        }
    }
}

impl Worded for ReferenceError {
    fn worded(self) -> TaskError {
        let field = self.field;
        split(TaskError::invalid(self.to_string())).with_field(field)
    }
}

impl Worded for RegistryError {
    fn worded(self) -> TaskError {
        split(TaskError::new(self.kind(), self.to_string()))
    }
}

impl Worded for StoreError {
    fn worded(self) -> TaskError {
        split(TaskError::new(self.kind(), self.to_string()))
    }
}

impl Worded for InferError {
    fn worded(self) -> TaskError {
        self.into()
    }
}

impl Worded for ConfigError {
    fn worded(self) -> TaskError {
        let field = match &self {
            Self::Key { source, .. } => source.key().map(str::to_owned),
            Self::Variable { name, .. } => Some(name.clone()),
            _ => None,
        };
        let next = match &self {
            Self::Variable { .. } => "correct the variable, or unset it",
            _ => "correct the file, or name another with --config",
        };
        let error = split(TaskError::invalid(self.to_string()));
        let hint = error.hint.clone().unwrap_or_else(|| next.into());
        TaskError {
            field,
            hint: Some(hint),
            ..error
        }
    }
}

/// A file that cannot be read or written.
pub(crate) fn file(path: &Path, error: &std::io::Error) -> TaskError {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::IsADirectory => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    };
    let hint = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => "free space on that disk",
        std::io::ErrorKind::ReadOnlyFilesystem => "mount that disk for writing",
        _ => "look at the path and its permissions",
    };
    TaskError::new(kind, format!("{}: {error}", path.display())).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_becomes_the_hint() {
        let error = PackageError::CoreModule.worded();
        assert_eq!(error.message, "the file is a core module, not a component");
        assert!(error.hint.unwrap().starts_with("use `karman build`"));
    }

    #[test]
    fn a_wrong_manifest_is_not_a_wrong_command() {
        let error = karman_types::Manifest::from_toml("name = \"hello\"").unwrap_err();
        let error = KitError::Manifest(error).worded();
        assert_eq!(error.field.as_deref(), Some("version"));
        assert!(error.hint.unwrap().starts_with("correct karman.toml"));
    }

    #[test]
    fn a_compilers_words_stay_whole() {
        let lang = karman_types::Language::C;
        let error = KitError::Compile {
            lang,
            output: "a; b\nc; d".into(),
        }
        .worded();
        assert!(error.message.ends_with("a; b\nc; d"), "{}", error.message);
        assert_eq!(error.kind.exit_code(), 1);
    }
}
