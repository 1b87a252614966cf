//! Where a direct call runs: on this node where it has the task, else on one that offers it, in the order of the node's policy.

use super::own_task::OwnTask;
use super::routes::{Answered, Routes};
use crate::plugins::Plugins;
use crate::services::shutting_down;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use karman_engine::Plugin;
use karman_engine::capability::invoke::Invoke;
use karman_mesh::{Ask, CallHead, Mesh, Provider};
use karman_types::{
    CallContext, ErrorKind, MAX_CALL_DEPTH, NodeId, TaskError, TaskId, TaskRequest, TaskResponse, Tier,
};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Nodes that are tried for one call before it is given up.
const MOST_ATTEMPTS: usize = 3;

/// Direct calls: of this node's own tasks, and of those of the mesh.
pub(crate) struct Calls {
    plugins: Weak<Plugins>,
    others: OnceLock<(Mesh, Weak<Routes>)>,
}

/// The other nodes, and in which order they are asked.
#[derive(Clone, Copy)]
struct Others<'a> {
    mesh: &'a Mesh,
    routes: &'a Routes,
}

/// A report on a call, local or remote.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// From the acceptance of the call to its end, on the node that ran it.
    pub took: Duration,
    /// The most bytes of linear memory in use.
    pub memory_peak: u64,
    /// The model and back-end that it used first, if any.
    pub ran_on: Option<String>,
    /// The other node that ran it; nothing when it ran here.
    pub node: Option<(NodeId, Tier)>,
    /// Why that one was asked, where several could be.
    pub why: Option<String>,
    /// Under which `karman why` tells of it, where that is written down: of direct calls, some are.
    pub decision: Option<TaskId>,
}

impl Calls {
    pub(crate) fn new(plugins: Weak<Plugins>) -> Self {
        Self {
            plugins,
            others: OnceLock::new(),
        }
    }

    pub(crate) fn join(&self, mesh: Mesh, routes: Weak<Routes>) {
        let _ = self.others.set((mesh, routes));
    }

    /// Runs the task here, or on a node that offers it. A node that cannot be reached or is full is passed over; one that has not
    /// answered after `hedge_after` is left running beside a second one.
    pub(crate) async fn call(
        &self,
        task: &str,
        request: TaskRequest,
        context: CallContext,
        hedge_after: Option<Duration>,
    ) -> Result<(TaskResponse, Ran), TaskError> {
        let plugins = self.plugins.upgrade().ok_or_else(shutting_down)?;
        match (OwnTask::find(&plugins, task), self.others.get()) {
            (Ok(own), _) => own.run(plugins.runtime(), request, context, None).await,
            (Err(_), Some((mesh, routes))) => {
                let routes = routes.upgrade().ok_or_else(shutting_down)?;
                let others = Others {
                    mesh,
                    routes: &routes,
                };
                elsewhere(others, task, request, context, hedge_after).await
            }
            (Err(unknown), None) => Err(unknown),
        }
    }

    /// Runs the task on another node that offers it: this one is taken out of service.
    pub(crate) async fn pass_on(
        &self,
        task: &str,
        request: TaskRequest,
        context: CallContext,
        hedge_after: Option<Duration>,
    ) -> Result<(TaskResponse, Ran), TaskError> {
        let others = self.others.get();
        let Some((mesh, routes)) = others.and_then(|(mesh, routes)| Some((mesh, routes.upgrade()?))) else {
            return Err(drained(""));
        };
        let others = Others {
            mesh,
            routes: &routes,
        };
        let answered = elsewhere(others, task, request, context, hedge_after).await;
        answered.map_err(|error| match error.kind {
            ErrorKind::Unavailable => drained(&format!(": {}", error.message)),
            _ => error,
        })
    }
}

/// It may well have the task, so that this is not a matter of the name.
fn drained(why: &str) -> TaskError {
    TaskError::unavailable(format!("this node is drained{why}"))
        .with_hint("ask another node, or start this one again")
}

/// Tries the providers one after the other; where the caller hedges, the second one as soon as the first is late. The first answer
/// counts, and what still runs then is cancelled.
async fn elsewhere(
    others: Others<'_>,
    task: &str,
    request: TaskRequest,
    context: CallContext,
    hedge_after: Option<Duration>,
) -> Result<(TaskResponse, Ran), TaskError> {
    let started = Instant::now();
    let Others { mesh, routes } = others;
    let found = mesh.providers(task).await;
    let pick = routes.of_call(mesh, (task, context.task), found).await;
    let mut candidates = pick.providers.iter().take(MOST_ATTEMPTS).enumerate();
    let mut start = || {
        let (attempt, provider) = candidates.next()?;
        let left = context
            .within
            .map(|within| within.saturating_sub(started.elapsed()));
        Some(ask(
            others,
            task,
            &request,
            &context,
            attempt as u32,
            provider,
            left,
        ))
    };
    let mut running = FuturesUnordered::new();
    running.extend(start());
    let mut hedge = hedge_after.map(|after| Box::pin(tokio::time::sleep(after)));
    let mut last = TaskError::unavailable(format!("no node in reach offers `{task}`"))
        .with_field("task")
        .with_hint("`karman mesh offers` shows what there is; `karman deploy FILE --on NODE` adds to it");
    loop {
        let late = async {
            match &mut hedge {
                Some(timer) => timer.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answered = running.next() => match answered {
                Some(Ok((response, ran))) => {
                    let told = |(node, _)| routes.answered(&pick, node, started.elapsed());
                    let Answered { why, decision } = ran.node.map(told).unwrap_or_default();
                    return Ok((response, Ran { why, decision, ..ran }));
                }
                // Delivery is at least once: a link that breaks may have swallowed the answer of a call that ran.
                Some(Err(error)) if is_passed_over(&error) => {
                    last.kind = error.kind;
                    last.message = format!("`{task}` is not answered: {}", error.message);
                    last.hint = error.hint;
                    last.field = error.field.filter(|field| field != "task");
                    if running.is_empty() {
                        running.extend(start());
                    }
                }
                Some(Err(error)) => return Err(error),
                None => return Err(last),
            },
            () = late => {
                hedge = None;
                running.extend(start());
            }
        }
    }
}

/// Whether another node is asked after one has answered this: it was not reached, or had no place.
fn is_passed_over(error: &TaskError) -> bool {
    error.kind == ErrorKind::Unavailable || Plugin::was_full(error)
}

/// One attempt, at one provider.
async fn ask(
    Others { mesh, routes }: Others<'_>,
    task: &str,
    request: &TaskRequest,
    context: &CallContext,
    attempt: u32,
    provider: &Provider,
    left: Option<Duration>,
) -> Result<(TaskResponse, Ran), TaskError> {
    let node = (provider.offer.node, provider.offer.tier);
    let gone = || TaskError::unavailable(format!("node {} no longer offers it", node.0.short()));
    let offered = provider.offer.runs(task).ok_or_else(gone)?;
    let head = CallHead {
        ask: Ask::Call,
        name: offered.name.clone(),
        task: context.task,
        attempt: context.attempt + attempt,
        idempotency_key: context.idempotency_key.clone(),
        within_ms: left.map(|left| left.as_millis() as u64),
        chain: context.chain.to_vec(),
        content_type: request.content_type.clone(),
        metadata: request.metadata.clone(),
    };
    let under_way = routes.under_way(mesh, task, provider);
    let answered = mesh.call(provider.id, head, request.body.clone()).await;
    under_way.ended(&answered);
    let (response, report) = answered?;
    let ran = Ran {
        took: Duration::from_micros(report.took_us),
        memory_peak: report.memory_peak,
        ran_on: report.ran_on,
        node: Some(node),
        ..Ran::default()
    };
    Ok((response, ran))
}

/// Those with the shortest round trip first.
pub(super) fn nearest_first(mesh: &Mesh, mut providers: Vec<Provider>) -> Vec<Provider> {
    providers.sort_by_cached_key(|provider| {
        let (round_trip, _) = mesh.last_heard(&provider.id);
        (round_trip.unwrap_or(Duration::MAX), provider.offer.node)
    });
    providers
}

impl Invoke for Calls {
    fn invoke(
        &self,
        task: String,
        request: TaskRequest,
        context: CallContext,
    ) -> BoxFuture<'static, Result<TaskResponse, TaskError>> {
        let here = Self {
            plugins: self.plugins.clone(),
            others: self.others.clone(),
        };
        async move { Ok(here.call(&task, request, context, None).await?.0) }.boxed()
    }
}

/// The chain of calls that came over the network, if it is not too long.
pub(crate) fn chain(head: &CallHead) -> Result<Arc<[Arc<str>]>, TaskError> {
    match head.chain.len() < MAX_CALL_DEPTH {
        true => Ok(head.chain.clone().into()),
        false => Err(TaskError::limit(format!(
            "calls nest deeper than {MAX_CALL_DEPTH}: {} is one too many",
            head.name
        ))
        .with_field("chain")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_full_is_passed_over_as_one_out_of_reach() {
        for (error, passed_over) in [
            (TaskError::unavailable("the link broke"), true),
            (TaskError::limit("full").with_field("limits.concurrency"), true),
            (TaskError::limit("too long").with_field("body"), false),
            (TaskError::deadline("late"), false),
        ] {
            assert_eq!(is_passed_over(&error), passed_over, "{error:?}");
        }
    }
}
