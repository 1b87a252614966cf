//! When a peer can be reached, and by which way data get there.
//!
//! Nothing here has a clock, a file or a socket: [`Time`] is an argument, so a node, the simulator and a replay of a
//! recorded log compute the same answers. Element sets become [`Satellite`]s ([`read_elements`], SGP4); a satellite
//! sampled over a [`Span`] is a [`Track`]; a track and a ground [`Station`], or two tracks, give the [`Contact`]s in
//! which a link exists. An operator may also write them down as TOML. Together they are a [`ContactPlan`], over which
//! [`earliest_arrival`] finds the [`Route`] of a [`Bundle`] that waits at nodes until the next contact opens, and [`agenda()`]
//! what a node sends now. A [`LinkProfile`] says how links behave while they exist: a [`Line`] is one in use. A [`Replay`] has
//! passes that were go by again, faster.
//!
//! ```
//! use karman_space::{Bundle, ContactPlan, Time, earliest_arrival};
//! use karman_types::NodeId;
//!
//! // A satellite sees the camera first and the gateway a quarter of an hour later.
//! let [camera, satellite, gateway] = ["camera", "satellite", "gateway"].map(|key| NodeId::of_key(key.as_bytes()));
//! let plan = ContactPlan::from_toml(&format!(r#"
//!     [[contact]]
//!     from = "{camera}"
//!     to = "{satellite}"
//!     start = "2026-11-21T10:00:00Z"
//!     end = "2026-11-21T10:06:00Z"
//!     rate = "2 Mbit/s"
//!     delay = "4 ms"
//!     both-ways = true
//!
//!     [[contact]]
//!     from = "{satellite}"
//!     to = "{gateway}"
//!     start = "2026-11-21T10:21:00Z"
//!     end = "2026-11-21T10:27:00Z"
//!     rate = "20 Mbit/s"
//!     delay = "4 ms"
//! "#))?;
//!
//! let sent: Time = "2026-11-21T09:00:00Z".parse()?;
//! assert!(plan.open(camera, satellite, sent).is_none());
//! let route = earliest_arrival(&plan, &Bundle {
//!     source: camera,
//!     destination: gateway,
//!     bytes: 1_000_000,
//!     sent,
//!     expires: "2026-11-21T12:00:00Z".parse()?,
//!     split: false,
//! })?;
//! // 4 s up at 2 Mbit/s, a wait on board, 0.4 s down at 20 Mbit/s.
//! assert_eq!(route.hops.len(), 2);
//! assert_eq!(route.arrival.to_string(), "2026-11-21T10:21:00.404Z");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod agenda;
mod earth;
mod line;
mod link;
mod orbit;
mod plan;
mod rate;
mod replay;
mod route;
mod time;
mod windows;

pub use agenda::{Agenda, Priority, Waiting, agenda};
pub use earth::{Ecef, Geodetic, PlaceError};
pub use line::{Line, Passage};
pub use link::{Link, LinkError, LinkProfile, Outage};
pub use orbit::{ElementsError, PositionError, Satellite, read_elements};
pub use plan::{Contact, ContactPlan, PlanError};
pub use rate::{ParseRateError, Rate};
pub use replay::{Replay, ReplayError};
pub use route::{Bundle, Hop, NoRoute, Route, earliest_arrival};
pub use time::{ParseTimeError, Time};
pub use windows::{Crosslink, GroundLink, Span, Station, Track, WindowError};
