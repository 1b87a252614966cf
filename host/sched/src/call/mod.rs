//! Which provider a call goes to.
//!
//! A call, or an accepted task that nobody has planned, can often be run by several nodes. A [`Route`] says in which order they are
//! tried, by what is known of each ([`Taker`]): how far it is and how busy, what this task took there lately, and whether it did not
//! answer; [`Seen`] remembers the last two. A route goes by what it is shown and by nothing else, so that a decision ([`Picked`]) that is
//! written down with what was known can be made again. So is one that a plugin makes ([`crate::plugin::ByName::decide`]).
//!
//! | file | what |
//! |---|---|
//! | `taker` | what is known of a provider |
//! | `route` | the policies |
//! | `brought` | what a plugin says, and that it can be; the default where it cannot |
//! | `seen` | what calls took lately, and who did not answer |
//! | `picked` | a decision, and why |
//! | `demand` | how many nodes should offer a task |
//!
//! No task comes after such a call. What FATE looks ahead for and what ClusterLess trades between the tasks of a workflow
//! ([`crate::place`]) then comes down to the earliest answer, which is [`Route::Soonest`].
//!
//! ```
//! use karman_sched::call::{Route, Taker};
//! use karman_types::NodeId;
//! use std::time::Duration;
//!
//! let taker = |name: &str, way, takes| Taker {
//!     round_trip: Some(Duration::from_millis(way)),
//!     takes: Some(Duration::from_millis(takes)),
//!     ..Taker::new(NodeId::of_key(name.as_bytes()), 4)
//! };
//! let takers = [taker("near and slow", 1, 400), taker("farther and fast", 20, 30)];
//! assert_eq!(Route::Soonest.order(&takers), [1, 0]);
//! assert_eq!(Route::NearestFree.order(&takers), [0, 1]);
//! ```

mod brought;
mod demand;
mod picked;
mod route;
mod seen;
mod taker;
#[cfg(test)]
mod tests;

pub use brought::Order;
pub use demand::{Demand, TaskDemand};
pub use picked::Picked;
pub use route::Route;
pub use seen::{Lately, Seen};
pub use taker::Taker;
