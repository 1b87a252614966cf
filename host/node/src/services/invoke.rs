use crate::plugins::Plugins;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::invoke::Invoke;
use karman_types::{CallContext, TaskError, TaskRequest, TaskResponse};
use std::sync::{Arc, Weak};

/// Calls to the tasks of this node.
pub(crate) struct NodeTasks(pub(crate) Weak<Plugins>);

impl Invoke for NodeTasks {
    fn invoke(
        &self,
        task: String,
        request: TaskRequest,
        context: CallContext,
    ) -> BoxFuture<'static, Result<TaskResponse, TaskError>> {
        let plugins: Option<Arc<Plugins>> = self.0.upgrade();
        async move {
            let plugins = plugins.ok_or_else(|| TaskError::unavailable("the node is shutting down"))?;
            let slot = plugins.find(&task)?;
            Ok(slot.call(request, context).await?.0)
        }
        .boxed()
    }
}
