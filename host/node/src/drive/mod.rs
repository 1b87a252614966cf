//! What drives the node: one file for each part below that is fed events and whose wishes are carried out.

mod attempt;
mod disk;
mod dispatch;
mod mesh;
mod tasks;

pub(crate) use dispatch::Calls;
pub use dispatch::Ran;
pub use mesh::{DeployedOn, JoinOptions, NodeOffer, PeerStatus, Pinged};
pub(crate) use mesh::{join, mesh_of};
pub(crate) use tasks::Tasks;
pub use tasks::{TaskState, TaskStatus};
