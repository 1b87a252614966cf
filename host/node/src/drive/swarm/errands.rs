//! What a client sends to others: chunks that it was told to send or is asked for, and what it has and wants.

use super::seat::Seat;
use super::talk::{invalid, is_gone, say};
use crate::services::blocking;
use futures::stream::{self, StreamExt};
use karman_fed::swarm::{Answer, Chunk, Client, Message};
use karman_mesh::{Mailbox, Mesh};
use karman_types::{Digest, TaskError};
use std::collections::BTreeMap;
use tokio::sync::Semaphore;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Errand {
    pub(super) to: Client,
    pub(super) what: What,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum What {
    Chunk(Chunk),
    /// A chunk of its own, to a client that shall not know from whom.
    Spray(Chunk),
    Want(Vec<Chunk>),
    Has(Vec<Chunk>),
}

/// Room for chunks that are on their way in the exchange. One neighbour has half of it at most: one that takes nothing holds up no other.
pub(super) struct Room {
    all: Semaphore,
    each: usize,
}

impl Room {
    pub(super) fn of(chunks: usize) -> Self {
        Self {
            all: Semaphore::new(chunks),
            each: (chunks / 2).max(1),
        }
    }
}

/// The same errands by whom they are for, in their order.
pub(super) fn by_neighbour(errands: Vec<Errand>) -> BTreeMap<Client, Vec<Errand>> {
    let mut all: BTreeMap<Client, Vec<Errand>> = BTreeMap::new();
    for errand in errands {
        all.entry(errand.to).or_default().push(errand);
    }
    all
}

impl Seat {
    /// Runs what is for one neighbour; it ends when each has arrived, or has not.
    pub(super) async fn run_for(
        &self,
        mesh: &Mesh,
        round: Digest,
        to: Client,
        errands: Vec<Errand>,
        room: &Room,
    ) -> Client {
        let errands = stream::iter(errands);
        errands
            .for_each_concurrent(room.each, |errand| async move {
                // Lists are short. The room is never closed.
                let _taken = match &errand.what {
                    What::Chunk(_) | What::Spray(_) => room.all.acquire().await.ok(),
                    What::Want(_) | What::Has(_) => None,
                };
                self.run(mesh, round, errand).await;
            })
            .await;
        to
    }

    /// Runs errands, no more at a time than have room in memory; it ends when each has arrived, or has not.
    pub(super) async fn run_all(&self, mesh: &Mesh, round: Digest, errands: Vec<Errand>) {
        let Ok(at_once) = self.playing(round, |playing| Ok(playing.at_once())) else {
            return;
        };
        let errands = stream::iter(errands);
        errands
            .for_each_concurrent(at_once, |errand| self.run(mesh, round, errand))
            .await;
    }

    /// Runs an errand. What does not arrive is asked for elsewhere or told again; whoever does not answer for a while is left alone.
    async fn run(&self, mesh: &Mesh, round: Digest, errand: Errand) {
        let Errand { to, what } = errand;
        let sprays = matches!(what, What::Spray(_));
        let has = match &what {
            What::Has(chunks) => chunks.clone(),
            What::Chunk(_) | What::Spray(_) | What::Want(_) => Vec::new(),
        };
        // It may have left since this was decided. To whom something is sprayed, the one between may have a way.
        if !sprays && self.playing(round, |playing| Ok(playing.has_left(to))) != Ok(false) {
            return;
        }
        let Err(error) = self.send(mesh, round, to, what).await else {
            // What is sprayed another one has taken.
            if !sprays {
                let _ = self.playing(round, |playing| {
                    playing.answered(to);
                    Ok(())
                });
            }
            return;
        };
        tracing::debug!(client = to, %error, "a letter of a swarm round did not arrive");
        // A sprayed chunk may have been lost half-way, with the one that it was given to.
        if is_gone(&error) && !sprays {
            let _ = self.playing(round, |playing| {
                playing.missed(to, has);
                Ok(())
            });
        }
    }

    async fn send(&self, mesh: &Mesh, round: Digest, to: Client, what: What) -> Result<(), TaskError> {
        let message = match what {
            What::Spray(chunk) => return self.spray(mesh, round, to, chunk).await,
            What::Chunk(chunk) => Message::Chunk {
                chunk,
                bytes: self.bytes(round, chunk).await?.into(),
            },
            What::Want(chunks) => Message::Want(chunks),
            What::Has(chunks) => Message::Has(chunks),
        };
        let at = self.playing(round, |playing| playing.place(to))?;
        match say(mesh, self.name(), round, at.node, message).await? {
            Answer::NotHere(chunks) => self.playing(round, |playing| {
                playing.refused(to, &chunks);
                Ok(())
            }),
            Answer::Here { .. } | Answer::Held(_) | Answer::Done => Ok(()),
        }
    }

    /// By way of a third client, sealed. Between two there is nothing to hide: what is not one's own is the other's.
    async fn spray(&self, mesh: &Mesh, round: Digest, to: Client, chunk: Chunk) -> Result<(), TaskError> {
        let bytes = self.bytes(round, chunk).await?;
        let (place, between) = self.playing(round, |playing| {
            let between = playing.between(to).map(|client| playing.place(client));
            Ok((playing.place(to)?, between.transpose()?))
        })?;
        let Some(between) = between else {
            let bytes = bytes.into();
            let message = Message::Chunk { chunk, bytes };
            return say(mesh, self.name(), round, place.node, message).await.map(drop);
        };
        let plain = [&chunk.to_le_bytes()[..], &bytes].concat();
        let sealed = blocking(move || {
            let sealed = Mailbox::seal(&place.mailbox, round.as_bytes(), &plain);
            sealed.ok_or_else(|| invalid(&format!("client {to} has no mailbox that could be sealed to")))
        });
        let sealed = sealed.await?.into();
        let message = Message::Relay { to, sealed };
        say(mesh, self.name(), round, between.node, message)
            .await
            .map(drop)
    }

    async fn bytes(&self, round: Digest, chunk: Chunk) -> Result<Vec<u8>, TaskError> {
        let shelf = self.playing(round, |playing| Ok(playing.shelf()))?;
        blocking(move || shelf.get(chunk)).await
    }
}
