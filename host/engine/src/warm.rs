//! Instances that stay between calls, for plugins that ask for it with `warm = true`.

use crate::capability::bindings::task::Task;
use crate::host::Host;
use parking_lot::Mutex;
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
}

impl WarmInstances {
    pub(crate) const fn new(kept: bool) -> Self {
        Self {
            kept,
            idle: Mutex::new(Vec::new()),
        }
    }

    pub(crate) const fn kept(&self) -> bool {
        self.kept
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
