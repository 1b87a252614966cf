//! Runs code that may panic or recurse deeply where neither harms the process.

use crate::{BackendName, InferError};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Address space, not memory: a page is taken when it is touched.
const STACK: usize = 256 << 20;

/// Runs on a thread with a large stack: graphs are walked recursively, and a stack that overflows ends the process.
pub(crate) fn on_a_large_stack<T: Send>(
    backend: BackendName,
    work: impl FnOnce() -> Result<T, InferError> + Send,
) -> Result<T, InferError> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("karman-model".into())
            .stack_size(STACK)
            .spawn_scoped(scope, work)
            .map_err(|error| InferError::Unavailable {
                backend,
                reason: format!("no thread could be started: {error}"),
            })?
            .join()
            .unwrap_or_else(|panic| Err(panicked(backend, &*panic)))
    })
}

/// Runs here and turns a panic into an error. What the panic leaves half done must be dropped with it or be rebuilt.
pub(crate) fn catching<T>(
    backend: BackendName,
    work: impl FnOnce() -> Result<T, InferError>,
) -> Result<T, InferError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(backend, &*panic)))
}

fn panicked(backend: BackendName, panic: &(dyn Any + Send)) -> InferError {
    let reason = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no reason given".into());
    InferError::Panicked {
        backend,
        reason: short(&reason),
    }
}

/// A message of a back-end, which may quote the model: bounded, on one line.
pub(crate) fn short(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(500)
        .collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
