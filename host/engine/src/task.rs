//! Calls of `karman:task/handler`.

use crate::capability::keyvalue::Buckets;
use crate::convert;
use crate::fair::Fair;
use crate::host::Host;
use crate::plugin::{CallReport, Entered, Export, Plugin};
use crate::warm::TaskInstance;
use karman_types::{CallContext, TaskError, TaskRequest, TaskResponse, format_bytes};
use std::sync::Arc;
use wasmtime::Store;

impl Plugin {
    /// Runs the plugin's handler on a request: in a fresh instance, or in a warm one where the manifest says so. A stream
    /// handler is given the body as a stream, and its response gathered. Dropping the future cancels the call.
    ///
    /// # Errors
    /// What the plugin answers, and `invalid` (not a task, input too long), `limit`, `deadline`, `failed` (a trap).
    pub async fn call(
        self: &Arc<Self>,
        request: TaskRequest,
        context: CallContext,
    ) -> Result<(TaskResponse, CallReport), TaskError> {
        self.call_over(request, context, None).await
    }

    /// [`Plugin::call`] over other buckets than the node's, for this one call.
    ///
    /// # Errors
    /// Those of [`Plugin::call`].
    pub async fn call_over(
        self: &Arc<Self>,
        request: TaskRequest,
        mut context: CallContext,
        buckets: Option<Arc<dyn Buckets>>,
    ) -> Result<(TaskResponse, CallReport), TaskError> {
        if let Export::Stream(_) = self.export {
            self.check_input(request.body.len() as u64)?;
            return self.gathered_over(request.into(), context, buckets).await;
        }
        let (plugin, entered) = self.enter_newest(&mut context).await?;
        plugin.check_input(request.body.len() as u64)?;
        if !matches!(plugin.export, Export::Task { .. }) {
            return Err(plugin.wrong_world("karman:task/task"));
        }
        let mut start = match plugin.warm.take() {
            Some(mut warm) => {
                Host::renew(&mut warm.store, context)?;
                Start::Warm(warm)
            }
            None => Start::Cold(plugin.store(context)?),
        };
        let nodes = || plugin.engine.services().buckets.clone();
        start.store_mut().data_mut().services.buckets = buckets.or_else(nodes);
        let long = start.store().data().long.clone();
        let workers = plugin.engine.workers().clone();
        let run = async move { plugin.run(entered, start, request).await };
        Fair::new(run, long, workers).await
    }

    /// Waits for a place; on the version that has taken over the state where that happened meanwhile, for what this one did to
    /// its own would be lost.
    async fn enter_newest(
        self: &Arc<Self>,
        context: &mut CallContext,
    ) -> Result<(Arc<Self>, Entered), TaskError> {
        let mut plugin = self.clone();
        loop {
            let mut entered = plugin.enter(context).await?;
            let Some(next) = plugin.warm.successor() else {
                return Ok((plugin, entered));
            };
            entered.end(None, None);
            plugin = next;
        }
    }

    async fn run(
        self: Arc<Self>,
        mut entered: Entered,
        start: Start,
        request: TaskRequest,
    ) -> Result<(TaskResponse, CallReport), TaskError> {
        let host = start.store().data();
        let (patience, allowed) = (host.patience(), host.allowed);
        let ended = tokio::time::timeout(patience, self.run_untimed(start, request)).await;
        match ended {
            Ok((Ok(response), instance)) => {
                let report = entered.end(instance.as_ref().map(|instance| &instance.store), None);
                instance.into_iter().for_each(|instance| self.keep_warm(instance));
                Ok((response, report))
            }
            Ok((Err(error), instance)) => {
                entered.end(instance.as_ref().map(|instance| &instance.store), Some(&error));
                // A handler that answers with an error of its own is as good as new.
                instance.into_iter().for_each(|instance| self.keep_warm(instance));
                Err(error)
            }
            Err(_) => {
                let over = self.info.time_over(allowed);
                entered.end(None, Some(&over));
                Err(over)
            }
        }
    }

    /// Keeps an instance for the next call, where the manifest says so.
    pub(crate) fn keep_warm(&self, instance: TaskInstance) {
        let places = self.engine.idle();
        self.warm.put_back(instance, places.take());
        places.make_room();
    }

    /// The answer, and the instance if it may serve again.
    async fn run_untimed(
        &self,
        start: Start,
        request: TaskRequest,
    ) -> (Result<TaskResponse, TaskError>, Option<TaskInstance>) {
        let mut instance = match start {
            Start::Warm(instance) => instance,
            Start::Cold(store) => match self.instantiate(store).await {
                Ok(instance) => instance,
                Err(error) => return (Err(error), None),
            },
        };
        let request = convert::request_to_guest(request);
        let handler = instance.task.karman_task_handler();
        match handler.call_handle(&mut instance.store, &request).await {
            Ok(Ok(response)) => (
                self.check_output(convert::response_from_guest(response)),
                Some(instance),
            ),
            Ok(Err(error)) => {
                let error = convert::error_from_guest(error);
                (Err(instance.store.data().told(error)), Some(instance))
            }
            Err(error) => (Err(instance.store.data().explain(&error)), None),
        }
    }

    pub(crate) async fn instantiate(&self, mut store: Store<Host>) -> Result<TaskInstance, TaskError> {
        let Export::Task { pre, handler, .. } = &self.export else {
            return Err(self.wrong_world("karman:task/task"));
        };
        self.stats.instantiated();
        let made = async {
            let instance = pre.instantiate_async(&mut store).await?;
            let task = handler.load(&mut store, &instance)?;
            wasmtime::Result::Ok((instance, task))
        };
        match made.await {
            Ok((instance, task)) => Ok(TaskInstance {
                store,
                instance,
                task,
            }),
            Err(error) => Err(store.data().explain(&error)),
        }
    }

    pub(crate) fn store(&self, context: CallContext) -> Result<Store<Host>, TaskError> {
        let wasmtime = match &self.export {
            Export::Task { pre, .. } => pre.engine(),
            Export::Stream(pre) => pre.engine(),
            Export::Client(pre) => pre.engine(),
            Export::Select(_) | Export::Route(_) | Export::Place(_) | Export::Strategy(_) => {
                return Err(self.wrong_world("karman:task/task, wasi:cli/command or wasi:http/proxy"));
            }
            Export::Command(pre) => pre.engine(),
            Export::Http { pre, .. } => crate::http::wasmtime_engine(pre),
        };
        Host::store(
            wasmtime,
            self.info.clone(),
            self.engine.services().clone(),
            context,
        )
    }

    pub(crate) fn check_input(&self, bytes: u64) -> Result<(), TaskError> {
        let most = self.info.limits.input;
        if bytes <= most.0 {
            return Ok(());
        }
        Err(TaskError::limit(format!(
            "the body has {}; `{}` takes at most {most}",
            format_bytes(bytes),
            self.info.name
        ))
        .with_field("body")
        .with_hint("split the input, or raise `limits.input` in the manifest"))
    }

    fn check_output(&self, response: TaskResponse) -> Result<TaskResponse, TaskError> {
        self.check_length(response.body.len() as u64)?;
        Ok(response)
    }

    /// Whether a response may be so long.
    pub(crate) fn check_length(&self, bytes: u64) -> Result<(), TaskError> {
        let most = self.info.limits.output;
        if bytes <= most.0 {
            return Ok(());
        }
        let name = &self.info.name;
        Err(TaskError::limit(format!(
            "`{name}` answered {}; {most} is its most",
            format_bytes(bytes)
        ))
        .with_field("limits.output")
        .with_hint("raise `limits.output` in its manifest"))
    }

    pub(crate) fn wrong_world(&self, wanted: &str) -> TaskError {
        let (name, world) = (&self.info.name, self.package().world);
        TaskError::invalid(format!("`{name}` is {world}, and this call needs {wanted}"))
            .with_hint("`karman run` runs tasks and commands, `karman serve` serves HTTP, `karman fed run` has clients train and its `[strategy]` names strategies, a workflow's `select` names policies")
    }
}

enum Start {
    Cold(Store<Host>),
    Warm(TaskInstance),
}

impl Start {
    const fn store(&self) -> &Store<Host> {
        match self {
            Self::Cold(store) => store,
            Self::Warm(instance) => &instance.store,
        }
    }

    const fn store_mut(&mut self) -> &mut Store<Host> {
        match self {
            Self::Cold(store) => store,
            Self::Warm(instance) => &mut instance.store,
        }
    }
}
