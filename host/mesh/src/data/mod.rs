//! The data plane: calls on a QUIC connection of their own, between nodes that reach each other directly.
//!
//! It knows nobody by itself: it takes calls from those whom the gate has let in, for as long as they are members, and
//! everything that it cannot carry goes over the swarm's streams.

mod outgoing;
mod plane;
mod silence;
mod tls;
mod uses;

pub(crate) use outgoing::Outgoing;
pub(crate) use plane::{OnLine, Plane};
pub use plane::{SILENCE, SOCKET_BUFFER};
pub(crate) use silence::{Passed, Silence, pause};

#[cfg(test)]
mod tests;
