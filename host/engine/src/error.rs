use karman_package::{PackageError, PublicKey};
use karman_types::{ErrorKind, TaskError};

/// A component that this engine does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is not a plugin: not Wasm, a core module, another world, a bad manifest, a broken signature.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The node takes signed plugins only.
    #[error("`{name}` is not signed, and this node takes signed plugins only")]
    Unsigned {
        /// The plugin's name.
        name: String,
    },
    /// Signed, but not by a publisher that the operator named.
    #[error("`{name}` is signed by {key}, which is not among the keys that this node trusts")]
    Untrusted {
        /// The plugin's name.
        name: String,
        /// The publisher that signed it.
        key: PublicKey,
    },
    /// A manifest that asks for more than the node's ceiling.
    #[error("`{name}` asks for {asked} of `{limit}`; this node grants at most {most}")]
    OverLimit {
        /// The plugin's name.
        name: String,
        /// Which limit.
        limit: &'static str,
        /// What it asks for.
        asked: String,
        /// What there is.
        most: String,
    },
    /// The component does not compile.
    #[error("the component is not valid: {0}")]
    Compile(String),
    /// The component would take too much time or memory to compile.
    #[error("{place} has {has} {what}; {most} is the most that is compiled")]
    TooComplex {
        /// The function, or the whole component.
        place: String,
        /// What it has too much of.
        what: &'static str,
        /// How much it has.
        has: u64,
        /// How much it may have.
        most: u64,
    },
    /// The component needs an import that the host does not have in that form.
    #[error("the component cannot be linked: {0}")]
    Link(String),
    /// The plugin's own `check` said no.
    #[error("`{name}` {version} does not pass its own check: {why}")]
    Check {
        /// The plugin's name.
        name: String,
        /// The version that failed.
        version: String,
        /// What it said.
        why: String,
    },
}

impl LoadError {
    /// The kind under which the command line and the HTTP listener report it.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Package(error) => error.kind(),
            Self::Unsigned { .. } | Self::Untrusted { .. } => ErrorKind::Denied,
            Self::OverLimit { .. } | Self::TooComplex { .. } => ErrorKind::Limit,
            Self::Compile(_) | Self::Link(_) => ErrorKind::Invalid,
            Self::Check { .. } => ErrorKind::Failed,
        }
    }

    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Package(PackageError::Manifest(_)) => Some("correct karman.toml and build it again"),
            Self::Package(_) => None,
            Self::Unsigned { .. } => {
                Some("sign it with `karman sign`, or start the node without `signed-only`")
            }
            Self::Untrusted { .. } => Some("add the key to `trusted-keys` in node.toml if you trust it"),
            Self::OverLimit { limit: "fuel", .. } => Some("lower the limit in the manifest"),
            Self::OverLimit { .. } => Some("lower the limit in the manifest, or raise the node's ceiling"),
            Self::Compile(_) => Some("build it again; `karman inspect` shows what the file holds"),
            Self::TooComplex { .. } => Some("build it with optimisation, or make smaller functions of it"),
            Self::Link(_) => {
                Some("`karman inspect` shows what it imports; `karman doctor` what this host offers")
            }
            Self::Check { .. } => Some("the version before stays in service"),
        }
    }
}

impl From<LoadError> for TaskError {
    fn from(error: LoadError) -> Self {
        let field = match &error {
            LoadError::OverLimit { limit, .. } => Some(format!("limits.{limit}")),
            LoadError::Package(PackageError::Manifest(error)) => error.field().map(str::to_owned),
            _ => None,
        };
        Self {
            hint: error.hint().map(str::to_owned),
            field,
            ..Self::new(error.kind(), error.to_string())
        }
    }
}
