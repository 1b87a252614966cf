use crate::SignatureError;
use karman_types::{ErrorKind, ManifestError, World};
use std::fmt;

/// A file that is not built as WebAssembly is.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("malformed at byte {offset}: {message}; the file is damaged, build or fetch it again")]
pub struct Malformed {
    /// Where, counted from the start of the file.
    pub offset: u64,
    /// What is wrong there.
    pub message: String,
}

impl Malformed {
    pub(crate) fn at(offset: usize, message: &str) -> Self {
        Self {
            offset: offset as u64,
            message: message.into(),
        }
    }
}

impl From<wasmparser::Error> for Malformed {
    fn from(error: wasmparser::Error) -> Self {
        Self {
            offset: error.offset() as u64,
            message: error.message().into(),
        }
    }
}

/// A file that is no plugin, or none that a node runs.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// More bytes than the reader allows.
    #[error(
        "the file has {bytes} bytes; {most} is the most (raise the limit on plugins or strip the component)"
    )]
    TooLarge {
        /// What it has.
        bytes: usize,
        /// What it may have.
        most: usize,
    },
    /// Anything but WebAssembly.
    #[error(
        "the file is not WebAssembly (it starts with {start:02x?}); make a plugin of your source with `karman build`"
    )]
    NotWasm {
        /// Its first bytes, at most four.
        start: Vec<u8>,
    },
    /// A core module.
    #[error("the file is a core module, not a component; use `karman build`, or `wasm-tools component new`")]
    CoreModule,
    /// A component whose structure does not read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// More imports or exports than the reader allows.
    #[error("the component has more than {most} imports and exports")]
    TooManyNames {
        /// How many it may have.
        most: usize,
    },
    /// A component that exports nothing a node calls.
    #[error(
        "the component exports {}, none of which a node runs; export karman:task/handler, karman:task/stream-handler, \
         wasi:cli/run or wasi:http/incoming-handler",
        Names(exports)
    )]
    NoWorld {
        /// What it exports.
        exports: Vec<String>,
    },
    /// A manifest that names another world than the component exports.
    #[error(
        "the manifest says world {manifest}, the component exports {}; correct `world` in karman.toml",
        Names(found)
    )]
    WorldDiffers {
        /// What the manifest says.
        manifest: World,
        /// What the component has.
        found: Vec<World>,
    },
    /// Imports that no node can give.
    #[error(
        "no node offers {}; rebuild the plugin against the interfaces that `karman doctor` lists",
        Names(imports)
    )]
    NotOffered {
        /// Those imports.
        imports: Vec<String>,
    },
    /// A manifest that does not read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A manifest that is not text.
    #[error(
        "the manifest inside the component is not UTF-8 at its byte {offset}; embed it again with `karman build`"
    )]
    ManifestEncoding {
        /// Where, counted from the start of the manifest.
        offset: usize,
    },
    /// More than one manifest.
    #[error("the component has several manifests; embed one with `karman build`")]
    SeveralManifests,
    /// A signature that does not hold.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

impl PackageError {
    /// Which way it failed: the exit code of the command line and the case of a task's error.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge { .. } | Self::TooManyNames { .. } => ErrorKind::Limit,
            Self::NotOffered { .. } => ErrorKind::Unavailable,
            Self::Signature(error) => error.kind(),
            _ => ErrorKind::Invalid,
        }
    }
}

/// Some names as people read them: the first eight, without control characters.
struct Names<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Names<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 8;
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (index, name) in self.0.iter().take(MOST).enumerate() {
            let name = name.to_string();
            let name: String = name.chars().take(100).collect();
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, name.escape_debug())?;
        }
        match self.0.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
