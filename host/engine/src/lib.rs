//! Runs Wasm plugins: loads and verifies them, caches their compiled code, holds them to their grants and limits, and
//! gives them the WASI and `karman:*` interfaces.
//!
//! The flow: an [`Engine`] is set up once, with its memory [allocation](Allocation) chosen for the machine.
//! [`Engine::load`] turns a file into a [`Plugin`]: signature and manifest first, then code, from the [`CompileCache`] if
//! it is there. [`Plugin::call`] (tasks), [`Plugin::call_stream`], [`Plugin::learn`] and
//! [`Plugin::aggregate`] (clients and strategies of federated learning),
//! [`Plugin::run_command`] and [`Plugin::serve`] (HTTP) each make an instance, run it and drop it: that takes microseconds, and
//! nothing leaks into the next call. A [`Slot`] lets a new version take over while calls go on. What a plugin reaches outside, it
//! reaches through [`Services`], each of whose functions asks the plugin's grants.
//!
//! | file | what |
//! |---|---|
//! | `engine`, `allocation`, `cache` | wasmtime, set up: memory of instances, compiled code on disk |
//! | `plugin`, `slot`, `stats` | a loaded plugin, its place on a node, its counters |
//! | `task`, `stream`, `learn`, `command`, `http`, `policy`, `strategy` | one file per world that a plugin may have |
//! | `host`, `convert`, `capability` | the state of a call, and the interfaces that it may use |
//! | `limiter`, `epoch` | memory and time of a call |
//! | `fair`, `workers`, `warm`, `wakes` | on which thread a call runs, and which instances stay |
//!
//! ```
//! use karman_engine::{Engine, EngineOptions};
//! use karman_types::{GrantSet, Manifest, World};
//!
//! # let bytes = wat::parse_str(r#"(component
//! #     (core module $m (func (export "run") (result i32) i32.const 0))
//! #     (core instance $i (instantiate $m))
//! #     (func $run (result (result)) (canon lift (core func $i "run")))
//! #     (instance (export "wasi:cli/run@0.2.0") (export "run" (func $run))))"#).unwrap();
//! let engine = Engine::new(EngineOptions::default()).unwrap();
//! let plugin = engine.load(&bytes, &GrantSet::default(), |world| Manifest::foreign("hello", world)).unwrap();
//! assert_eq!(plugin.package().world, World::Command);
//! assert!(plugin.grants().is_empty());
//! ```

mod allocation;
mod cache;
pub mod capability;
mod command;
mod compile;
mod convert;
mod engine;
mod epoch;
mod error;
mod fair;
mod host;
mod http;
mod idle;
pub mod learn;
mod limiter;
mod log_limit;
mod plugin;
pub mod policy;
mod screen;
mod slot;
mod stats;
pub mod strategy;
mod stream;
mod task;
mod wakes;
mod warm;
mod workers;

pub use allocation::{Allocation, Machine};
pub use cache::{CompileCache, CompiledFrom};
pub use capability::Services;
pub use command::CommandIo;
pub use engine::{Engine, EngineError, EngineOptions};
pub use epoch::EPOCH_TICK;
pub use error::LoadError;
pub use http::GuestBody;
pub use plugin::{CallReport, Plugin};
pub use slot::{Slot, StateMoved};
pub use stats::Stats;
pub use stream::{Begin, StreamHead, StreamRequest};

/// The standard streams that a command is given.
pub mod stdio {
    pub use wasmtime_wasi::cli::{IsTerminal, StdinStream, StdoutStream, stderr, stdin, stdout};
    pub use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};
}

/// The body of a request to an HTTP plugin.
pub use wasmtime_wasi_http::{Error as HttpError, WasiBody};
