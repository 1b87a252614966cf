//! What a plugin can reach, one module per WIT interface, all of one shape: the interface's functions are *linked* once,
//! each call's state is *prepared* from the plugin's grants, and every function *checks* the grant for what it names.
//!
//! What an interface needs from outside the engine comes through a small trait that the node implements; a node that
//! lacks it leaves it out, and the plugin is told `unavailable`.

mod addresses;
pub(crate) mod bindings;
pub mod checkpoint;
pub mod config;
pub(crate) mod context;
pub mod gpu;
pub mod invoke;
pub mod keyvalue;
pub mod logging;
pub mod nn;
pub mod outgoing;
pub(crate) mod wasi;

use crate::host::Host;
use std::sync::Arc;
use wasmtime::component::{HasSelf, Linker};

/// What the node offers to plugins. Whatever is `None` is answered with `unavailable`.
#[derive(Clone, Default)]
pub struct Services {
    /// Calls to other tasks.
    pub invoke: Option<Arc<dyn invoke::Invoke>>,
    /// Models, for `wasi:nn`.
    pub models: Option<Arc<dyn nn::Models>>,
    /// Buckets, for `wasi:keyvalue`.
    pub buckets: Option<Arc<dyn keyvalue::Buckets>>,
    /// Devices, for `karman:gpu`.
    pub compute: Option<Arc<dyn gpu::Compute>>,
    /// Configuration and secrets, for `wasi:config`.
    pub settings: Option<Arc<dyn config::Settings>>,
    /// How far training has come, for `karman:federated/checkpoint`; another one for each order.
    pub progress: Option<Arc<dyn checkpoint::Progress>>,
}

/// Links every interface. Nothing is granted by that: each function asks the call's grants.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    wasi::link(linker)?;
    checkpoint::link(linker)?;
    bindings::host::Host_::add_to_linker::<_, HasSelf<Host>>(linker, |host| host)
}
