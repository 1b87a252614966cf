//! Attempts at accepted tasks: running one here or there, and bringing its effects to their buckets.

mod handover;

pub(super) use handover::{hand_over, take_over};

use super::cbor::{read, write};
use super::own_task::OwnTask;
use super::tasks::Inner;
use super::{away, flow};
use crate::services::{Effects, Origin, blocking, is_of_disk};
use karman_engine::Plugin;
use karman_mesh::membership::{Member, Right};
use karman_mesh::{Ask, CallHead, Mesh};
use karman_store::{DISK, StoreError};
use karman_tasks::{
    Answer, AttemptId, Batch, Begin, BeginError, Call, Commit, CommitError, Epoch, Event, LimitReached,
    Operation, Verdict,
};
use karman_types::{CallContext, ErrorKind, NodeId, TaskError, TaskRequest, TaskResponse};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The field of an error that says that the home of the buckets is away.
pub(super) const HOME: &str = "home";
/// The limit on how many buckets there are, as the store names it.
const BUCKETS: &str = "buckets";

/// Why an attempt of this node has no answer.
pub(super) enum Failure {
    /// It counts.
    Failed(TaskError),
    /// It ended for want of something that is neither the task's fault nor its provider's.
    Excused(TaskError),
    /// Its provider had no place for it.
    Crowded(TaskError),
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        match Plugin::was_full(&error) {
            true => Self::Crowded(error),
            false => Self::Failed(error),
        }
    }
}

/// Runs an attempt of this node's task, here or at another node, and tells what came of it.
pub(super) async fn run(tasks: &Arc<Inner>, provider: NodeId, call: Call) -> Event {
    let (attempt, elsewhere) = (call.attempt, call.home.is_some());
    let is_own = provider == tasks.runtime.id();
    let of_home = |error: TaskError| {
        let of_own_disk = is_own && is_of_disk(&error);
        match of_own_disk || elsewhere && error.field.as_deref() == Some(HOME) {
            true => Failure::Excused(error),
            false => error.into(),
        }
    };
    // A run that fails never does so for want of somebody: it is only this node that goes on with it no more.
    let of_run = |error: TaskError| match error.kind {
        ErrorKind::Unavailable => Failure::Excused(error),
        _ => Failure::Failed(error),
    };
    let answer = match is_own {
        _ if flow::is_one(&call.name) => flow::coordinate(tasks, call).await.map_err(of_run),
        true => run_own(tasks, call).await.map_err(of_home),
        false if tasks.away.goes_by_bundle(attempt.task, provider) => away::run(tasks, provider, call).await,
        false => run_there(tasks, provider, call).await.map_err(of_home),
    };
    let answer = match answer {
        Ok(answer) => {
            if let Some(step) = flow::step_of(tasks, attempt.task) {
                step.ran(tasks, provider);
            }
            Ok(answer)
        }
        Err(Failure::Failed(error)) => {
            tasks.note_why(attempt.task, error.message.as_str());
            Err(error)
        }
        Err(Failure::Excused(why)) => {
            tasks.note_why(attempt.task, why.message.as_str());
            tracing::info!(task = %attempt.task, %why, "an attempt does not count");
            return Event::Excused { attempt };
        }
        Err(Failure::Crowded(why)) => {
            tasks.note_why(attempt.task, why.message.as_str());
            tracing::info!(task = %attempt.task, %why, "an attempt finds no place");
            return Event::Crowded { attempt };
        }
    };
    Event::Answered { attempt, answer }
}

async fn run_own(tasks: &Inner, call: Call) -> Result<Box<Answer>, TaskError> {
    let head = head_of(&call, call.name.to_string());
    let origin = origin(tasks, call.home, head).await?;
    let (name, began) = (call.name.clone(), Instant::now());
    let answered = run_here(tasks, call, Effects::new(origin, None)).await;
    let of = (&*name, tasks.runtime.id());
    tasks.routes.ran_here(of, &answered, began.elapsed());
    answered
}

/// The buckets of this home, for an attempt that came with this head; this node's own where it is none or this one.
pub(super) async fn origin(tasks: &Inner, home: Option<NodeId>, head: CallHead) -> Result<Origin, TaskError> {
    Ok(match home.filter(|home| *home != tasks.runtime.id()) {
        None => Origin::Here(tasks.runtime.home().clone()),
        Some(home) => {
            let mesh = mesh_of(tasks)?.clone();
            let (home, head) = (mesh.node(home).await, Box::new(head));
            Origin::There { mesh, home, head }
        }
    })
}

pub(super) async fn run_here(
    tasks: &Inner,
    call: Call,
    effects: Arc<Effects>,
) -> Result<Box<Answer>, TaskError> {
    let context = CallContext {
        task: call.attempt.task,
        attempt: call.attempt.number,
        idempotency_key: Some(call.key),
        ..tasks.runtime.context(call.within)
    };
    let own = OwnTask::find(&tasks.plugins, &call.name)?;
    let answered = own
        .run(&tasks.runtime, call.request, context, Some(effects.clone()))
        .await;
    if let Some(error) = effects.away() {
        let is_here = call.home.is_none_or(|home| home == tasks.runtime.id());
        let field = if is_here && is_of_disk(&error) { DISK } else { HOME };
        return Err(error.with_field(field));
    }
    let (response, _) = answered?;
    let batch = effects.batch(call.home.unwrap_or_else(|| tasks.runtime.id()));
    Ok(Box::new(Answer { response, batch }))
}

async fn run_there(tasks: &Inner, provider: NodeId, call: Call) -> Result<Box<Answer>, TaskError> {
    let (mesh, known) = (mesh_of(tasks)?, tasks.providers.get(provider));
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
        content_type: call.request.content_type.clone(),
        metadata: call.request.metadata.clone(),
        ..head_of(&call, name)
    };
    tasks.routes.called(&call.name);
    let under_way = tasks.routes.under_way(mesh, &call.name, &known);
    let answered = mesh.call(known.id, head, call.request.body).await;
    under_way.ended(&answered);
    let (response, _) = answered?;
    let mut answer: Answer = read("answer", &response.body)?;
    if let Some(batch) = &mut answer.batch {
        // It writes to the buckets of the task's home and no others, whatever it says.
        batch.home = call.home.unwrap_or_else(|| tasks.runtime.id());
        let member = mesh.standing().member(&known.id);
        may_write(member.as_deref(), batch)?;
    }
    Ok(Box::new(answer))
}

/// The head that an attempt goes out with.
pub(super) fn head_of(call: &Call, name: String) -> CallHead {
    CallHead {
        ask: Ask::Attempt {
            run: call.attempt.run,
            epoch: call.epoch.0,
            home: call.home,
        },
        name,
        task: call.attempt.task,
        attempt: call.attempt.number,
        idempotency_key: Some(call.key.clone()),
        within_ms: call.within.map(|within| within.as_millis() as u64),
        chain: Vec::new(),
        content_type: String::new(),
        metadata: Vec::new(),
    }
}

/// Whether the member that ran an attempt may write what the attempt would.
pub(super) fn may_write(member: Option<&Member>, batch: &Batch) -> Result<(), TaskError> {
    let gone = || TaskError::denied("the node that ran the task is no member of the mesh any more");
    let member = member.ok_or_else(gone)?;
    batch.operations.iter().try_for_each(|operation| {
        let (Operation::Set { bucket, .. } | Operation::Delete { bucket, .. }) = operation;
        member.must(Right::BucketWrite, bucket)
    })
}

/// Runs an attempt of another node's task.
pub(super) async fn serve(
    tasks: &Inner,
    from: Arc<Member>,
    head: CallHead,
    request: TaskRequest,
) -> Result<TaskResponse, TaskError> {
    let Ask::Attempt { run, epoch, home } = head.ask else {
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
        home,
        within: head.within(),
    };
    let attempt = call.attempt;
    let begun = tasks.provider.lock().begin(&call);
    if let Err(BeginError::Stale(_)) = begun {
        mesh_of(tasks)?.standing().refused("old-epoch");
    }
    if begun? == Begin::Running {
        return Err(TaskError::unavailable("this attempt runs here already"));
    }
    let _running = Running(tasks, attempt);
    let effects = match home.filter(|home| *home != from.node) {
        Some(home) => Effects::new(origin(tasks, Some(home), head).await?, Some(from)),
        None => {
            let (mesh, home) = (mesh_of(tasks)?.clone(), karman_mesh::peer_of(&from.key));
            let head = Box::new(head);
            Effects::new(Origin::There { mesh, home, head }, None)
        }
    };
    let answer = run_here(tasks, call, effects).await?;
    Ok(TaskResponse::from(write(&*answer)?))
}

/// An attempt of another node, until it has ended or was dropped.
pub(super) struct Running<'a>(pub(super) &'a Inner, pub(super) AttemptId);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.provider.lock().finish(self.1);
    }
}

/// Brings a batch to its home; nothing when nobody knows whether it was applied.
pub(super) async fn commit(tasks: &Inner, commit: Commit) -> Option<Result<Verdict, CommitError>> {
    let task = commit.attempt.task;
    let applied = match commit.batch.home == tasks.runtime.id() {
        true => commit_here(tasks, commit).await,
        false => commit_there(tasks, commit).await,
    };
    if let Ok(Ok(Verdict::Conflict { .. })) = &applied {
        tasks.away.conflicted(task).await;
    }
    applied
        .inspect_err(|error| tracing::warn!(%error, "a batch is not applied"))
        .ok()
}

type Committed = Result<Result<Verdict, CommitError>, TaskError>;

async fn commit_there(tasks: &Inner, commit: Commit) -> Committed {
    let (mesh, home) = (mesh_of(tasks)?, commit.batch.home);
    let away = || {
        TaskError::unavailable(format!(
            "node {}, which has the buckets, is not in reach",
            home.short()
        ))
    };
    let peer = mesh.node(home).await.ok_or_else(away)?;
    let head = CallHead {
        attempt: commit.attempt.number,
        ..CallHead::new(Ask::Commit, "buckets", commit.attempt.task)
    };
    match mesh.call(peer, head, write(&commit)?).await {
        Ok((answer, _)) => read("answer", &answer.body),
        // It is longer than any home takes.
        Err(error) if error.kind == ErrorKind::Limit && error.field.as_deref() == Some("body") => {
            Ok(Err(CommitError::Unfit(error)))
        }
        Err(error) => Err(error),
    }
}

/// Applies a batch of a kept task that this node has accepted and another owns now, which the keepers are asked about.
pub(super) async fn take_batch(tasks: &Inner, from: &Member, body: &[u8]) -> Result<TaskResponse, TaskError> {
    let commit: Commit = read("batch", body)?;
    if commit.batch.home != tasks.runtime.id() {
        return Err(TaskError::invalid("the batch is for another node").with_field("batch"));
    }
    let mut buckets = commit.batch.operations.iter().map(|operation| {
        let (Operation::Set { bucket, .. } | Operation::Delete { bucket, .. }) = operation;
        bucket.clone()
    });
    let answer = match buckets.find(|bucket| !from.may(Right::BucketWrite, bucket)) {
        Some(bucket) => Err(CommitError::Denied { bucket }),
        None => {
            let kept = tasks.keepers.find(commit.attempt.task, Duration::ZERO).await?;
            match commit.of_owner(from.node, kept.as_ref()) {
                Ok(()) => commit_here(tasks, commit).await?,
                Err(refused) => Err(refused),
            }
        }
    };
    if let Err(CommitError::Stale(_)) = answer {
        mesh_of(tasks)?.standing().refused("old-epoch");
    }
    Ok(TaskResponse::from(write(&answer)?))
}

async fn commit_here(tasks: &Inner, commit: Commit) -> Committed {
    let home = tasks.runtime.home().clone();
    let (wall, retention) = (tasks.wall(), tasks.key_retention);
    let applied = blocking(move || {
        let store = home.store()?;
        match store.tasks().commit(&commit, wall, retention) {
            Ok(verdict) => {
                if let Err(CommitError::Limit(reached)) = &verdict {
                    tracing::warn!(%reached, "what a task wrote waits for room");
                }
                Ok(verdict)
            }
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
            // A bucket more, where there are as many as there may be.
            Err(StoreError::Limit { field, most, .. }) if field == BUCKETS => {
                let name = field.into();
                Ok(Err(CommitError::Limit(LimitReached { name, most })))
            }
            Err(error @ (StoreError::Limit { .. } | StoreError::Name { .. })) => {
                Ok(Err(CommitError::Unfit(TaskError::from(error))))
            }
            Err(error) => Err(TaskError::from(error)),
        }
    });
    applied.await
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

pub(super) fn mesh_of(tasks: &Inner) -> Result<&Mesh, TaskError> {
    let alone = || TaskError::unavailable("this node belongs to no mesh");
    tasks.mesh.get().ok_or_else(alone)
}
