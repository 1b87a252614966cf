//! Asking the keepers, from any node: one after the other until one answers, which passes on to the leader what only that can
//! answer.

use super::Inner;
use super::group::Key;
use super::wire::{Answer, Message, Question, Removed, send};
use bytes::Bytes;
use karman_mesh::membership::Charter;
use karman_tasks::{Entry, Kept, KeptError, SaveError, TaskRecord};
use karman_types::{ErrorKind, NodeId, TaskError, TaskId};
use std::time::Duration;
use tokio::time::Instant;

/// The pause before all of them are asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// The field of an error of a message that is longer than who gets it reads.
const BODY: &str = "body";

impl Inner {
    /// Writes an entry to the keepers' log.
    ///
    /// # Errors
    /// When no majority has answered in time, and nobody knows whether it was written; when it was, and has no effect.
    pub(in crate::drive) async fn propose(&self, entry: Entry) -> Result<(), SaveError> {
        let too_long = |reached| SaveError::Refused(KeptError::Limit(reached));
        // A message that no keeper reads is never answered: the task would end again and again.
        self.limits.fits(&entry).map_err(too_long)?;
        match self.ask(Question::Propose(Box::new(entry)), Duration::ZERO).await {
            Ok(Answer::Written(written)) => Ok(written.map(drop)?),
            Ok(_) => Err(SaveError::NoMajority),
            // Those of the keepers are stricter, or what stands beside the body is too much.
            Err(error) if error.kind == ErrorKind::Limit && error.field.as_deref() == Some(BODY) => {
                Err(too_long(self.limits.too_long()))
            }
            Err(error) => {
                tracing::debug!(%error, "the keepers");
                Err(SaveError::NoMajority)
            }
        }
    }

    /// A kept task as the keepers know it now, without its input; waits this long for its end.
    ///
    /// # Errors
    /// `unavailable` when the mesh has no keepers, or no majority of them answers.
    pub(in crate::drive) async fn find(
        &self,
        task: TaskId,
        wait: Duration,
    ) -> Result<Option<Kept>, TaskError> {
        let millis = wait.as_millis() as u64;
        match self.ask(Question::Find(task, millis), wait).await? {
            Answer::Found(found) => Ok(found.map(|kept| *kept)),
            _ => Err(other()),
        }
    }

    /// How far a kept task has got.
    ///
    /// # Errors
    /// `unavailable` when no majority of the keepers answers.
    pub(in crate::drive) async fn progress(&self, task: TaskId) -> Result<Option<Bytes>, TaskError> {
        match self.ask(Question::Progress(task), Duration::ZERO).await? {
            Answer::Progress(progress) => Ok(progress),
            _ => Err(other()),
        }
    }

    /// Tells the keepers that this node is there, and is told how many tasks it owns.
    pub(super) async fn alive(&self) -> Result<u64, TaskError> {
        match self.ask(Question::Alive, Duration::ZERO).await? {
            Answer::Owns(tasks) => Ok(tasks),
            _ => Err(other()),
        }
    }

    /// The tasks that this node owns.
    pub(super) async fn owned(&self) -> Result<Vec<TaskRecord>, TaskError> {
        let mut owned: Vec<TaskRecord> = Vec::new();
        loop {
            let after = owned.last().map(|record| record.task);
            match self.ask(Question::Owned(after), Duration::ZERO).await? {
                Answer::Records(more) if more.is_empty() => return Ok(owned),
                Answer::Records(more) => owned.extend(more),
                _ => return Err(other()),
            }
        }
    }

    /// Lets the owner of a task withdraw it, or forget its result.
    ///
    /// # Errors
    /// What the owner answers; `unavailable` when it is not in reach.
    pub(in crate::drive) async fn remove_at(
        &self,
        owner: NodeId,
        task: TaskId,
    ) -> Result<Removed, TaskError> {
        self.tell_owner(owner, task, Message::Remove).await
    }

    /// Lets the owner of a task withdraw it. What came of one that has ended meanwhile stays, to be [found](Inner::find).
    ///
    /// # Errors
    /// Those of [`Inner::remove_at`].
    pub(in crate::drive) async fn withdraw_at(&self, owner: NodeId, task: TaskId) -> Result<(), TaskError> {
        self.tell_owner(owner, task, Message::Withdraw).await.map(drop)
    }

    async fn tell_owner(
        &self,
        owner: NodeId,
        task: TaskId,
        message: fn(TaskId) -> Message,
    ) -> Result<Removed, TaskError> {
        let mesh = self.mesh()?;
        let away = || {
            TaskError::unavailable(format!(
                "node {}, which owns the task, is not in reach",
                owner.short()
            ))
            .with_hint("when it is lost, a keeper takes the task over: try again in a while")
        };
        let peer = mesh.node(owner).await.ok_or_else(away)?;
        send(mesh, peer, &message(task)).await
    }

    /// Asks until there is an answer or the patience is over; an answer may take `longer` than usual.
    async fn ask(&self, question: Question, longer: Duration) -> Result<Answer, TaskError> {
        let charter = self.charter().ok_or_else(no_keepers)?;
        let until = Instant::now() + self.limits.patience;
        let mut last = no_majority();
        loop {
            for keeper in self.in_turn(&charter) {
                let turn = self.limits.turn() + longer;
                let asked = self.ask_one(keeper, question.clone());
                match tokio::time::timeout(turn, asked).await {
                    Ok(Ok(answer)) => {
                        *self.answered.lock() = Some(keeper);
                        return Ok(answer);
                    }
                    Ok(Err(error)) if !passing(error.kind) => return Err(error),
                    Ok(Err(error)) => {
                        tracing::debug!(%keeper, %error, "a keeper does not answer");
                        last = no_majority();
                    }
                    Err(_) => tracing::debug!(%keeper, "a keeper does not answer in time"),
                }
                if Instant::now() >= until {
                    return Err(last);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// All keepers, the one that answered last before the others.
    fn in_turn(&self, charter: &Charter) -> Vec<Key> {
        let answered = *self.answered.lock();
        let mut keepers: Vec<Key> = charter.keepers().iter().copied().map(Key).collect();
        // Those who ask for the first time do not all go to the same one.
        fastrand::shuffle(&mut keepers);
        keepers.sort_by_key(|keeper| Some(*keeper) != answered);
        keepers
    }

    pub(super) async fn ask_one(&self, keeper: Key, question: Question) -> Result<Answer, TaskError> {
        if keeper == self.me {
            return self.question(self.me.node(), question, false).await;
        }
        let peer = keeper.peer().ok_or_else(no_majority)?;
        send(self.mesh()?, peer, &Message::Question(None, question)).await
    }
}

/// Whether another keeper, or this one later, may give a better answer.
const fn passing(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable | ErrorKind::Deadline | ErrorKind::Internal | ErrorKind::Cancelled
    )
}

pub(super) fn no_keepers() -> TaskError {
    TaskError::unavailable("this node knows of no keepers")
        .with_hint("`karman mesh keepers NODE NODE NODE`, where the mesh was made, names them")
}

pub(super) fn no_majority() -> TaskError {
    TaskError::unavailable("no majority of the keepers answers")
        .with_hint("`karman mesh keepers` shows who is there; try again when the link is back")
}

fn other() -> TaskError {
    TaskError::internal("a keeper answered another question")
}
