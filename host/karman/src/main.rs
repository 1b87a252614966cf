//! The command line of Karman: grammar, wiring and words; everything that it does is done by the crates below.
//!
//! `main` reads the arguments ([`cli`]), a command in [`commands`] does its work with what [`app`] gives it, and whatever
//! goes wrong ends as one [`TaskError`](karman_types::TaskError): two lines on standard error and an exit code.
#![forbid(unsafe_code)]

mod answer;
mod app;
mod cli;
mod commands;
mod control;
mod error;
mod held;
mod input;
mod link_profile;
mod load;
mod logging;
mod out_of_reach;
mod output;
mod parent;
mod places;
mod slo;
mod source;
mod supervisor;
mod telemetry;
mod watch;

use mimalloc::MiMalloc;
use std::process::ExitCode;

/// A request takes many small pieces of memory on one thread and gives them back on another, and with the system's allocator those
/// threads wait for each other.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::main().into()
}
