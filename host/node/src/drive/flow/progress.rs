use crate::drive::cbor::{read, write};
use crate::drive::tasks::Inner;
use bytes::Bytes;
use karman_sched::flow::{Outcome, Phase, Record};
use karman_store::Store;
use karman_tasks::{Call, Entry, KeptError, SaveError};
use karman_types::{ErrorKind, TaskError, Workflow, format_bytes};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The limit of the keepers on one run, or one task, as the configuration names it.
pub(super) const ENTRY: &str = "keepers.entry";
/// The limit of a node on how far all its local runs have got, as the configuration names it.
pub(super) const PROGRESS: &str = "store.progress-bytes";
/// The pause before the keepers are asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// How far a run of a workflow is, as it is written down.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Progress {
    pub(super) workflow: Arc<Workflow>,
    pub(super) record: Record,
    /// When the run began, in milliseconds since 1970, where the clock could be believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) begun: Option<u64>,
}

impl Progress {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, TaskError> {
        read("progress", bytes).map_err(|error| TaskError::internal(error.message))
    }

    fn write(&self) -> Result<Bytes, TaskError> {
        write(self)
    }

    /// Whether the run has failed, and all that is left of it is to undo what it did.
    const fn has_failed(&self) -> bool {
        !matches!(self.record.phase, Phase::Running | Phase::Ended(Outcome::Done(_)))
    }

    /// Bytes of the answer of the run, once it has one. The keepers take that besides.
    fn answer(&self) -> usize {
        match self.record.outcome() {
            Some(Outcome::Done(output)) => output.to_string().len(),
            _ => 0,
        }
    }
}

/// What a run fails with of which more is known than the keepers take.
pub(super) fn too_long(most: u64) -> TaskError {
    let most = format_bytes(most);
    let says = format!("more is to be kept of the run than the limit `{ENTRY}` ({most}) allows");
    TaskError::limit(says).with_field(ENTRY).with_hint(
        "put large outputs into a bucket and hand on their names, or raise `entry` of `[keepers]` in node.toml on all nodes",
    )
}

/// What a run fails with for whose progress this node has no room.
fn no_room(most: u64) -> TaskError {
    let most = format_bytes(most);
    let says = format!(
        "how far the run has got has no room beside other runs within the limit `{PROGRESS}` ({most})"
    );
    TaskError::limit(says).with_field(PROGRESS).with_hint(
        "run fewer at once, put large outputs into a bucket and hand on their names, or raise `progress-bytes` of `[store]` in node.toml",
    )
}

/// Where the progress of a run is written: on this disk, or by the keepers where the run is kept.
#[derive(Clone)]
pub(super) struct Ledger {
    tasks: Arc<Inner>,
    call: Arc<Call>,
}

impl Ledger {
    pub(super) fn of(tasks: &Arc<Inner>, call: &Call) -> Self {
        Self {
            tasks: tasks.clone(),
            call: Arc::new(call.clone()),
        }
    }

    /// Whether the run is kept. Only a kept task has a home.
    pub(super) fn is_kept(&self) -> bool {
        self.call.home.is_some()
    }

    /// Where the run was left, if it was begun. While no majority of the keepers answers, they are asked again.
    ///
    /// # Errors
    /// What the disk refused; what does not read.
    pub(super) async fn read(&self) -> Result<Option<Progress>, TaskError> {
        let run = self.call.attempt.task;
        let bytes = match self.is_kept() {
            true => loop {
                match self.tasks.keepers.progress(run).await {
                    Err(error) if error.kind == ErrorKind::Unavailable => sleep(AGAIN).await,
                    progress => break progress?,
                }
            },
            false => {
                self.tasks
                    .runtime
                    .home()
                    .with(move |store| store.tasks().progress(run))
                    .await?
            }
        };
        bytes.map(|bytes| Progress::read(&bytes)).transpose()
    }

    /// Writes it down: whether it is durable now.
    ///
    /// # Errors
    /// `limit` when it, or the answer in it, is longer than the keepers take, or has no room on this disk: the run is to fail.
    pub(super) async fn write(&self, progress: &Progress) -> Result<bool, TaskError> {
        let bytes = progress.write()?;
        let run = self.call.attempt.task;
        if !self.is_kept() {
            let fails = progress.has_failed();
            let write = move |store: &Store| store.tasks().set_progress(run, &bytes, fails);
            return match self.tasks.runtime.home().with(write).await {
                Ok(Ok(())) => Ok(true),
                Ok(Err(reached)) => Err(no_room(reached.most)),
                Err(error) => {
                    tracing::warn!(%run, %error, "a workflow's progress is not written down");
                    Ok(false)
                }
            };
        }
        // What is much longer would not reach a keeper that could refuse it.
        let most = self.tasks.runtime.config().keepers.entry.0;
        if bytes.len().max(progress.answer()) as u64 > most {
            return Err(too_long(most));
        }
        let entry = Entry::Progress {
            task: run,
            epoch: self.call.epoch,
            progress: bytes,
        };
        match self.tasks.keepers.propose(entry).await {
            Ok(()) => Ok(true),
            Err(SaveError::Refused(KeptError::Limit(reached))) if reached.name == ENTRY => {
                Err(too_long(reached.most))
            }
            Err(error) => {
                tracing::warn!(%run, %error, "a workflow's progress is not kept");
                Ok(false)
            }
        }
    }
}
