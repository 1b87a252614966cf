//! The log of decisions: what a policy was asked and told and what it decided, so that every decision can be explained, and
//! reproduced exactly.
//!
//! A [`Logged`] policy returns an [`Entry`] for everything that it hears or says, and now and then a [`Checkpoint`] of its whole
//! state. A policy that a plugin brings is in it by the digest of its file: [`replay_with()`] is given the files. The caller
//! keeps the entries in a ring: the oldest are dropped, and what is left begins at some checkpoint. [`replay()`] lets the policy decide
//! everything again, and [`Logged::resumed`] goes on from the last one; [`explain()`] puts the decisions of one request into words.
//! Which nodes are asked to run a call ([`crate::call`]), and where a step of a workflow goes ([`crate::place`]), are entries of their own.
//!
//! | file | what |
//! |---|---|
//! | `entry` | what is written down |
//! | `logged` | a policy that says what is to be written down |
//! | `replay` | the same decisions again |
//! | `tail` | what it takes to go on with a policy after a restart |
//! | `explain` | in plain words |
//!
//! ```
//! use karman_sched::log::{Logged, Policy, explain, replay};
//! use karman_sched::select::{Asked, Pixie, PixieSettings, Task};
//! use karman_types::{Binding, Implementation, Profile, Slo, TaskId};
//! use std::time::Duration;
//!
//! let candidate = |name: &str, accuracy| Implementation {
//!     name: name.into(),
//!     binding: Binding::Model(name.into()),
//!     profile: Profile {
//!         accuracy: Some(accuracy),
//!         mean: Duration::from_millis(5),
//!         p50: Duration::from_millis(5),
//!         p95: Duration::from_millis(9),
//!         p99: Duration::from_millis(12),
//!         cost: 0.0,
//!         energy: None,
//!         samples: 50,
//!     },
//! };
//! let tasks = vec![Task {
//!     name: "classify".into(),
//!     visits: 1.0,
//!     within: 1.0,
//!     candidates: vec![candidate("small", 0.97), candidate("large", 0.99)],
//! }];
//! let pixie = Pixie::new(tasks.clone(), Slo::over(100), PixieSettings::default())?;
//!
//! let request = TaskId::from_parts(1, 2);
//! let mut policy = Logged::new("digits", Policy::Pixie(Box::new(pixie)), tasks, 7);
//! let (decision, entries) = policy.choose(1_000, request, Asked::default())?;
//! assert_eq!(decision.chosen, 1);
//!
//! assert_eq!(replay(&entries).same, 1);
//! let told = explain(&entries, request)[0].to_string();
//! assert!(told.starts_with("who serves `classify`: large, rather than small, because"), "{told}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod entry;
mod explain;
mod logged;
mod replay;
mod tail;
#[cfg(test)]
mod testing;

pub use entry::{Checkpoint, Chosen, Damaged, Entry, Policy, What};
pub use explain::{Told, explain};
pub use logged::{CHECKPOINT_EVERY, Logged};
pub use replay::{Absent, Difference, Repicked, Replaced, Replay, replay, replay_with};
pub use tail::{Tail, tails};
