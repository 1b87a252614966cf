//! The types that every part of Karman shares.
//!
//! They are data with their checks and text forms: no I/O, no clock, no randomness. A [`TaskRequest`] travels with a [`CallContext`] to a
//! plugin that is described by a [`Manifest`], may do what its [`Grant`]s say within its [`Limits`], and answers with a
//! [`TaskResponse`] or a [`TaskError`], whose [`ErrorKind`] is also the exit code of the command line.
//!
//! What a task is, apart from who does it, is its [`TaskContract`]: the capability, its configuration, and a [`DataContract`] for
//! either side, against which every [`Record`] is checked before and after a call. An [`Implementation`] fulfils it with a measured
//! [`Profile`]; an [`Slo`] says what the user wants, and from both is decided which implementation serves.
//!
//! ```
//! use karman_types::{Grant, Manifest};
//!
//! let manifest = Manifest::from_toml(r#"
//!     name = "classify"
//!     version = "0.1.0"
//!     world = "karman:task/task"
//!     asks = ["nn:digits-*"]
//!
//!     [limits]
//!     memory = "64 MiB"
//!     time = "200 ms"
//! "#).unwrap();
//! assert!(manifest.asks[0].covers(&"nn:digits-m".parse::<Grant>().unwrap()));
//! ```
#![forbid(unsafe_code)]

mod backoff;
mod contract;
mod data;
mod error;
mod grant;
mod id;
mod implementation;
mod instant;
mod limits;
mod manifest;
mod offer;
mod record;
mod selector;
mod serde_as_text;
pub mod serde_list;
mod slo;
mod steering;
mod task;
mod units;
mod unknown_key;
mod workflow;
mod xml;

pub use backoff::Backoff;
pub use contract::{ContractError, MAX_CONFIGURATION, Setting, TaskContract};
pub use data::{DataContract, DataField, DataType, NumberType};
pub use error::{ErrorKind, TaskError};
pub use grant::{Access, Grant, GrantError, GrantSet, is_of_a_name, pattern_matches};
pub use id::{Digest, NodeId, ParseIdError, TaskId};
pub use implementation::{Binding, Implementation, Profile, ProfileError};
pub use instant::Instant;
pub use limits::Limits;
pub use manifest::{Build, Language, Manifest, ManifestError, World};
pub use offer::{Offer, OfferedTask, capability_levels};
pub use record::{Problem, Record, RecordError, Side, Value};
pub use selector::NodeSelector;
pub use slo::{Slo, SloError};
pub use steering::{escape_steering, is_steering};
pub use task::{CallContext, MAX_CALL_DEPTH, Metadata, TaskRequest, TaskResponse, Tier};
pub use units::{
    ByteSize, ParseUnitError, format_bytes, format_duration, parse_duration, serde_duration,
    serde_optional_duration,
};
pub use unknown_key::{KeyError, from_toml, nearest};
pub use workflow::{
    Comparison, Edge, FieldPath, FlowTask, Predicate, PredicateError, Scalar, Workflow, WorkflowError,
};
pub use xml::escape_xml;
