//! What the node does for members of its mesh.

use super::attempt;
use super::dispatch::chain;
use super::model_tasks::MODEL;
use super::own_task::OwnTask;
use super::{fed, links, models, split, swarm};
use crate::node::Node;
use crate::services::shutting_down;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_mesh::membership::{Member, Signed};
use karman_mesh::{Ask, CallHead, PeerId, RemoteReport, Serve};
use karman_types::{CallContext, Offer, TaskError, TaskRequest, TaskResponse};
use serde::Serialize;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

/// The longest key of a bucket that a member may read.
const MOST_KEY: u64 = 64 << 10;
/// The longest batch of a task that its owner may bring: what it reads and writes, and its response.
const MOST_BATCH: u64 = 64 << 20;
/// The longest record of a task that a member may hand over: its input with what else is written down of it.
const MOST_TASK: u64 = 256 << 20;
/// The most bytes of tensors that a stage of a model takes.
const MOST_TENSORS: u64 = 256 << 20;
/// The longest order for a client of a federated run: the model with its control variate.
const MOST_ORDER: u64 = 512 << 20;
/// The most bytes that are taken to measure a link.
const MOST_MEASURE: u64 = 4 << 20;
/// The most bytes that say which stage is to be made ready (a stage for each layer, and a ticket), or what is known of a model.
const MOST_PREPARE: u64 = 1 << 20;

/// What the node does for members.
pub(super) struct Service {
    node: Weak<crate::node::Inner>,
}

impl Service {
    pub(super) fn of(node: &Node) -> Self {
        Self {
            node: node.downgrade(),
        }
    }

    fn node(&self) -> Result<Node, TaskError> {
        Node::upgrade(&self.node).ok_or_else(shutting_down)
    }
}

impl Serve for Service {
    fn most_input(&self, head: &CallHead) -> Result<u64, TaskError> {
        match head.ask {
            Ask::ReadBucket => Ok(MOST_KEY),
            Ask::TakeOver => Ok(MOST_TASK),
            Ask::Commit => Ok(MOST_BATCH),
            Ask::Keep { snapshot } => Ok(self.node()?.tasks().keepers().most(snapshot)),
            Ask::Call | Ask::Attempt { .. } => {
                let own = OwnTask::find(self.node()?.plugins(), &head.name)?;
                Ok(own.most_input())
            }
            Ask::RunStage | Ask::RunModel => Ok(MOST_TENSORS),
            Ask::PrepareStage { .. } | Ask::AddModel { .. } => Ok(MOST_PREPARE),
            Ask::Deploy { .. } | Ask::ReadBlob { .. } | Ask::ProfileModel { .. } => {
                Ok(Signed::MAX_BYTES as u64)
            }
            Ask::Measure => Ok(MOST_MEASURE),
            Ask::Learn => Ok(MOST_ORDER),
            Ask::Swarm => self.node()?.federated().swarms().most_input(&head.name),
            Ask::Undeploy | Ask::TakeBundle { .. } | Ask::DescribeModel | Ask::MeasureBack { .. } => Ok(0),
        }
    }

    fn serve(
        &self,
        from: Arc<Member>,
        head: CallHead,
        request: TaskRequest,
    ) -> BoxFuture<'static, Result<(TaskResponse, RemoteReport), TaskError>> {
        let node = self.node();
        let served = async move { serve(&node?, from, head, request).await };
        // What goes wrong in the host is an answer too: without one the caller takes the link for broken and tries again.
        let ended = AssertUnwindSafe(served).catch_unwind();
        ended
            .map(|ended| ended.unwrap_or_else(|_| Err(TaskError::internal("the call failed in the host"))))
            .boxed()
    }

    fn busy(&self) -> u32 {
        self.node().map_or(0, |node| node.busy())
    }

    fn cores(&self) -> u32 {
        self.node().map_or(1, |node| node.machine().cores)
    }

    fn offer(&self) -> Option<Offer> {
        self.node().ok().map(|node| node.offer())
    }
}

async fn serve(
    node: &Node,
    from: Arc<Member>,
    head: CallHead,
    request: TaskRequest,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    let tasks = node.tasks();
    let response = match head.ask {
        // These say how they ran.
        Ask::Call => return run(node, &head, request).await,
        Ask::Learn => return fed::serve(node, &from, &head, request.body).await,
        Ask::Swarm => return swarm::serve(node, &from, &head, request.body).await,
        Ask::RunStage => return split::run(node, &from, &head, &request.body).await,
        Ask::RunModel => return models::run(node, (head.name.as_str(), head.within()), &request.body).await,
        Ask::Attempt { .. } => attempt::serve(tasks.inner(), from, head, request).await?,
        Ask::Commit => attempt::take_batch(tasks.inner(), &from, &request.body).await?,
        Ask::Keep { .. } => tasks.keepers().serve(&from, &request.body).await?,
        Ask::ReadBucket => attempt::read_bucket(tasks.inner(), &head.name, &request.body).await?,
        Ask::TakeOver => attempt::take_over(tasks, &from, &head.name, &request.body).await?,
        Ask::Deploy { .. } => {
            tracing::info!(plugin = head.name, by = %from.node, "a member deploys");
            json(&node.deploy_from(peer_of(&from)?, &head, request.body).await?)?
        }
        Ask::AddModel { .. } => {
            tracing::info!(model = head.name, by = %from.node, "a member brings a model");
            json(&node.take_model(peer_of(&from)?, &head, &request.body).await?)?
        }
        Ask::PrepareStage { .. } => split::prepare(node, &from, &head, &request.body).await?,
        Ask::Measure => TaskResponse::default(),
        Ask::MeasureBack { bytes } => TaskResponse::from(links::answer(bytes)?),
        Ask::DescribeModel => json(&node.describe_own_model(&head.name).await?)?,
        Ask::ProfileModel { .. } => split::profile(node, &from, &head, &request.body).await?,
        Ask::ReadBlob { .. } => node.give(&from, &head, &request.body).await?,
        Ask::TakeBundle { digest, size } => {
            node.take_bundle(&from, digest, size).await?;
            TaskResponse::default()
        }
        Ask::Undeploy => {
            match head.name.strip_prefix(MODEL) {
                Some(model) => {
                    tracing::info!(model, by = %from.node, "a member removes a model");
                    node.remove_model(model).await?;
                }
                None => node.undeploy(&head.name).await?,
            }
            TaskResponse::default()
        }
    };
    Ok((response, RemoteReport::default()))
}

pub(super) fn peer_of(member: &Member) -> Result<PeerId, TaskError> {
    karman_mesh::peer_of(&member.key).ok_or_else(|| TaskError::internal("a member without a key"))
}

async fn run(
    node: &Node,
    head: &CallHead,
    request: TaskRequest,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    let runtime = node.runtime();
    let context = CallContext {
        task: head.task,
        attempt: head.attempt,
        idempotency_key: head.idempotency_key.clone(),
        chain: chain(head)?,
        ..runtime.context(head.within())
    };
    if node.tasks().draining() {
        return Err(TaskError::unavailable("this node is draining"));
    }
    let own = OwnTask::find(node.plugins(), &head.name)?;
    let (response, ran) = own.run(runtime, request, context, None).await?;
    let report = RemoteReport {
        took_us: ran.took.as_micros() as u64,
        memory_peak: ran.memory_peak,
        ran_on: ran.ran_on,
    };
    Ok((response, report))
}

fn json(value: &impl Serialize) -> Result<TaskResponse, TaskError> {
    let body = serde_json::to_vec(value).map_err(|error| TaskError::internal(error.to_string()))?;
    Ok(TaskResponse {
        content_type: "application/json".into(),
        metadata: Vec::new(),
        body: body.into(),
    })
}
