//! `karman:task/invoke`: calls to other tasks by name, with the grant `call:NAME`.

use super::bindings::host::karman::task::{invoke, types};
use crate::convert;
use crate::host::Host;
use futures::future::BoxFuture;
use karman_types::{CallContext, Digest, Grant, MAX_CALL_DEPTH, TaskError, TaskRequest, TaskResponse};
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
    /// Checks the grant and the depth; the host carries the chain, in which no plugin is found twice.
    fn callee_context(&mut self, task: &str) -> Result<(Arc<dyn Invoke>, CallContext), TaskError> {
        let caller: Arc<str> = self.plugin.name.as_str().into();
        if !self.plugin.grants.allows(&Grant::Call(task.into())) {
            return Err(
                TaskError::denied(format!("`{caller}` has no grant `call:{task}`"))
                    .with_hint(format!("karman node grant {caller} call:{task}")),
            );
        }
        let mut chain: Vec<Arc<str>> = self.call.chain.to_vec();
        chain.push(caller);
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
        self.invoked += 1;
        let context = CallContext {
            attempt: 1,
            idempotency_key: Some(callee_key(&self.call, task, self.invoked)),
            within: Some(self.deadline.saturating_duration_since(Instant::now())),
            chain: chain.into(),
            ..self.call.clone()
        };
        Ok((service, context))
    }
}

/// The idempotency key of the `n`th call that a call makes: its own, so that two calls of one task are not taken for the same, and the
/// same again when the caller is tried again.
fn callee_key(caller: &CallContext, task: &str, n: u64) -> Arc<str> {
    let own = caller.key();
    Digest::of(format!("{own}\n{task}\n{n}").as_bytes())
        .to_string()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::{NodeId, TaskId, Tier};

    #[test]
    fn each_call_has_a_key_of_its_own_and_the_same_at_each_attempt() {
        let caller = |key: &str, attempt| CallContext {
            task: TaskId::from_parts(0, attempt),
            attempt: attempt as u32,
            idempotency_key: Some(key.into()),
            within: None,
            node: NodeId::of_key(b"here"),
            tier: Tier::Edge,
            chain: Arc::default(),
        };
        let first = callee_key(&caller("once", 1), "store", 1);
        assert_eq!(callee_key(&caller("once", 2), "store", 1), first);
        for other in [
            callee_key(&caller("once", 1), "store", 2),
            callee_key(&caller("once", 1), "send", 1),
            callee_key(&caller("twice", 1), "store", 1),
        ] {
            assert_ne!(other, first);
        }
    }
}
