//! What keepers ask each other, and other nodes ask them.

use super::group::{Group, Key, SnapshotMeta, Vote};
use crate::drive::cbor::{read, write};
use crate::drive::status::TaskStatus;
use bytes::Bytes;
use karman_mesh::{Ask, CallHead, Mesh, PeerId};
use karman_tasks::{Effect, Entry, Kept, KeptError, TaskRecord};
use karman_types::{NodeId, TaskError, TaskId, TaskResponse};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What is in the body of a call to a keeper.
#[derive(Deserialize, Serialize)]
pub(super) enum Message {
    /// Who are the keepers? The asker knows of this charter, if of any. Answered by any node, with a `Option<Bytes>`: a later one.
    Charter(Option<Bytes>),
    /// The log goes on like this. Among keepers; answered with [`AppendEntriesResponse`].
    Append(AppendEntriesRequest<Group>),
    /// May I lead? Among keepers; answered with [`VoteResponse`].
    Vote(VoteRequest<Key>),
    /// This is all that is kept. Among keepers; answered with [`SnapshotResponse`].
    Snapshot(Vote, SnapshotMeta, Bytes),
    /// A member wants something; answered with [`Answer`]. Another keeper has passed it on where it names the member.
    Question(Option<NodeId>, Question),
    /// Withdraw this task, or forget its result: to its owner. Answered with [`TaskStatus`].
    Remove(TaskId),
    /// Withdraw this task unless it has ended, whose result stays then: to its owner. Answered with [`TaskStatus`].
    Withdraw(TaskId),
}

/// What a member may want of the keepers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum Question {
    /// Write this down. [`Answer::Written`]
    Propose(Box<Entry>),
    /// The asker is alive: how many tasks does it own? [`Answer::Owns`]
    Alive,
    /// The tasks that the asker owns, from after this one on, as many as fit. [`Answer::Records`]
    Owned(Option<TaskId>),
    /// How far is this task? The answer may wait this many milliseconds for its end. [`Answer::Found`]
    Find(TaskId, u64),
    /// How far has this task got, in the words of who runs it? [`Answer::Progress`]
    Progress(TaskId),
    /// How is this keeper? Each answers for itself. [`Answer::Report`]
    Report,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Answer {
    Written(Result<Effect, KeptError>),
    Owns(u64),
    Records(Vec<TaskRecord>),
    /// Without its input.
    Found(Option<Box<Kept>>),
    Progress(Option<Bytes>),
    Report(Report),
}

/// How a keeper is.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Report {
    pub(super) leader: Option<Key>,
    /// Indices in the log: of its end, and of what is applied.
    pub(super) log: u64,
    pub(super) applied: u64,
    pub(super) tasks: u64,
    /// Who decides, as far as this keeper knows; nothing while that is being changed.
    pub(super) members: Option<Vec<Key>>,
}

pub(super) type Appended = AppendEntriesResponse<Key>;
pub(super) type Voted = VoteResponse<Key>;
pub(super) type Installed = SnapshotResponse<Key>;
pub(super) type Removed = TaskStatus;

/// Sends a message and reads its answer.
///
/// # Errors
/// What the other node answers; `unavailable` when it cannot be reached.
pub(super) async fn send<T: DeserializeOwned>(
    mesh: &Mesh,
    to: PeerId,
    message: &Message,
) -> Result<T, TaskError> {
    let head = CallHead::new(
        Ask::Keep {
            snapshot: matches!(message, Message::Snapshot(..)),
        },
        "keepers",
        TaskId::from_parts(0, 0),
    );
    let (answer, _) = mesh.call(to, head, write(message)?).await?;
    read("answer", &answer.body)
}

/// An answer as it travels.
pub(super) fn answer(value: &impl Serialize) -> Result<TaskResponse, TaskError> {
    Ok(TaskResponse::from(write(value)?))
}
