//! What every study is written with.
//!
//! A study measures its cells and puts them as rows into a [`report::Report`], which is written to `target/bench/NAME.json` and
//! printed. Contenders are measured in [`pairs`]: alternated in random order, judged by the ratio's 95 % [`interval`].
//! [`machine`] says where it ran; [`registered`] reads what was written down before. Studies of cuts that move share their
//! [`trace`]s and what they make of a [`contest`]; a simulated study and its live part share who is entered and how it is judged
//! ([`serving`], [`choosing`]).
//!
//! ```
//! use karman_study::pairs;
//!
//! let pairs = pairs::measure(30, || Ok(1.0), || Ok(2.0))?;
//! assert_eq!(pairs::ratio(&pairs).value, 0.5);
//! # Ok::<(), anyhow::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod choosing;
pub mod contest;
pub mod interval;
pub mod machine;
pub mod pairs;
pub mod registered;
pub mod report;
pub mod serving;
pub mod trace;
