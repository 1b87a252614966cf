//! What drives the node: one file for each part below that is fed events and whose wishes are carried out.

mod dispatch;
mod mesh;

pub use dispatch::Ran;
pub(crate) use dispatch::Tasks;
pub use mesh::{DeployedOn, JoinOptions, NodeOffer, PeerStatus, Pinged};
pub(crate) use mesh::{join, mesh_of};
