//! Push and pull plugins as OCI artifacts.
//!
//! A plugin is stored in any container registry in the CNCF layout for Wasm: one manifest, one configuration that lists
//! imports and exports, one layer that is the plugin's file byte by byte. What is pushed here is what `wkg oci pull`
//! takes, and the other way round. A text becomes a [`Reference`] (or a package name that [`WkgConfig`] resolves to one)
//! → [`Registry::push`] reads the plugin and describes it, or [`Registry::pull`] judges the description against the limit
//! and then streams the layer into memory → its digest fits, or there is a [`RegistryError`] and no bytes. Whether the
//! bytes are a plugin is for [`karman_package::Package::read`] to say.
//!
//! TLS needs a process-wide provider of cryptography; [`Registry::new`] installs `ring` where there is none yet.
//!
//! ```
//! use karman_registry::{Auth, Options, Reference, Registry, RegistryError};
//! use karman_types::ByteSize;
//!
//! # async fn example() -> Result<(), RegistryError> {
//! let registry = Registry::new(Options::default());
//! let reference: Reference = "ghcr.io/acme/classify:0.1.0".parse()?;
//! let pulled = registry.pull(&reference, &Auth::Docker, ByteSize::mib(64)).await?;
//! println!("{} bytes, {}", pulled.bytes.len(), pulled.digest);
//! # Ok(())
//! # }
//! let error = "ghcr.io/Acme/classify".parse::<Reference>().unwrap_err();
//! assert_eq!(error.field, "repository");
//! ```
#![forbid(unsafe_code)]

mod auth;
mod client;
mod error;
mod layout;
mod reference;
mod wkg;

pub use auth::Auth;
pub use client::{Options, Pulled, Registry};
pub use error::RegistryError;
pub use reference::{Reference, ReferenceError};
pub use wkg::WkgConfig;
