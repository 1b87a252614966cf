//! `karman:task/invoke`: calls to other tasks by name, with the grant `call:NAME`.

use super::bindings::host::karman::task::{invoke, types};
use crate::convert;
use crate::host::Host;
use futures::future::BoxFuture;
use karman_types::{CallContext, Grant, MAX_CALL_DEPTH, TaskError, TaskRequest, TaskResponse};
use std::sync::Arc;
use std::time::Instant;

/// Runs a task by name, wherever it is.
pub trait Invoke: Send + Sync {
    /// Runs `task` for the call in `context`, whose chain already ends with the caller.
    fn invoke(
        &self,
        task: String,
        request: TaskRequest,
        context: CallContext,
    ) -> BoxFuture<'static, Result<TaskResponse, TaskError>>;
}

impl types::Host for Host {}

impl invoke::Host for Host {
    async fn call(
        &mut self,
        task: String,
        request: types::Request,
    ) -> wasmtime::Result<Result<types::Response, types::Error>> {
        let answer = match self.callee_context(&task) {
            Ok((service, context)) => {
                service
                    .invoke(task, convert::request_from_guest(request), context)
                    .await
            }
            Err(error) => Err(error),
        };
        Ok(answer
            .map(convert::response_to_guest)
            .map_err(convert::error_to_guest))
    }
}

impl Host {
    /// Checks the grant, the depth and that no plugin in the chain calls itself; the host carries the chain.
    fn callee_context(&self, task: &str) -> Result<(Arc<dyn Invoke>, CallContext), TaskError> {
        let caller: Arc<str> = self.plugin.name.as_str().into();
        if !self.plugin.grants.allows(&Grant::Call(task.into())) {
            return Err(
                TaskError::denied(format!("`{caller}` has no grant `call:{task}`"))
                    .with_hint(format!("karman node grant {caller} call:{task}")),
            );
        }
        let mut chain: Vec<Arc<str>> = self.call.chain.to_vec();
        chain.push(caller);
        if chain.iter().any(|earlier| &**earlier == task) {
            let path: Vec<_> = chain.iter().map(|name| &**name).collect();
            return Err(
                TaskError::invalid(format!("cyclic call: {} -> {task}", path.join(" -> ")))
                    .with_hint("a task may not call itself through others; pass the result on instead"),
            );
        }
        if chain.len() >= MAX_CALL_DEPTH {
            return Err(TaskError::limit(format!(
                "calls nest {} deep; {MAX_CALL_DEPTH} is the most",
                chain.len() + 1
            )));
        }
        let service = self.services.invoke.clone().ok_or_else(|| {
            TaskError::unavailable(format!("this host runs one plugin and has no task `{task}`"))
                .with_hint("start a node with `karman node up` and deploy both plugins to it")
        })?;
        let context = CallContext {
            attempt: 1,
            within: Some(self.deadline.saturating_duration_since(Instant::now())),
            chain: chain.into(),
            ..self.call.clone()
        };
        Ok((service, context))
    }
}
