//! The mesh: nodes find each other, prove their membership and call each other.
//!
//! A node's [`Standing`] says which mesh it belongs to: by the root key that it holds, by an invitation, or by the membership
//! that it remembers. [`Mesh::start`] brings it up: every connection passes the gate first, where both sides show their
//! memberships; behind it members find each other through a DHT of their own and on their local network, tell each other
//! what they offer, and call each other's tasks. What a node does for others is its [`Serve`].
//!
//! - [`membership`] is who belongs: keys, invitations, memberships, revocations. Pure.
//! - The gate is the first exchange on a connection; nothing answers a stranger.
//! - The swarm is libp2p: QUIC first, TCP where UDP does not pass, Kademlia under our own name, mDNS.
//! - What waits for a link is a bundle (RFC 9171) with an envelope that is signed and sealed (RFC 9180).
//! - Blobs are fetched in slices that prove themselves, each with a call, from several nodes at once.
//! - Calls run on one stream each: a bounded header, then raw bytes; closing it cancels the call on the other side. The
//!   stream is one of the data plane, a QUIC connection for calls alone, where the nodes reach each other directly, else one
//!   of the swarm.
//!
//! | file | what |
//! |---|---|
//! | `mesh`, `standing` | a node in its mesh: what it asks of others, and what it is |
//! | `membership`, `invitations` | who belongs, and who was invited |
//! | `gate`, `renewal`, `refusals` | who is let in, and again while a connection stands |
//! | `swarm`, `data` | libp2p, and the connections for calls alone |
//! | `ask`, `call`, `calling`, `answers`, `unheard` | what is asked, a call on its stream, the caller's side, the callee's side, calls to a node that is gone |
//! | `discovery`, `offer`, `reports`, `missed` | who offers what: announced, asked for, heard of, not heard of |
//! | `peers`, `acquaintances`, `members` | nodes that are there, that were met before, that others have met |
//! | `company`, `moved`, `farewell` | staying connected, finding a node that has moved, leaving |
//! | `bundles`, `mailbox`, `blobs` | what waits for a link, what nobody on the way can read, files |
//! | `wire`, `swarm_stream`, `body`, `tensors` | frames, streams over libp2p, bodies |
//! | `emulate`, `trace`, `under_way`, `per_peer`, `wall_clock` | emulated links, trace context, work that several wait for, what there is for each peer, the machine's clock |
//!
//! ```
//! use karman_mesh::membership::{Issuer, Rights, RootKey, Terms, UnixTime};
//! use karman_types::Tier;
//! use std::time::Duration;
//!
//! let now = UnixTime::from_seconds(1_800_000_000);
//! let root = RootKey::generate()?;
//! let issuer = Issuer::root(&root);
//! let terms = Terms::usual(Tier::Edge, now.after(Duration::from_secs(86_400)));
//! let invitation = issuer.invite(&terms, now.after(Duration::from_secs(3_600)), None, Vec::new(), now)?;
//! assert!(invitation.to_string().starts_with("kmn1"));
//! # Ok::<(), karman_mesh::membership::MembershipError>(())
//! ```
#![forbid(unsafe_code)]

// What the tests beside the code share with those in `tests/` names this crate.
#[cfg(test)]
extern crate self as karman_mesh;

mod acquaintances;
mod answers;
mod ask;
mod blobs;
mod body;
mod bundles;
mod call;
mod calling;
mod company;
mod data;
mod discovery;
mod emulate;
mod farewell;
mod gate;
#[cfg(test)]
mod hostile;
mod invitations;
mod mailbox;
mod members;
pub mod membership;
mod mesh;
mod missed;
mod moved;
mod offer;
mod peers;
mod per_peer;
mod refusals;
mod renewal;
mod reports;
mod seal;
mod standing;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod swarm;
mod swarm_stream;
mod tensors;
pub mod trace;
mod under_way;
mod unheard;
mod wall_clock;
mod wire;

pub use ask::{Ask, CallHead, RemoteReport};
pub use blobs::{Fetched, MOST_GROUPS, PIECE, Ticket, Wanted};
pub use body::Body;
pub use bundles::{BundleError, BundleHead, Envelope, Parcel, open_bundle, write_bundle};
pub use call::BEGINNING;
pub use company::Search;
pub use data::{SILENCE, SOCKET_BUFFER};
pub use discovery::Provider;
pub use gate::{GateError, PROTOCOL, peer_of, read_greeting};
pub use invitations::{InvitationState, InvitationStatus, Invitations, WithdrawError};
pub use libp2p::{Multiaddr, PeerId};
pub use mailbox::Mailbox;
pub use members::read_members;
pub use mesh::{Mesh, MeshOptions, Serve};
pub use peers::{Path, Peer};
pub use standing::{Standing, root_of};
pub use swarm::{Situation, Traffic};
pub use tensors::{decoded_bytes, pack_encoded_tensors, pack_tensors, unpack_tensors};
pub use wall_clock::wall_clock;
pub use wire::WireError;
