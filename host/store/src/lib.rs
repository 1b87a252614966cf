//! What must survive a power cut: buckets, tasks, models, plugins, grants, secrets and the node's own keys, in one folder.
//!
//! [`Store::open`] locks the folder and puts right what a crash left behind. From then on every method that returns
//! `Ok` has its effect on the disk (one transaction, fsynced), and every method that fails has had none. Small records
//! live in `state.redb`; components and models are files under `blobs/`, named by their BLAKE3 digest and checked
//! against it whenever they are read; the node's keys stand in `keys/`.
//!
//! All of it is synchronous: an asynchronous caller moves a clone of the [`Store`] to a blocking thread.
//!
//! - [`Store::bucket`] opens a [`Bucket`]: values by key, each with a version, within a quota.
//! - [`Store::models`] and [`Store::plugins`] hold what the node can run, and [`Store::blobs`] the files behind them, which come
//!   in and go out in [`Slices`] that prove themselves; a [`Partial`] is one that has not wholly come.
//! - [`Store::visiting`] are models of other nodes, of which this one runs parts; [`Store::profiles`] is what was measured.
//! - [`Store::bundles`] waits for contacts.
//! - [`Store::grants`] is what the operator allowed; [`Store::secrets`] is encrypted at rest.
//! - [`Store::mesh`] is what the node must not forget of the mesh that it belongs to.
//! - [`Store::tasks`] holds accepted tasks until their results are fetched, and applies their effects once.
//! - [`Store::decisions`] is the log of decisions, a ring.
//! - [`Store::keepers`] is the log of the keepers of kept tasks, where this node is one of them.
//! - [`Store::node_key`] is made at the first start.
//!
//! ```
//! use karman_store::Store;
//!
//! let dir = tempfile::tempdir()?;
//! let store = Store::open(dir.path())?;
//! let road = store.bucket("road")?;
//! let version = road.set("last", b"pothole")?;
//! let last = road.get("last")?.unwrap();
//! assert_eq!((&last.value[..], last.version), (&b"pothole"[..], version));
//!
//! store.secrets().set("token", b"s3cret")?;
//! store.grants().allow("classify", &["nn:digits-*".parse()?])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod blobs;
mod bucket;
mod bundles;
mod compact;
mod database;
mod decisions;
mod disk;
mod edit;
mod effects;
mod error;
mod exits;
mod files;
mod grants;
mod keepers;
mod keys;
mod limits;
mod mesh;
mod models;
mod named;
mod partial;
mod plugins;
mod policies;
mod progress;
mod room;
mod secrets;
mod slices;
mod store;
mod tables;
mod tasks;
mod visiting;

pub use blobs::Blobs;
pub use bucket::{Bucket, KeyPage, Usage, Versioned, incremented};
pub use bundles::{Bundle, BundleOrder, BundleState, Bundles};
pub use decisions::Decisions;
pub use error::{DISK, OpenError, StoreError};
pub use exits::ModelExit;
pub use grants::Grants;
pub use keepers::Keepers;
pub use keys::{Key, NodeKey, NodeKeys};
pub use limits::StoreLimits;
pub use mesh::{BUILT, MOST_AHEAD, Mesh, Redeemed};
pub use models::{Model, ModelInfo, Models, check_model_name};
pub use named::Named;
pub use partial::{Partial, PutError};
pub use plugins::{Downgrade, Installed, NewPlugin, Plugin, Plugins, Previous};
pub use policies::Policies;
pub use secrets::{SecretValue, Secrets};
pub use slices::{GROUP, Slices};
pub use store::Store;
pub use tasks::Tasks;
pub use visiting::{Visiting, Visitor};
