//! A letter of a round to another node, and its answer.

use bytes::Bytes;
use karman_fed::swarm::{Answer, Letter, Message, MessageError};
use karman_mesh::{Ask, CallHead, Mesh};
use karman_types::{Digest, ErrorKind, NodeId, TaskError, TaskId};
use std::time::Duration;

/// How long a client may take to answer another.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one may take that has to ask a third: that one may be tried twice.
const RELAYED: Duration = Duration::from_secs(70);
/// How long a client may take to do what it is told. In a slot it answers when what it was told to send has arrived, or has not: so whoever
/// waits for one that is gone is not taken for gone itself.
const ORDERED: Duration = Duration::from_secs(180);

/// The longest list of chunks, in bytes: each of them is a number of 32 bits.
pub(super) const LONGEST_LIST: usize = 5 * Letter::MOST_CHUNKS;
/// What else a letter or an answer has around a list or a chunk, generously, a seal included.
pub(super) const ENVELOPE: usize = 1 << 10;

/// Says something to a node, in the round of this name. Where the link broke and stands again it is said once more: the two nodes may just
/// have found a better one.
pub(super) async fn say(
    mesh: &Mesh,
    name: &str,
    round: Digest,
    to: NodeId,
    message: Message,
) -> Result<Answer, TaskError> {
    let (within, most) = (patience(&message), longest_answer(&message));
    let body: Bytes = Letter { round, message }.write().map_err(wrong)?.into();
    let gone = || TaskError::unavailable(format!("node {} is not in reach", to.short()));
    let peer = mesh.node(to).await.ok_or_else(gone)?;
    let mut head = CallHead::new(Ask::Swarm, name, TaskId::from_parts(0, 0));
    head.within_ms = Some(within.as_millis() as u64);
    let mut answer = mesh.call_for(peer, head.clone(), body.clone().into(), most).await;
    let broke = |error: &TaskError| error.kind == ErrorKind::Unavailable;
    if answer.as_ref().is_err_and(broke) && mesh.is_connected(&peer) {
        answer = mesh.call_for(peer, head, body.into(), most).await;
    }
    let (response, _) = answer?;
    Answer::read(&response.body).map_err(wrong)
}

const fn patience(message: &Message) -> Duration {
    match message {
        Message::Chunk { .. } | Message::Sealed(_) | Message::Want(_) | Message::Has(_) => PATIENCE,
        Message::Relay { .. } => RELAYED,
        Message::Open(_)
        | Message::Begin(_)
        | Message::Slot(_)
        | Message::Swarm(_)
        | Message::Go { .. }
        | Message::Report { .. }
        | Message::End => ORDERED,
    }
}

/// Whoever is told something has little to say to it.
const fn longest_answer(message: &Message) -> u64 {
    let most = match message {
        Message::Open(_) | Message::Report { .. } => Letter::MOST,
        Message::Want(_) => LONGEST_LIST + ENVELOPE,
        Message::Begin(_)
        | Message::Slot(_)
        | Message::Swarm(_)
        | Message::Go { .. }
        | Message::End
        | Message::Chunk { .. }
        | Message::Relay { .. }
        | Message::Sealed(_)
        | Message::Has(_) => ENVELOPE,
    };
    most as u64
}

/// Whether this is what is heard of a node that is not there any more.
pub(super) fn is_gone(error: &TaskError) -> bool {
    matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Deadline)
}

pub(super) fn wrong(error: MessageError) -> TaskError {
    let kind = match &error {
        MessageError::TooLong { .. } | MessageError::TooMany { .. } => ErrorKind::Limit,
        _ => ErrorKind::Invalid,
    };
    TaskError::new(kind, error.to_string()).with_field("body")
}

pub(super) fn invalid(what: &dyn std::fmt::Display) -> TaskError {
    TaskError::invalid(format!("a swarm round: {what}"))
}

/// What a client says that takes no part any more, for what its leader says.
pub(super) fn leaves(why: &dyn std::fmt::Display) -> TaskError {
    TaskError::denied(format!("this node leaves the round: {why}")).with_field("lead")
}
