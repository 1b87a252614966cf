//! The libp2p swarm: transports behind the gate, the members' protocols, and the loop that drives them.

mod announcing;
mod arriving;
mod behaviour;
mod crowd;
mod drive;
mod finding;
mod leaving;
mod link;
mod met;
mod paths;
mod punch;
mod reach;
mod records;
mod refused;
mod relays;
mod restarted;
mod situation;
mod streams;
mod table;
mod telling;
mod traffic;
mod transport;
mod turns;

pub(crate) use behaviour::MOST_ANNOUNCED;
pub(crate) use crowd::MANY;
pub(crate) use drive::{Driver, Order};
pub(crate) use finding::{Aim, Seen};
pub(crate) use link::Link;
pub use situation::Situation;
pub use traffic::Traffic;
pub(crate) use transport::Wires;
