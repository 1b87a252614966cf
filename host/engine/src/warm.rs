//! Instances that stay between calls, for plugins that ask for it with `warm = true`.

use crate::capability::bindings::task::Task;
use crate::host::Host;
use crate::plugin::Plugin;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
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
    idle: Mutex<Vec<TaskInstance>>,
    /// The version that has taken over what they knew.
    successor: OnceLock<Arc<Plugin>>,
}

impl WarmInstances {
    pub(crate) const fn new(kept: bool) -> Self {
        Self {
            kept,
            idle: Mutex::new(Vec::new()),
            successor: OnceLock::new(),
        }
    }

    pub(crate) const fn kept(&self) -> bool {
        self.kept
    }

    pub(crate) fn successor(&self) -> Option<Arc<Plugin>> {
        self.successor.get().cloned()
    }

    pub(crate) fn succeeded_by(&self, plugin: Arc<Plugin>) {
        let _ = self.successor.set(plugin);
    }

    pub(crate) fn take(&self) -> Option<TaskInstance> {
        if self.kept { self.idle.lock().pop() } else { None }
    }

    pub(crate) fn put_back(&self, instance: TaskInstance) {
        if self.kept {
            self.idle.lock().push(instance);
        }
    }
}
