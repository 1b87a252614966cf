//! What this node answers other nodes about kept tasks.

use super::Inner;
use super::ask::no_majority;
use super::seat::Seat;
use super::wire::{Answer, Appended, Installed, Message, Question, Voted, answer, send};
use crate::drive::cbor::read;
use karman_mesh::membership::{Member, Right};
use karman_tasks::{Entry, Kept, KeptError, LimitReached, Saved, SubmitError, TaskRecord};
use karman_types::{NodeId, TaskError, TaskId, TaskRequest, TaskResponse};
use openraft::Snapshot;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The longest that an answer waits for the end of a task.
const MOST_WAIT: Duration = Duration::from_secs(60);
/// Bytes of records that are told at once, unless a single one has more.
const TOGETHER: usize = 1 << 20;

impl Inner {
    /// Answers a message of a member.
    ///
    /// # Errors
    /// `denied` when it may not ask this, `unavailable` when this node cannot answer it now.
    pub(in crate::drive) async fn serve(
        &self,
        from: &Member,
        body: &[u8],
    ) -> Result<TaskResponse, TaskError> {
        match read("message", body)? {
            Message::Charter(theirs) => answer(&self.compare(from.node, theirs.as_deref())?),
            Message::Remove(task) => answer(&self.remove(from, task, true)?),
            Message::Withdraw(task) => answer(&self.remove(from, task, false)?),
            Message::Question(None, question) => {
                if let Some(refused) = refuse(from, &question) {
                    return answer(&Answer::Written(Err(refused)));
                }
                if let Question::Progress(task) = question {
                    let find = self.question(from.node, Question::Find(task, 0), false).await?;
                    self.may_look(from, &find)?;
                }
                let told = self.question(from.node, question, false).await?;
                self.may_look(from, &told)?;
                answer(&told)
            }
            Message::Question(Some(member), question) => {
                self.seat_among(from)?;
                answer(&self.question(member, question, true).await?)
            }
            Message::Append(entries) => {
                let seat = self.seat_among(from)?;
                let appended: Appended = seat.raft.append_entries(entries).await.map_err(down)?;
                self.judge_term(matches!(appended, Appended::HigherVote(_)));
                answer(&appended)
            }
            Message::Vote(request) => {
                let (seat, asks) = (self.seat_among(from)?, request.vote);
                let voted: Voted = seat.raft.vote(request).await.map_err(down)?;
                self.judge_term(!voted.vote_granted && voted.vote > asks);
                answer(&voted)
            }
            Message::Snapshot(vote, meta, data) => {
                let snapshot = Snapshot {
                    meta,
                    snapshot: Box::new(data),
                };
                let seat = self.seat_among(from)?;
                let installed: Installed = seat
                    .raft
                    .install_full_snapshot(vote, snapshot)
                    .await
                    .map_err(down)?;
                self.judge_term(installed.vote > vote);
                answer(&installed)
            }
        }
    }

    /// Whether a member may know of a task that it asked for: its owner, the home of its buckets, a keeper, or who may call it.
    fn may_look(&self, from: &Member, told: &Answer) -> Result<(), TaskError> {
        let Answer::Found(Some(kept)) = told else {
            return Ok(());
        };
        let has_part = kept.owner == from.node || kept.record.home == Some(from.node);
        match has_part || self.seat_among(from).is_ok() {
            true => Ok(()),
            false => from.must(Right::Call, &kept.record.name),
        }
    }

    /// Counts a message of a term that is over: of a leader that was cut off and does not know yet, or sent again by somebody.
    fn judge_term(&self, is_over: bool) {
        if is_over {
            self.refused("old-term");
        }
    }

    /// This node's seat, for a member that is a keeper too: now, before, or by what the log says.
    fn seat_among(&self, from: &Member) -> Result<Arc<Seat>, TaskError> {
        let seat = self.seat()?;
        let named = self.charter().is_some_and(|charter| {
            charter.keepers().contains(&from.key) || charter.former().contains(&from.key)
        });
        match named || seat.knows(&super::group::Key(from.key)) {
            true => Ok(seat),
            false => Err(TaskError::denied(format!(
                "node {} is no keeper",
                from.node.short()
            ))),
        }
    }

    /// Answers a question, here or by the leader.
    ///
    /// # Errors
    /// `unavailable` when this node is no keeper or knows of no leader.
    pub(super) async fn question(
        &self,
        asker: NodeId,
        question: Question,
        passed_on: bool,
    ) -> Result<Answer, TaskError> {
        let seat = self.seat()?;
        if let Question::Report = question {
            return Ok(Answer::Report(seat.report()));
        }
        if seat.leads() {
            return self.lead(&seat, asker, question).await;
        }
        let leader = seat.leader().filter(|leader| *leader != seat.me && !passed_on);
        let peer = leader.and_then(|leader| leader.peer()).ok_or_else(no_majority)?;
        send(self.mesh()?, peer, &Message::Question(Some(asker), question)).await
    }

    async fn lead(&self, seat: &Seat, asker: NodeId, question: Question) -> Result<Answer, TaskError> {
        seat.heard(asker);
        match question {
            Question::Propose(entry) => {
                if let Some(denied) = self.denied(seat, asker, &entry) {
                    return Ok(Answer::Written(Err(denied)));
                }
                owns(seat, asker, &entry)?;
                let stale = seat.replica.kept().stale(&entry);
                if let Some(stale) = stale {
                    self.refused("old-epoch");
                    return Ok(Answer::Written(Err(stale.into())));
                }
                seat.make_room(&entry).await;
                let room = self.limits.room(&seat.replica.kept(), seat.log_bytes(), &entry);
                if let Err(limit) = room {
                    return Ok(Answer::Written(Err(limit.into())));
                }
                Ok(Answer::Written(seat.writer.write(*entry).await?))
            }
            Question::Alive => {
                seat.linearizable().await?;
                let kept = seat.replica.kept();
                let owned = kept.tasks().filter(|kept| kept.owner == asker);
                Ok(Answer::Owns(owned.count() as u64))
            }
            Question::Owned(after) => {
                seat.linearizable().await?;
                Ok(Answer::Records(owned(seat, asker, after)))
            }
            Question::Find(task, wait) => {
                seat.linearizable().await?;
                let until = Instant::now() + Duration::from_millis(wait).min(MOST_WAIT);
                Ok(Answer::Found(find(seat, task, until).await.map(Box::new)))
            }
            Question::Progress(task) => {
                seat.linearizable().await?;
                let kept = seat.replica.kept();
                Ok(Answer::Progress(
                    kept.get(task).and_then(|kept| kept.progress.clone()),
                ))
            }
            Question::Report => Ok(Answer::Report(seat.report())),
        }
    }

    /// Why a node may not become the owner of a task: the one that is may, after a restart, and keepers, of what others have left. It is
    /// an answer like those of the log, so that who asks does not ask again.
    fn denied(&self, seat: &Seat, asker: NodeId, entry: &Entry) -> Option<KeptError> {
        let Entry::Own { task, .. } = entry else {
            return None;
        };
        let kept = seat.replica.kept();
        let kept = kept.get(*task).map(|kept| (kept.owner, &kept.record.name));
        let charter = self.charter();
        let named = charter
            .iter()
            .flat_map(|charter| charter.keepers().iter().chain(charter.former()));
        let keepers = named.map(|key| NodeId::of_key(key)).chain([self.me.node()]);
        may_not_take(asker, kept, keepers)
    }

    /// Withdraws a task of this node, or forgets its result if it `forgets`, for a member that may call it.
    fn remove(&self, from: &Member, task: TaskId, forgets: bool) -> Result<super::wire::Removed, TaskError> {
        let tasks = self.tasks().ok_or_else(no_majority)?;
        let status = tasks.known(task).ok_or_else(|| {
            TaskError::unavailable(format!("this node does not own task {task}"))
                .with_hint("try again in a while")
        })?;
        from.must(Right::Call, &status.name)?;
        if forgets || status.state.is_open() {
            tasks.remove(&status)?;
        }
        Ok(tasks.known(task).unwrap_or(status))
    }
}

/// Why a node may not take a task that has this owner and name. Of one that nobody knows the log says so.
fn may_not_take(
    asker: NodeId,
    kept: Option<(NodeId, &Arc<str>)>,
    mut keepers: impl Iterator<Item = NodeId>,
) -> Option<KeptError> {
    let (owner, name) = kept?;
    let may = owner == asker || keepers.any(|keeper| keeper == asker);
    (!may).then(|| KeptError::Denied(name.clone()))
}

/// What a member may not propose, whichever node leads: it makes nobody else an owner, only of tasks that it may call, and writes to
/// no other's buckets.
fn refuse(from: &Member, question: &Question) -> Option<KeptError> {
    let Question::Propose(entry) = question else {
        return None;
    };
    if let Entry::Accept { record, .. } = &**entry
        && let Err(SubmitError::TooLong {
            field: name, most, ..
        }) = record.check_lengths()
    {
        return Some(KeptError::Limit(LimitReached { name, most }));
    }
    match &**entry {
        Entry::Accept { owner, record } => {
            let at_home = record.home.is_none_or(|home| home == from.node);
            let may = *owner == from.node && at_home && from.may(Right::Call, &record.name);
            (!may).then(|| KeptError::Denied(record.name.clone()))
        }
        Entry::Own { node, .. } if *node != from.node => Some(KeptError::Denied("own".into())),
        _ => None,
    }
}

/// Whether a node may speak for the owner of the task. An owner whose epoch is over may try: it is told so by the log.
fn owns(seat: &Seat, asker: NodeId, entry: &Entry) -> Result<(), TaskError> {
    let Some((task, epoch)) = entry.ownership() else {
        return Ok(());
    };
    let kept = seat.replica.kept();
    let another = kept.get(task).filter(|kept| kept.owner != asker);
    match another.is_some_and(|kept| kept.record.epoch == epoch) {
        true => Err(TaskError::unavailable(format!("another node owns task {task}"))),
        false => Ok(()),
    }
}

fn owned(seat: &Seat, asker: NodeId, after: Option<TaskId>) -> Vec<TaskRecord> {
    let kept = seat.replica.kept();
    let mut records: Vec<TaskRecord> = Vec::new();
    let mut bytes = 0;
    let owned = kept.tasks().filter(|kept| kept.owner == asker);
    for Kept { record, .. } in owned.filter(|kept| Some(kept.record.task) > after) {
        bytes += record.weight() as usize + 512;
        if bytes > TOGETHER && !records.is_empty() {
            break;
        }
        records.push(record.clone());
    }
    records
}

/// The task, as soon as it has ended or the time is over. Once it has been read as it was when it was asked for, what is applied
/// here is never earlier than that.
async fn find(seat: &Seat, task: TaskId, until: Instant) -> Option<Kept> {
    let mut applied = seat.replica.applied();
    loop {
        let found = seat.replica.kept().get(task).map(without_input);
        let open = found
            .as_ref()
            .is_some_and(|kept| matches!(kept.record.state, Saved::Open(_)));
        if !open || !matches!(timeout_at(until, applied.changed()).await, Ok(Ok(()))) {
            return found;
        }
    }
}

fn without_input(kept: &Kept) -> Kept {
    let state = match &kept.record.state {
        Saved::Open(_) => Saved::Open(TaskRequest::default()),
        state => state.clone(),
    };
    Kept {
        record: TaskRecord {
            state,
            ..kept.record.clone()
        },
        progress: None,
        ..*kept
    }
}

fn down(error: impl std::fmt::Display) -> TaskError {
    TaskError::unavailable(format!("the keepers' log: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_owner_and_keepers_take_a_task() {
        let [owner, keeper, member] = ["owner", "keeper", "member"].map(|key| NodeId::of_key(key.as_bytes()));
        let name: Arc<str> = "classify".into();
        let denied = |asker, owner: Option<NodeId>| {
            may_not_take(asker, owner.map(|owner| (owner, &name)), [keeper].into_iter())
        };
        assert_eq!(denied(owner, Some(owner)), None);
        assert_eq!(denied(keeper, Some(owner)), None);
        assert_eq!(denied(member, Some(owner)), Some(KeptError::Denied(name.clone())));
        assert_eq!(denied(member, None), None, "the log refuses it as unknown");
    }
}
