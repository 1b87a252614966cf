//! The whole tool as its users have it: real processes, real files, real sockets. `cargo xtask guests` builds what runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod away;
mod bad_input;
mod blobs;
mod choose;
mod clock;
mod command_line;
mod crash;
mod demo;
mod documents;
mod door;
mod endpoints;
mod fed;
mod fed_local_privacy;
mod fed_low_rank;
mod fed_passes;
mod fed_strategy;
mod fed_swarm;
mod flows;
mod gateway;
mod gpu;
mod http;
mod inside;
mod internet;
mod kept;
mod load;
mod mesh;
mod models;
mod nat;
mod node;
mod operators;
mod partition;
mod placed;
mod policies;
mod reference;
mod sandbox;
mod satellite;
mod split;
mod streams;
mod supply_chain;
mod support;
mod tasks;
mod telemetry;
mod upgrade;
mod wit;
