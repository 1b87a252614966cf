//! Decisions, pure: which model, which cut, which node, what next. No clock, socket, thread or unseeded randomness: `now` and
//! what changed are arguments, decisions are return values; so the same policy serves the real node, the simulator and a replay.
#![forbid(unsafe_code)]

pub mod partition;
