//! The plugin author's kit: what `karman new`, `karman build` and the tool part of `karman doctor` do.
//!
//! [`create()`] writes a project that builds and runs as it is. [`Project::open`] reads one. [`build()`] turns it into one
//! file: the language's own file here (`rust`, `c`, `python`, `js`) compiles the sources to a component with the user's
//! ordinary toolchain, which [`Tools`] finds or says how to get, and the manifest goes into the component.
//!
//! ```no_run
//! use karman_kit::{Project, Tools, build, create};
//! use karman_types::{Language, World};
//! use std::path::Path;
//!
//! let dir = Path::new("hello");
//! create(dir, "hello", Language::Rust, World::Task)?;
//! let built = build(&Project::open(dir)?, &Tools::find(None), &mut |step| eprintln!("{step}"))?;
//! println!("{} {} bytes", built.path.display(), built.bytes);
//! # Ok::<(), karman_kit::KitError>(())
//! ```
#![forbid(unsafe_code)]

mod build;
mod c;
mod create;
mod error;
mod js;
mod project;
mod python;
mod rust;
mod tools;

pub use build::{Built, build};
pub use create::create;
pub use error::KitError;
pub use project::Project;
pub use tools::{Toolchain, Tools};
