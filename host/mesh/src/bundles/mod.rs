//! What waits for a link: bundles of the Bundle Protocol (RFC 9171), each with an envelope that was signed by its sender and
//! sealed to its destination (RFC 9180), so that the nodes in between can neither read nor forge it.
//!
//! Pure: how bundles are handed on is the node's affair. They move like all blobs, in slices that prove themselves.

mod bpv7;
mod envelope;

pub use bpv7::{BundleError, BundleHead, open_bundle, write_bundle};
pub use envelope::{Envelope, Parcel};
