//! Instances that stay between calls, for plugins that ask for it with `warm = true`.

use crate::capability::bindings::task::Task;
use crate::host::Host;
use crate::idle::{Counted, Idle};
use crate::plugin::Plugin;
use parking_lot::Mutex;
use std::sync::Arc;
use wasmtime::Store;
use wasmtime::component::Instance;

/// An instance of a task with its store.
pub(crate) struct TaskInstance {
    pub(crate) store: Store<Host>,
    pub(crate) instance: Instance,
    pub(crate) task: Task,
}

/// The idle instances of one plugin. An instance that failed in any way never comes back here.
pub(crate) struct WarmInstances {
    kept: bool,
    idle: Idle<TaskInstance>,
    /// The version that has taken over what they knew.
    successor: Mutex<Option<Arc<Plugin>>>,
}

impl WarmInstances {
    pub(crate) const fn new(kept: bool) -> Self {
        Self {
            kept,
            idle: Idle::new(),
            successor: Mutex::new(None),
        }
    }

    pub(crate) const fn kept(&self) -> bool {
        self.kept
    }

    pub(crate) fn successor(&self) -> Option<Arc<Plugin>> {
        self.successor.lock().clone()
    }

    pub(crate) fn succeeded_by(&self, plugin: Arc<Plugin>) {
        *self.successor.lock() = Some(plugin);
    }

    /// It has taken over from its own successor: a deployment was taken back.
    pub(crate) fn serves_again(&self) {
        *self.successor.lock() = None;
    }

    pub(crate) fn take(&self) -> Option<TaskInstance> {
        self.idle.take()
    }

    pub(crate) fn put_back(&self, instance: TaskInstance, counted: Counted) {
        if self.kept {
            self.idle.put(instance, counted);
        }
    }

    pub(crate) const fn idle(&self) -> &Idle<TaskInstance> {
        &self.idle
    }
}
