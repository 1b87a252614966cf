//! One plugin, one file: manifest and signature inside the component.
//!
//! Nothing here runs or compiles a plugin. [`embed()`] puts a manifest into a component, [`sign`] adds the publisher's key
//! and signature, and [`Package::read`] is the only way back: bytes from anywhere → a checked [`Package`], or a
//! [`PackageError`] that says what is wrong and what to do. A package's [`Identity`] is what grants, state and upgrades
//! belong to. The engine validates the code itself; here only the top level of the file is read, so that a component of
//! 18 MiB costs little more than its hashes.
//!
//! What the file holds besides the component, all of it in standard custom sections:
//!
//! | section | content |
//! |---|---|
//! | `signature` (first) | one Ed25519 signature in the layout of the WebAssembly tool conventions, made by `wasmsign2` |
//! | `karman:manifest` | the manifest as TOML |
//! | `karman:publisher` | the 32 bytes of the public key, itself signed; a file that has it and no signature was tampered with |
//!
//! ```
//! use karman_package::{Package, ReadLimits, SecretKey, embed, sign};
//! use karman_types::Manifest;
//!
//! let component = wat::parse_str(r#"(component
//!     (instance $run)
//!     (export "wasi:cli/run@0.2.0" (instance $run))
//! )"#).unwrap();
//! let manifest = Manifest::from_toml(r#"
//!     name = "hello"
//!     version = "0.1.0"
//!     world = "wasi:cli/command"
//! "#).unwrap();
//! let key = SecretKey::generate();
//!
//! let file = sign(&embed(&component, &manifest)?, &key)?;
//!
//! let package = Package::read(&file, &ReadLimits::default())?;
//! assert_eq!(package.publisher, Some(key.public()));
//! assert_eq!(package.manifest, Some(manifest));
//! assert!(package.identity().to_string().ends_with("/hello"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod embed;
mod error;
mod identity;
mod key;
mod key_file;
mod package;
mod section;
mod signature;
mod world;

pub use embed::embed;
pub use error::{Malformed, PackageError};
pub use identity::{Identity, ParseIdentityError};
pub use key::{KeyError, PublicKey, SecretKey};
pub use key_file::KeyFileError;
pub use package::{Package, ReadLimits};
pub use signature::{SignatureError, sign, verify};
pub use world::OFFERED;
