use crate::ReferenceError;
use karman_package::PackageError;
use karman_types::{ErrorKind, format_bytes, format_duration};
use oci_client::errors::{DigestError, OciDistributionError, OciErrorCode};
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// A push or pull that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The text is no reference.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// What is to be pushed is no plugin.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The registry has no such artifact.
    #[error("{reference} is not there; check the name and the tag, or push it first")]
    NotFound {
        /// What was asked for.
        reference: String,
    },
    /// The registry wants other credentials.
    #[error(
        "{reference}: the registry refuses access ({message}); log in with `docker login`, or give user and password"
    )]
    Denied {
        /// What was asked for.
        reference: String,
        /// What the registry says.
        message: String,
    },
    /// No answer, an answer cut short, or one that says to come back later.
    #[error(
        "{reference}: the registry cannot be reached ({message}); check the link and the name, then try again"
    )]
    Unreachable {
        /// What was asked for.
        reference: String,
        /// What failed.
        message: String,
    },
    /// The transfer took longer than it may.
    #[error("{reference}: not done within {}; try again on a faster link or raise the limit", format_duration(*limit))]
    Deadline {
        /// What was asked for.
        reference: String,
        /// How long it may take.
        limit: Duration,
    },
    /// The plugin is larger than the caller allows. Nothing was downloaded when the description says so already.
    #[error("{reference} has {}; {} is the most (raise the limit on plugins)", format_bytes(*bytes), format_bytes(*most))]
    TooLarge {
        /// What was asked for.
        reference: String,
        /// How many bytes it has, as far as is known.
        bytes: u64,
        /// How many it may have.
        most: u64,
    },
    /// There is something else than one Wasm file.
    #[error(
        "{reference} is not a Wasm artifact: {problem}; push it again with `karman push` or `wkg oci push`"
    )]
    Layout {
        /// What was asked for.
        reference: String,
        /// What is wrong.
        problem: String,
    },
    /// The bytes are not those that the description names.
    #[error("{reference}: {message}; the registry or the link is at fault, fetch it again")]
    Corrupt {
        /// What was asked for.
        reference: String,
        /// Which digest or length differs.
        message: String,
    },
    /// The registry refuses the request for another reason.
    #[error("{reference}: the registry refuses the request: {message}")]
    Refused {
        /// What was asked for.
        reference: String,
        /// What it says.
        message: String,
    },
    /// A file with credentials or registries does not read.
    #[error("{}: {problem}; correct or remove the file", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl RegistryError {
    /// Which way it failed: the exit code of the command line and the case of a task's error.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Package(error) => error.kind(),
            Self::Denied { .. } => ErrorKind::Denied,
            Self::Unreachable { .. } => ErrorKind::Unavailable,
            Self::Deadline { .. } => ErrorKind::Deadline,
            Self::TooLarge { .. } => ErrorKind::Limit,
            _ => ErrorKind::Invalid,
        }
    }

    /// Puts what the client says into our words. Texts of the registry are cut and freed of control characters.
    pub(crate) fn of(reference: &str, error: OciDistributionError) -> Self {
        use OciDistributionError as Oci;
        let reference = reference.to_owned();
        match error {
            Oci::UnauthorizedError { .. } => Self::Denied {
                reference,
                message: "401".into(),
            },
            Oci::AuthenticationFailure(message) => Self::Denied {
                reference,
                message: tidy(&message),
            },
            Oci::ImageManifestNotFoundError(_) => Self::NotFound { reference },
            Oci::RegistryError { envelope, .. } => {
                let message = tidy(&envelope.to_string());
                match envelope.errors.first().map(|error| &error.code) {
                    Some(
                        OciErrorCode::ManifestUnknown
                        | OciErrorCode::NameUnknown
                        | OciErrorCode::BlobUnknown
                        | OciErrorCode::NotFound,
                    ) => Self::NotFound { reference },
                    Some(OciErrorCode::Unauthorized | OciErrorCode::Denied) => {
                        Self::Denied { reference, message }
                    }
                    Some(OciErrorCode::Toomanyrequests) => Self::Unreachable { reference, message },
                    _ => Self::Refused { reference, message },
                }
            }
            Oci::ServerError { code, message, .. } => {
                Self::of_status(reference, code, format!("{code} {}", tidy(&message)))
            }
            Oci::RequestError(error) => match error.status() {
                Some(status) => Self::of_status(reference, status.as_u16(), status.to_string()),
                None => Self::Unreachable {
                    reference,
                    message: causes(&error),
                },
            },
            Oci::IoError(error) => Self::of_stream(&reference, &error),
            Oci::DigestError(error) => Self::Corrupt {
                reference,
                message: error.to_string(),
            },
            Oci::JsonError(_)
            | Oci::ManifestEncodingError(_)
            | Oci::ManifestParsingError(_)
            | Oci::VersionedParsingError(_)
            | Oci::UnsupportedMediaTypeError(_)
            | Oci::UnsupportedSchemaVersionError(_) => Self::Layout {
                reference,
                problem: tidy(&error.to_string()),
            },
            other => Self::Refused {
                reference,
                message: tidy(&other.to_string()),
            },
        }
    }

    /// A layer that stopped coming, or came to another digest.
    pub(crate) fn of_stream(reference: &str, error: &std::io::Error) -> Self {
        let reference = reference.to_owned();
        match error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<DigestError>())
        {
            Some(digest) => Self::Corrupt {
                reference,
                message: digest.to_string(),
            },
            None => Self::Unreachable {
                reference,
                message: causes(error),
            },
        }
    }

    fn of_status(reference: String, code: u16, message: String) -> Self {
        match code {
            401 | 403 => Self::Denied { reference, message },
            404 => Self::NotFound { reference },
            408 | 429 | 500.. => Self::Unreachable { reference, message },
            _ => Self::Refused { reference, message },
        }
    }
}

/// The innermost cause says most; the client wraps it several times.
fn causes(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    tidy(&innermost.to_string())
}

fn tidy(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}
