//! What goes between the nodes of a round, in CBOR. A letter to a client comes from the coordinator or from another client; what it
//! answers goes back on the same call. Each may come twice: the second time changes nothing.

use super::board::Transfer;
use super::chunk::{Chunk, ChunkError, Descriptor};
use super::inventory::Inventory;
use super::list;
use super::overlay::Client;
use super::settings::{Link, SwarmSettings};
use bytes::Bytes;
use karman_types::{Digest, NodeId};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteArray;

/// A message, and the round that it belongs to.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Letter {
    /// What the round is called ([`super::Coordinator::round`]): no two have the same name.
    pub round: Digest,
    /// What it says.
    pub message: Message,
}

/// What is said to a client.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// A round opens: cut your update, and say what everybody may know of it ([`Answer::Here`]).
    Open(Opening),
    /// Those who take part.
    Begin(Beginning),
    /// A slot of spray or warm-up: send these.
    #[serde(deserialize_with = "list::of_chunks")]
    Slot(Vec<Transfer>),
    /// The warm-up is over.
    Swarm(Neighbourhood),
    /// Everybody knows: go on by yourselves, one slot every so many milliseconds, for at most so many.
    Go {
        /// The length of a slot.
        slot_ms: u64,
        /// After this time a client takes what it has.
        within_ms: u64,
    },
    /// Say what you hold ([`Answer::Held`]). These have left.
    Report {
        /// Their numbers.
        #[serde(deserialize_with = "list::of_clients")]
        gone: Vec<Client>,
    },
    /// The round is over.
    End,
    /// A chunk, from a client that was told to send it, or asked for it.
    Chunk {
        /// Which.
        chunk: Chunk,
        /// Its bytes.
        bytes: Bytes,
    },
    /// Pass this on: neither do you learn what it is, nor the other whose it was.
    Relay {
        /// To whom.
        to: Client,
        /// A chunk that is sealed to the other.
        sealed: Bytes,
    },
    /// A sprayed chunk, passed on by a client that could not read it.
    Sealed(Bytes),
    /// A neighbour asks for chunks; those that are not here are answered ([`Answer::NotHere`]).
    #[serde(deserialize_with = "list::of_chunks")]
    Want(Vec<Chunk>),
    /// A neighbour has got chunks.
    #[serde(deserialize_with = "list::of_chunks")]
    Has(Vec<Chunk>),
}

/// What a round is agreed on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Opening {
    /// How it goes.
    pub settings: SwarmSettings,
    /// The numbers of each update, 32 bits each.
    pub numbers: u32,
}

/// Who takes part, and which of them the client is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Beginning {
    /// The client's own number.
    pub me: Client,
    /// All clients by their numbers.
    #[serde(deserialize_with = "list::of_clients")]
    pub clients: Vec<Place>,
    /// All updates, in the order of their digests: it says nothing of whose they are.
    #[serde(deserialize_with = "list::of_clients")]
    pub descriptors: Vec<Descriptor>,
    /// What each of the clients shows of itself, by their numbers.
    #[serde(deserialize_with = "list::of_clients")]
    pub shown: Vec<Shown>,
}

/// Where a client is reached.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Place {
    /// Its node.
    pub node: NodeId,
    /// X25519: what is sprayed to it is sealed with this. Its node signs it ([`Shown::signature`]).
    pub mailbox: ByteArray<32>,
}

/// What a client shows of itself: its membership of the mesh, for everybody in the round to look at. Whoever leads could name anybody else.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Shown {
    /// Its Ed25519 key.
    pub key: ByteArray<32>,
    /// Its membership, which is bound to that key.
    pub membership: Bytes,
    /// By that key, of its mailbox in this round: what is sealed to it nobody else shall read.
    pub signature: ByteArray<64>,
}

/// What a client knows of its neighbours when the warm-up is over.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Neighbourhood {
    /// Those that are still there, and what they hold.
    #[serde(deserialize_with = "list::of_clients")]
    pub neighbours: Vec<(Client, Inventory)>,
    /// What they are told that this client holds.
    pub known: Inventory,
    /// Whether everybody had its cover. If not, the round's promise is void.
    pub covered: bool,
}

/// What a client answers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It takes part.
    Here {
        /// Its update.
        descriptor: Descriptor,
        /// X25519, for this round alone.
        mailbox: ByteArray<32>,
        /// What its link carries in a slot.
        link: Link,
        /// Who it is.
        shown: Shown,
    },
    /// What it holds.
    Held(Inventory),
    /// It does not have these.
    #[serde(deserialize_with = "list::of_chunks")]
    NotHere(Vec<Chunk>),
    /// It is done, or there is nothing to say.
    Done,
}

/// What is no letter, or no answer to one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Longer than any may be.
    #[error("a letter of {length} bytes; at most {most} are taken", most = Letter::MOST)]
    TooLong {
        /// Its bytes.
        length: usize,
    },
    /// Not of this form.
    #[error("this is no {what} of a round: {problem}")]
    Malformed {
        /// What it should be.
        what: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// More than there can be.
    #[error("{have} {what}; a letter has at most {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        have: usize,
        /// The bound.
        most: usize,
    },
    /// Updates that cannot be cut so, or a descriptor that does not fit.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A list of clients that does not go with the updates.
    #[error("{clients} clients with {updates} updates, of which number {me} is this one's")]
    Clients {
        /// The clients.
        clients: usize,
        /// The updates.
        updates: usize,
        /// The number of the client that is told.
        me: Client,
    },
    /// Memberships that are not those of the clients.
    #[error("{shown} memberships of {clients} clients")]
    Shown {
        /// The memberships.
        shown: usize,
        /// The clients.
        clients: usize,
    },
}

impl Letter {
    /// The longest letter in bytes: four of the largest chunks, or the descriptors of 4,000 updates of 206 chunks.
    pub const MOST: usize = 64 << 20;
    /// The most chunks that one letter names.
    pub const MOST_CHUNKS: usize = 1 << 16;

    /// Reads a letter that may come from anyone.
    ///
    /// # Errors
    /// It is too long, does not read, or has more in it than a round can have.
    pub fn read(bytes: &[u8]) -> Result<Self, MessageError> {
        let letter: Self = read("letter", bytes)?;
        letter.message.check()?;
        Ok(letter)
    }

    /// As it travels.
    ///
    /// # Errors
    /// It is longer than anybody takes.
    pub fn write(&self) -> Result<Vec<u8>, MessageError> {
        write("letter", self)
    }
}

impl Message {
    fn check(&self) -> Result<(), MessageError> {
        let clients = SwarmSettings::MOST_CLIENTS;
        match self {
            Self::Open(opening) => opening.check(),
            Self::Begin(beginning) => beginning.check(),
            Self::Slot(transfers) => at_most("transfers", transfers.len(), Letter::MOST_CHUNKS),
            Self::Swarm(hood) => at_most("neighbours", hood.neighbours.len(), clients),
            Self::Report { gone } => at_most("clients that have left", gone.len(), clients),
            Self::Want(chunks) | Self::Has(chunks) => at_most("chunks", chunks.len(), Letter::MOST_CHUNKS),
            Self::Go { .. } | Self::End | Self::Chunk { .. } | Self::Relay { .. } | Self::Sealed(_) => Ok(()),
        }
    }
}

impl Opening {
    fn check(&self) -> Result<(), MessageError> {
        self.settings.layout.check()?;
        let (have, room) = (
            self.numbers as usize * size_of::<f32>(),
            self.settings.layout.room(),
        );
        match have <= room {
            true => Ok(()),
            false => Err(ChunkError::TooLong { have, room }.into()),
        }
    }
}

impl Beginning {
    fn check(&self) -> Result<(), MessageError> {
        let (clients, updates, me) = (self.clients.len(), self.descriptors.len(), self.me);
        at_most("clients", clients, SwarmSettings::MOST_CLIENTS)?;
        let shown = self.shown.len();
        if shown != clients {
            return Err(MessageError::Shown { shown, clients });
        }
        match clients == updates && usize::from(me) < clients {
            true => Ok(()),
            false => Err(MessageError::Clients { clients, updates, me }),
        }
    }
}

impl Answer {
    /// Reads an answer that may come from anyone.
    ///
    /// # Errors
    /// It is too long, does not read, or has more in it than a round can have.
    pub fn read(bytes: &[u8]) -> Result<Self, MessageError> {
        let answer: Self = read("answer", bytes)?;
        match &answer {
            Self::NotHere(chunks) => at_most("chunks", chunks.len(), Letter::MOST_CHUNKS)?,
            Self::Here { .. } | Self::Held(_) | Self::Done => {}
        }
        Ok(answer)
    }

    /// As it travels.
    ///
    /// # Errors
    /// It is longer than anybody takes.
    pub fn write(&self) -> Result<Vec<u8>, MessageError> {
        write("answer", self)
    }
}

fn at_most(what: &'static str, have: usize, most: usize) -> Result<(), MessageError> {
    match have <= most {
        true => Ok(()),
        false => Err(MessageError::TooMany { what, have, most }),
    }
}

fn read<'a, T: Deserialize<'a>>(what: &'static str, bytes: &'a [u8]) -> Result<T, MessageError> {
    let length = bytes.len();
    if length > Letter::MOST {
        return Err(MessageError::TooLong { length });
    }
    cbor4ii::serde::from_slice(bytes).map_err(|error| MessageError::Malformed {
        what,
        problem: error.to_string(),
    })
}

fn write(what: &'static str, message: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    let written = cbor4ii::serde::to_vec(Vec::new(), message);
    let bytes = written.map_err(|error| MessageError::Malformed {
        what,
        problem: error.to_string(),
    })?;
    match bytes.len() {
        length if length > Letter::MOST => Err(MessageError::TooLong { length }),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests;
