//! What is known of accepted tasks: by this node of its own, by the keepers of every kept one.

use super::flow;
use super::status::{TaskState, TaskStatus};
use super::tasks::{Inner, Tasks};
use karman_tasks::{Event, Kept, Machine, Outcome, Saved, Status, TaskRecord};
use karman_types::{ErrorKind, TaskError, TaskId};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long one question to the keepers waits for the end of a task.
const ONE_WAIT: Duration = Duration::from_secs(5);
/// The pause before keepers that do not answer are asked again.
const PAUSE: Duration = Duration::from_millis(200);

impl Tasks {
    /// Every task that this node holds, the oldest first.
    pub(crate) fn list(&self) -> Vec<TaskStatus> {
        let machine = self.inner().machine.lock();
        let tasks = machine.tasks();
        tasks
            .filter_map(|record| self.inner().told(&machine, record))
            .collect()
    }

    /// How far a task is.
    ///
    /// # Errors
    /// `unavailable` when this node does not know it, and no keeper either.
    pub(crate) async fn status(&self, task: TaskId) -> Result<TaskStatus, TaskError> {
        match self.inner().known(task) {
            Some(status) => Ok(status),
            None => {
                let kept = self.kept(task, Duration::ZERO).await?;
                Ok(TaskStatus::of_kept(&kept.ok_or_else(|| unknown(task))?))
            }
        }
    }

    /// How a task ended, if it ends within this time; nothing when it has not.
    ///
    /// # Errors
    /// `unavailable` when neither this node nor a keeper knows it, or its result is kept no longer.
    pub(crate) async fn outcome(&self, task: TaskId, wait: Duration) -> Result<Option<Outcome>, TaskError> {
        let until = Instant::now() + wait;
        let waiting = self.inner().ended.of(task);
        loop {
            let mut ended = std::pin::pin!(waiting.end().notified());
            ended.as_mut().enable();
            match self.inner().machine.lock().status(task) {
                None => break,
                Some(Status::Ended(outcome)) => return Ok(Some(outcome.clone())),
                Some(Status::Forgotten) => return Err(forgotten(task)),
                Some(Status::Moved(to)) => {
                    let says = format!("task {task} was handed over to node {}", to.short());
                    let error = TaskError::unavailable(says).with_field("task");
                    return Err(error.with_hint("ask that node"));
                }
                Some(_) => {}
            }
            if timeout_at(until, ended).await.is_err() {
                return Ok(None);
            }
        }
        self.kept_outcome(task, until).await
    }

    /// The same of a task that this node does not hold. While there is time, keepers that do not answer are asked again.
    async fn kept_outcome(&self, task: TaskId, until: Instant) -> Result<Option<Outcome>, TaskError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let found = match self.kept(task, left.min(ONE_WAIT)).await {
                Ok(found) => found.ok_or_else(|| unknown(task))?,
                // To ask again at once what does not pass would be to ask all the time.
                Err(error) if error.kind == ErrorKind::Unavailable && !left.is_zero() => {
                    tokio::time::sleep(PAUSE.min(left)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match found.record.state {
                Saved::Ended { outcome, .. } => return Ok(Some(outcome)),
                Saved::Forgotten { .. } => return Err(forgotten(task)),
                _ if left.is_zero() => return Ok(None),
                _ => {}
            }
        }
    }

    /// Withdraws a task that has not ended; forgets the result of one that has.
    ///
    /// # Errors
    /// `unavailable` when neither this node nor a keeper knows it, or its owner is not in reach.
    pub(crate) async fn remove(&self, task: TaskId) -> Result<TaskStatus, TaskError> {
        if let Some(before) = self.inner().known(task) {
            self.inner().remove(&before)?;
            return self.status(task).await;
        }
        let kept = self.kept(task, Duration::ZERO).await?;
        let owner = kept.ok_or_else(|| unknown(task))?.owner;
        self.keepers().remove_at(owner, task).await
    }

    /// Withdraws a task that has not ended. What came of one that has stays.
    ///
    /// # Errors
    /// `invalid` when it has ended; those of [`Tasks::remove`].
    pub(crate) async fn withdraw(&self, task: TaskId) -> Result<TaskStatus, TaskError> {
        let before = self.status(task).await?;
        check_open(task, before.state)?;
        match self.inner().known(task) {
            // The machine lets one be that has ended meanwhile.
            Some(_) => self.inner().remove(&before)?,
            None => {
                let kept = self.kept(task, Duration::ZERO).await?;
                let owner = kept.ok_or_else(|| unknown(task))?.owner;
                self.keepers().withdraw_at(owner, task).await?;
            }
        }
        let after = self.status(task).await?;
        match after.state {
            TaskState::Cancelled => Ok(after),
            state => check_open(task, state).map(|()| after),
        }
    }

    /// The task, as the keepers know it, if the mesh has any.
    async fn kept(&self, task: TaskId, wait: Duration) -> Result<Option<Kept>, TaskError> {
        match self.keepers().known() {
            true => self.keepers().find(task, wait).await,
            false => Ok(None),
        }
    }
}

impl Inner {
    /// How far a task is that this node holds.
    pub(super) fn known(&self, task: TaskId) -> Option<TaskStatus> {
        let machine = self.machine.lock();
        self.told(&machine, machine.record(task)?)
    }

    fn told(&self, machine: &Machine, record: &TaskRecord) -> Option<TaskStatus> {
        let mut status = TaskStatus::of(record, machine.status(record.task)?);
        if status.state == TaskState::Waiting {
            status.why = self.whys.lock().get(&record.task).cloned();
        }
        Some(status)
    }

    /// Withdraws a task of this node that has not ended; forgets the result of one that has.
    ///
    /// # Errors
    /// Those of [`Inner::withdraw_flow`].
    pub(super) fn remove(self: &Arc<Self>, before: &TaskStatus) -> Result<(), TaskError> {
        let task = before.task;
        match before.state {
            TaskState::Done | TaskState::Failed | TaskState::Expired | TaskState::Cancelled => {
                self.feed(Event::Fetched { task });
            }
            TaskState::Forgotten => {}
            _ if flow::is_one(&before.name) => self.withdraw_flow(task, before.guarantee)?,
            _ => self.feed(Event::Cancel { asked: task }),
        }
        Ok(())
    }
}

fn check_open(task: TaskId, state: TaskState) -> Result<(), TaskError> {
    if state.is_open() {
        return Ok(());
    }
    let state = format!("{state:?}").to_lowercase();
    Err(TaskError::invalid(format!("task {task} has ended: {state}"))
        .with_field("task")
        .with_hint("`karman task result` prints what came of it; with `--forget` the node forgets it"))
}

fn forgotten(task: TaskId) -> TaskError {
    TaskError::unavailable(format!("task {task} has ended, and its result is kept no longer"))
        .with_field("task")
        .with_hint("run it again; see `result-retention` and `results-bytes` under [tasks] in node.toml")
}

fn unknown(task: TaskId) -> TaskError {
    TaskError::unavailable(format!("this node does not know task {task}"))
        .with_field("task")
        .with_hint("`karman task list` shows what it holds; other nodes hold others")
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::ErrorKind;

    #[test]
    fn what_has_ended_is_not_withdrawn() {
        let task = TaskId::from_parts(1, 2);
        for open in [
            TaskState::Saving,
            TaskState::Waiting,
            TaskState::Running,
            TaskState::Ending,
        ] {
            check_open(task, open).unwrap();
        }
        for (state, says) in [
            (TaskState::Done, "has ended: done"),
            (TaskState::Cancelled, "has ended: cancelled"),
            (TaskState::Forgotten, "has ended: forgotten"),
            (TaskState::Moved, "has ended: moved"),
        ] {
            let error = check_open(task, state).unwrap_err();
            assert!(
                error.kind == ErrorKind::Invalid && error.message.contains(says),
                "{error}"
            );
        }
    }
}
