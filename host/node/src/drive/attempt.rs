//! Attempts at accepted tasks: where one can run, running it here or there, and bringing its effects to their buckets.

use super::dispatch::nearest_first;
use super::tasks::{Inner, Tasks};
use crate::services::{Effects, Origin, blocking, store_error};
use bytes::Bytes;
use karman_mesh::membership::{Member, Right};
use karman_mesh::{Ask, CallHead, Mesh, PeerId};
use karman_store::StoreError;
use karman_tasks::{
    Answer, AttemptId, Batch, Begin, Call, Commit, CommitError, Epoch, Handover, LimitReached, Operation,
    Verdict,
};
use karman_types::{CallContext, NodeId, TaskError, TaskRequest, TaskResponse};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Nodes that could run the task, the best first: this one where it can, else those of the mesh, the nearest first.
pub(super) async fn place(tasks: &Inner, name: &str, avoid: &[NodeId]) -> Vec<NodeId> {
    let here = tasks.runtime.id();
    let mut nodes = Vec::new();
    if tasks.plugins.find(name).is_ok() {
        nodes.push(here);
    }
    if let Some(mesh) = tasks.mesh.get()
        && (nodes.is_empty() || avoid.contains(&here))
    {
        for provider in nearest_first(mesh, mesh.providers(name).await) {
            nodes.push(provider.offer.node);
            tasks.providers.lock().insert(provider.offer.node, provider);
        }
    }
    nodes.sort_by_key(|node| avoid.contains(node));
    nodes
}

/// Runs an attempt of this node's task, here or at another node.
pub(super) async fn run(tasks: &Inner, provider: NodeId, call: Call) -> Result<Box<Answer>, TaskError> {
    match provider == tasks.runtime.id() {
        true => run_here(tasks, call, Origin::Here(tasks.runtime.home().clone())).await,
        false => run_there(tasks, provider, call).await,
    }
}

async fn run_here(tasks: &Inner, call: Call, origin: Origin) -> Result<Box<Answer>, TaskError> {
    let context = CallContext {
        task: call.attempt.task,
        attempt: call.attempt.number,
        idempotency_key: Some(call.key),
        ..tasks.runtime.context(call.within)
    };
    let effects = Effects::new(origin);
    let plugin = tasks.plugins.find(&call.name)?.current();
    let (response, _) = plugin
        .call_over(call.request, context, Some(effects.clone()))
        .await?;
    let batch = effects.batch(tasks.runtime.id());
    Ok(Box::new(Answer { response, batch }))
}

async fn run_there(tasks: &Inner, provider: NodeId, call: Call) -> Result<Box<Answer>, TaskError> {
    let (mesh, known) = (mesh_of(tasks)?, tasks.providers.lock().get(&provider).cloned());
    let known = known.ok_or_else(|| TaskError::unavailable("the node is not known any more"))?;
    let gone = || {
        TaskError::unavailable(format!(
            "node {} runs `{}` no longer",
            provider.short(),
            call.name
        ))
    };
    let name = known.offer.runs(&call.name).ok_or_else(gone)?.name.clone();
    let head = CallHead {
        ask: Ask::Attempt {
            run: call.attempt.run,
            epoch: call.epoch.0,
        },
        name,
        task: call.attempt.task,
        attempt: call.attempt.number,
        idempotency_key: Some(call.key),
        within_ms: call.within.map(|within| within.as_millis() as u64),
        chain: Vec::new(),
        content_type: call.request.content_type,
        metadata: call.request.metadata,
    };
    let (response, _) = mesh.call(known.id, head, call.request.body).await?;
    let mut answer: Answer = read("answer", &response.body)?;
    if let Some(batch) = &mut answer.batch {
        // It writes to the buckets of this node and no others, whatever it says.
        batch.home = tasks.runtime.id();
        let member = mesh.standing().member(&known.id);
        may_write(member.as_deref(), batch)?;
    }
    Ok(Box::new(answer))
}

/// Whether the member that ran an attempt may write what the attempt would.
fn may_write(member: Option<&Member>, batch: &Batch) -> Result<(), TaskError> {
    for operation in &batch.operations {
        let (Operation::Set { bucket, .. } | Operation::Delete { bucket, .. }) = operation;
        let right = bucket.parse().map(Right::BucketWrite);
        let allowed = |right| member.is_some_and(|member| member.rights.allows(&right));
        if !right.is_ok_and(allowed) {
            return Err(TaskError::denied(format!(
                "the node that ran the task has no right `bucket-write:{bucket}`"
            ))
            .with_hint("`karman mesh invite --right …` gives it with the next membership"));
        }
    }
    Ok(())
}

/// Runs an attempt of another node's task.
pub(super) async fn serve(
    tasks: &Inner,
    owner: PeerId,
    head: CallHead,
    request: TaskRequest,
) -> Result<TaskResponse, TaskError> {
    let Ask::Attempt { run, epoch } = head.ask else {
        return Err(TaskError::internal("no attempt"));
    };
    let call = Call {
        attempt: AttemptId {
            task: head.task,
            run,
            number: head.attempt,
        },
        epoch: Epoch(epoch),
        name: head.name.as_str().into(),
        request,
        key: head
            .idempotency_key
            .clone()
            .unwrap_or_else(|| head.task.to_string().into()),
        within: head.within(),
    };
    let attempt = call.attempt;
    if tasks.provider.lock().begin(&call)? == Begin::Running {
        return Err(TaskError::unavailable("this attempt runs here already"));
    }
    let _running = Running(tasks, attempt);
    let mesh = mesh_of(tasks)?.clone();
    let answer = run_here(
        tasks,
        call,
        Origin::There {
            mesh,
            owner,
            head: Box::new(head),
        },
    )
    .await?;
    Ok(TaskResponse {
        body: write(&*answer)?,
        ..TaskResponse::default()
    })
}

/// An attempt of another node, until it has ended or was dropped.
struct Running<'a>(&'a Inner, AttemptId);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.provider.lock().finish(self.1);
    }
}

/// Brings a batch to the buckets of this node; nothing when nobody knows whether it was applied.
pub(super) async fn commit(tasks: &Inner, commit: Commit) -> Option<Result<Verdict, CommitError>> {
    let home = tasks.runtime.home().clone();
    let (wall, retention) = (tasks.wall(), tasks.key_retention);
    let applied = blocking(move || {
        let store = home.store()?;
        match store.tasks().commit(&commit, wall, retention) {
            Ok(verdict) => Ok(verdict),
            // Tried again until there is room or the time of the task is over.
            Err(StoreError::Full { bucket, quota, .. }) => {
                tracing::warn!(
                    bucket,
                    quota,
                    "a bucket is full: what a task wrote waits for room"
                );
                let name = format!("quotas.{bucket}");
                Ok(Err(CommitError::Limit(LimitReached { name, most: quota })))
            }
            Err(StoreError::Limit { field, most, .. }) => Ok(Err(CommitError::Limit(LimitReached {
                name: field.into(),
                most,
            }))),
            Err(error) => Err(store_error(error)),
        }
    });
    applied
        .await
        .inspect_err(|error| tracing::error!(%error, "a batch is not applied"))
        .ok()
}

/// Hands a task over. Whether the heir has taken it; nothing when nobody knows.
pub(super) async fn hand_over(tasks: &Inner, to: NodeId, handover: Handover) -> Option<bool> {
    let handed = async {
        let mesh = mesh_of(tasks)?;
        let unreachable = || TaskError::unavailable(format!("node {} is not in reach", to.short()));
        let heir = mesh.node(to).await.ok_or_else(unreachable)?;
        let head = CallHead {
            ask: Ask::TakeOver,
            name: handover.record.name.to_string(),
            task: handover.record.task,
            attempt: 1,
            idempotency_key: None,
            within_ms: None,
            chain: Vec::new(),
            content_type: String::new(),
            metadata: Vec::new(),
        };
        let (answer, _) = mesh.call(heir, head, write(&handover)?).await?;
        read::<bool>("answer", &answer.body)
    };
    handed
        .await
        .inspect_err(|error| tracing::warn!(to = %to.short(), %error, "a task is not handed over"))
        .ok()
}

/// Takes over a task from a node that is being drained: whether this node has it now. The right of that node was checked for the
/// name in the head of its call, so the task has to be that one.
pub(super) async fn take_over(tasks: &Tasks, name: &str, body: &[u8]) -> Result<TaskResponse, TaskError> {
    let handover: Handover = read("task", body)?;
    if *handover.record.name != *name {
        return Err(TaskError::invalid(format!(
            "the task is `{}`, the call says `{name}`",
            handover.record.name
        ))
        .with_field("name"));
    }
    let taken = tasks.receive(handover).await;
    if let Err(error) = &taken {
        tracing::warn!(%error, "a task is not taken over");
    }
    Ok(TaskResponse {
        body: write(&taken.is_ok())?,
        ..TaskResponse::default()
    })
}

/// The value of a key and its version, for a node that runs an attempt of a task of this one.
pub(super) async fn read_bucket(tasks: &Inner, bucket: &str, key: &[u8]) -> Result<TaskResponse, TaskError> {
    let key =
        std::str::from_utf8(key).map_err(|_| TaskError::invalid("the key is no text").with_field("key"))?;
    let origin = Origin::Here(tasks.runtime.home().clone());
    let (version, value) = origin.read(bucket.into(), key.into()).await?;
    Ok(TaskResponse {
        content_type: String::new(),
        metadata: vec![("version".into(), version.to_string())],
        body: value.unwrap_or_default(),
    })
}

fn mesh_of(tasks: &Inner) -> Result<&Mesh, TaskError> {
    let alone = || TaskError::unavailable("this node belongs to no mesh");
    tasks.mesh.get().ok_or_else(alone)
}

fn write(value: &impl Serialize) -> Result<Bytes, TaskError> {
    let bytes = cbor4ii::serde::to_vec(Vec::new(), value);
    let bytes = bytes.map_err(|error| TaskError::internal(error.to_string()))?;
    Ok(bytes.into())
}

fn read<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, TaskError> {
    cbor4ii::serde::from_slice(bytes)
        .map_err(|error| TaskError::invalid(format!("{what}: {error}")).with_field(what))
}
