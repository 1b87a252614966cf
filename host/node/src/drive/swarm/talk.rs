//! A letter of a round to another node, and its answer.

use bytes::Bytes;
use karman_fed::swarm::{Answer, Inventory, Layout, Letter, Link, Message, MessageError};
use karman_mesh::membership::Membership;
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
/// What the digest of a chunk takes in a letter, and a transfer, generously; and what a client says of itself beside the digests.
const DIGEST: usize = 72;
const TRANSFER: usize = 72;
const CLIENT: usize = Membership::MAX_BYTES + ENVELOPE;

/// The longest letter of a leader in a round of so many clients: who they are and what they bring, what each of them holds, or what one is to
/// send in a slot.
pub(super) fn longest_led(clients: usize, layout: &Layout, link: Link) -> usize {
    let chunks = layout.chunks as usize;
    let of_each = (CLIENT + chunks * DIGEST).max(ENVELOPE + clients * chunks / 8);
    let slot = (link.up as usize).min(Letter::MOST_CHUNKS) * TRANSFER;
    let longest = clients.saturating_mul(of_each).max(slot);
    longest.saturating_add(ENVELOPE).min(Letter::MOST)
}

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
    let peer = mesh.peer(to).await?;
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
        Message::Open(opening) => CLIENT + opening.settings.layout.chunks as usize * DIGEST,
        Message::Report { .. } => Inventory::MOST_BYTES + ENVELOPE,
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

#[cfg(test)]
mod tests {
    use super::*;
    use karman_fed::swarm::{
        Beginning, Client, Descriptor, Ground, Neighbourhood, Opening, Place, Shown, SwarmSettings, Transfer,
    };

    fn descriptor(chunks: u32) -> Descriptor {
        let pseudonym = Digest::of(b"chunk");
        Descriptor {
            pseudonym,
            weight: u32::MAX,
            chunks: vec![pseudonym; chunks as usize],
        }
    }

    fn shown() -> Shown {
        Shown {
            key: [255; 32].into(),
            membership: vec![255u8; Membership::MAX_BYTES].into(),
            signature: [255; 64].into(),
        }
    }

    #[test]
    fn what_there_is_to_say_in_a_round_is_never_too_long_for_it() {
        for (clients, chunks) in [(2, 1), (5, 16), (40, 300), (300, 20)] {
            let layout = Layout { chunk: 4, chunks };
            let link = Link { up: 500, down: 1 };
            let mailbox = [255; 32].into();
            let place = Place {
                node: NodeId::of_key(b"node"),
                mailbox,
            };
            let begins = Message::Begin(Beginning {
                me: 0,
                clients: vec![place; clients],
                descriptors: vec![descriptor(chunks); clients],
                shown: vec![shown(); clients],
            });
            let mut all = Inventory::none(clients as u32 * chunks);
            for chunk in 0..clients as u32 * chunks {
                all.insert(chunk);
            }
            let swarms = Message::Swarm(Neighbourhood {
                neighbours: vec![(Client::MAX, all.clone()); clients - 1],
                known: all,
                covered: true,
            });
            let transfer = Transfer {
                from: Client::MAX,
                to: Client::MAX,
                chunk: u32::MAX,
                ground: Ground::Unprotected,
            };
            let most = longest_led(clients, &layout, link);
            for message in [begins, swarms, Message::Slot(vec![transfer; 500])] {
                let round = Digest::of(b"round");
                let length = Letter { round, message }.write().unwrap().len();
                assert!(length <= most && most < Letter::MOST, "{length} {most}");
            }
            let settings = SwarmSettings {
                layout,
                ..SwarmSettings::default()
            };
            let here = Answer::Here {
                descriptor: descriptor(chunks),
                mailbox,
                link,
                shown: shown(),
            };
            let length = here.write().unwrap().len() as u64;
            let most = longest_answer(&Message::Open(Opening { settings, numbers: 1 }));
            assert!(length <= most, "{length} {most}");
        }
    }
}
