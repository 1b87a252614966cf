//! The whole tool as its users have it: real processes, real files, real sockets. `cargo xtask guests` builds what runs.

mod bad_input;
mod command_line;
mod crash;
mod http;
mod models;
mod node;
mod sandbox;
mod supply_chain;
mod support;
mod upgrade;
mod wit;
