//! Blobs: files by their BLAKE3 digest, fetched in slices that prove themselves from several nodes at once.
//!
//! A slice is asked for like anything else, with a call, so it takes the way of calls and stands under their bounds. Who
//! holds the blob judges who may read it: code moves only under the right to deploy, which a [`Ticket`] carries.

mod fetch;
mod plan;
mod ticket;

pub use fetch::{Fetched, Wanted};
pub use plan::{MOST_GROUPS, PIECE};
pub use ticket::Ticket;
