//! Decisions, pure: which model, which cut, which node, what next. No clock, socket, thread or unseeded randomness: `now` and
//! what changed are arguments, decisions are return values; so the policy that a node asks is that of a study, and where they drive it, of
//! the simulator ([`select`], [`serve`]) and of a replay ([`select`], [`call`], [`place`]).
//!
//! Not all that is studied is asked by a node: of [`tier`] it takes the latency law and the numbers that go with it, for its [`call`]s;
//! of [`place`] what a [`BuiltIn`](place::BuiltIn) does not refuse, so not [`Haf`](place::Haf); and of [`partition`] it does not plan what
//! is left of a request ([`Replanner::resume`](partition::Replanner::resume), [`rescue`](partition::Replanner::rescue)).
//!
//! Each module holds one trait, its policies and what they are compared with, one file each.
//!
//! | module | decides |
//! |---|---|
//! | [`select`] | which model serves a task of a request |
//! | [`partition`] | which cut: which layers of a model run where |
//! | [`place`] | which node |
//! | [`call`] | which provider a call goes to |
//! | [`tier`] | which tier serves a request, and how many replicas there are |
//! | [`serve`] | what runs next on a device that many models share |
//! | [`flow`] | how far a workflow is, and what its coordinator does next |
//! | [`log`] | nothing: it keeps decisions, so that they can be made again |
//! | [`plugin`] | nothing: it asks the policies that plugins bring |
//! | `why` | nothing: it puts a decision into plain words ([`Why`]) |
//!
//! ```
//! use karman_sched::select::{Ask, Pixie, PixieSettings, Selector, Task};
//! use karman_sched::Why;
//! use karman_types::{Binding, Implementation, Profile, Slo};
//! use std::time::Duration;
//!
//! let model = |name: &str, accuracy, p95, cost| Implementation {
//!     name: name.into(),
//!     binding: Binding::Model(name.into()),
//!     profile: Profile {
//!         accuracy: Some(accuracy),
//!         mean: Duration::from_millis(p95 / 2),
//!         p50: Duration::from_millis(p95 / 2),
//!         p95: Duration::from_millis(p95),
//!         p99: Duration::from_millis(p95 * 2),
//!         cost,
//!         energy: None,
//!         samples: 500,
//!     },
//! };
//! let answer = Task {
//!     name: "answer".into(),
//!     visits: 1.0,
//!     within: 1.0,
//!     candidates: vec![model("small", 0.78, 160, 0.1), model("large", 0.91, 1200, 1.0)],
//! };
//! let slo = Slo { cost: Some(40.0), latency_p95: Some(Duration::from_millis(1500)), ..Slo::over(100) };
//!
//! let mut pixie = Pixie::new(vec![answer.clone()], slo, PixieSettings::default())?;
//! let decision = pixie.choose(&Ask::default())?;
//! assert_eq!(
//!     Why::selected(&[answer], &decision).to_string(),
//!     "who serves `answer`: small, rather than large, because \
//!      the plan for the 100 requests that are left gives it 67 % of the calls"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod call;
pub mod flow;
pub mod log;
pub mod partition;
pub mod place;
pub mod plugin;
pub mod select;
pub mod serve;
pub mod tier;
mod why;

pub use why::Why;
