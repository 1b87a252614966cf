//! How far a client is in its round. Nothing here waits for anybody; what is to be sent comes back as [`Errand`]s.

use super::errands::{Errand, What};
use super::seat::SwarmOutcome;
use super::shelf::Shelf;
use super::talk::{ENVELOPE, LONGEST_LIST, invalid, leaves, longest_led};
use karman_fed::swarm::{
    Answer, Chunk, Client, ExchangeError, Ground, Layout, Letter, Link, Mean, MeanRule, Neighbourhood, Peer,
    Place, Transfer,
};
use karman_mesh::Mailbox;
use karman_types::{Digest, NodeId, TaskError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod open;

pub(super) use open::Open;

/// Bytes of chunks that are on their way from here at a time; two chunks are in any case, so that one that does not arrive holds up no other.
const UNDER_WAY: usize = 16 << 20;
/// Letters that are on their way from here at a time, however short they are.
const MOST_AT_ONCE: usize = 64;
/// The most chunks that a neighbour asks for at a time, with much to spare: it asks for a few in each slot.
const MOST_WANTED: usize = 256;
/// Slots in a row in which a client may leave letters unanswered before it is taken for gone: links break, and stand again.
const MOST_MISSED: u32 = 3;

pub(super) enum Stage {
    /// No round has opened.
    Waiting,
    /// It has said what everybody may know of its update.
    Open(Arc<Open>),
    Playing(Box<Playing>),
    Over,
}

/// A round in which it takes part.
pub(super) struct Playing {
    pub(super) round: Digest,
    numbers: usize,
    layout: Layout,
    me: Client,
    clients: Vec<Place>,
    /// Of the updates, in their order.
    pseudonyms: Vec<Digest>,
    peer: Peer,
    mailbox: Arc<Mailbox>,
    shelf: Arc<Shelf>,
    /// What its neighbours have not been told of.
    fresh: Vec<Chunk>,
    /// Those that it exchanges chunks with.
    neighbours: Vec<Client>,
    /// What they are to be told as soon as they have taken what was sent before.
    words: BTreeMap<Client, Word>,
    /// Slots until now.
    slot: u64,
    missed: BTreeMap<Client, Missed>,
    gone: BTreeSet<Client>,
    covered: bool,
}

/// What a neighbour is to be told.
#[derive(Default)]
struct Word {
    wants: BTreeSet<Chunk>,
    has: Vec<Chunk>,
}

/// Slots in which a client has left letters unanswered.
struct Missed {
    slots: u32,
    last: u64,
}

impl Playing {
    /// The number of the client on this node.
    pub(super) fn client_at(&self, node: NodeId) -> Result<Client, TaskError> {
        let place = self.clients.iter().position(|place| place.node == node);
        let stranger = || TaskError::denied(format!("node {} is not in the round", node.short()));
        place.map(|place| place as Client).ok_or_else(stranger)
    }

    /// Refuses what needs the warm-up to be over, where it is not.
    pub(super) fn exchanges(&mut self) -> Result<(), TaskError> {
        self.peer.exchange().map(|_| ()).map_err(|error| invalid(&error))
    }

    pub(super) fn place(&self, client: Client) -> Result<Place, TaskError> {
        let place = self.clients.get(usize::from(client)).copied();
        place.ok_or_else(|| invalid(&format!("there is no client {client}")))
    }

    pub(super) fn shelf(&self) -> Arc<Shelf> {
        self.shelf.clone()
    }

    /// Somebody to pass a sealed chunk on to that client: drawn among all others that are there. Nobody where there are but two.
    pub(super) fn between(&self, to: Client) -> Option<Client> {
        let other = |client: &Client| *client != self.me && *client != to && !self.gone.contains(client);
        let others: Vec<Client> = (0..self.clients.len() as Client).filter(other).collect();
        fastrand::choice(&others).copied()
    }

    /// What the coordinator says to send in a slot.
    ///
    /// # Errors
    /// It is against the rules of the round, or more than the link was said to carry.
    pub(super) fn told(&mut self, transfers: &[Transfer], link: Link) -> Result<Vec<Errand>, TaskError> {
        if self.peer.exchange().is_ok() {
            // The warm-up is over, and this has been on its way for long.
            return Ok(Vec::new());
        }
        let chunks = transfers.len();
        if chunks > link.up as usize {
            let says = format!(
                "it is to send {chunks} chunks in a slot, and its link carries {}",
                link.up
            );
            return Err(leaves(&says));
        }
        self.slot += 1;
        self.peer.begin_slot();
        let errand = |transfer: &Transfer| {
            self.peer.told(transfer).map_err(|error| leaves(&error))?;
            let what = match transfer.ground {
                Ground::Spray => What::Spray(transfer.chunk),
                Ground::Cover | Ground::Offered | Ground::Unprotected => What::Chunk(transfer.chunk),
            };
            let to = transfer.to;
            Ok(Errand { to, what })
        };
        transfers.iter().map(errand).collect()
    }

    /// Whether the warm-up may be over for this client, which goes on without a cover only where it is not to be `protected`.
    ///
    /// # Errors
    /// It lacks its cover, or is to have neighbours that are none.
    pub(super) fn check_end(&mut self, hood: &Neighbourhood, protected: bool) -> Result<(), TaskError> {
        if self.peer.exchange().is_ok() {
            return Ok(());
        }
        let neighbours = hood.neighbours.iter().map(|(client, _)| *client);
        let ends = self.peer.check_end(neighbours, protected);
        ends.map_err(|error| leaves(&error))
    }

    /// Bytes of a chunk.
    pub(super) const fn size(&self) -> usize {
        self.layout.chunk as usize
    }

    /// How many errands run at once.
    pub(super) fn at_once(&self) -> usize {
        (UNDER_WAY / self.size()).clamp(2, MOST_AT_ONCE)
    }

    /// The longest letter that a client has to say: a chunk that is sealed, or which chunks it has.
    pub(super) fn longest(&self) -> usize {
        self.size().max(LONGEST_LIST) + ENVELOPE
    }

    /// The longest letter that the leader has to say.
    pub(super) fn longest_led(&self, link: Link) -> usize {
        longest_led(self.clients.len(), &self.layout, link).max(self.longest())
    }

    /// How many chunks are here; and how many have to be, where these are fewer.
    pub(super) fn supply(&self) -> (u32, Option<u32>) {
        (self.peer.held().len(), self.peer.needed())
    }

    /// Whether a client is known to have left.
    pub(super) fn has_left(&self, client: Client) -> bool {
        self.gone.contains(&client)
    }

    /// What a chunk hashes to that is not here.
    pub(super) fn lacks(&self, chunk: Chunk) -> Option<Digest> {
        let here = self.peer.held().contains(chunk);
        self.peer.digest(chunk).filter(|_| !here)
    }

    /// Bytes have come that are said to be a chunk, and hash to this; nothing where they are too few or too many.
    pub(super) fn received(
        &mut self,
        from: Client,
        chunk: Chunk,
        digest: Option<Digest>,
    ) -> Result<(), TaskError> {
        let new = self.peer.hashed(from, chunk, digest);
        if new.map_err(|error| invalid(&error))? && self.peer.exchange().is_ok() {
            self.fresh.push(chunk);
        }
        Ok(())
    }

    /// Its own number, and what opens chunks that were sprayed to it.
    pub(super) fn mailbox(&self) -> (Client, Arc<Mailbox>) {
        (self.me, self.mailbox.clone())
    }

    /// Where to pass on what one client has sealed to another.
    pub(super) fn relay(&self, from: NodeId, to: Client, sealed: &[u8]) -> Result<NodeId, TaskError> {
        self.client_at(from)?;
        if to == self.me {
            return Err(invalid(&"nobody passes on what is sealed to itself"));
        }
        let most = size_of::<Chunk>() + self.layout.chunk as usize + Mailbox::OVERHEAD;
        if sealed.len() > most {
            let says = format!("{} bytes to pass on; at most {most} are taken", sealed.len());
            return Err(TaskError::limit(says).with_field("sealed"));
        }
        Ok(self.place(to)?.node)
    }

    /// The warm-up is over. Who has left, this client finds out by itself from now on.
    pub(super) fn swarm(&mut self, hood: Neighbourhood) -> Result<(), TaskError> {
        if self.peer.exchange().is_ok() {
            return Ok(());
        }
        self.gone.clear();
        self.missed.clear();
        self.covered = hood.covered;
        self.fresh = self.peer.held().missing_in(&hood.known).collect();
        self.neighbours = hood.neighbours.iter().map(|(client, _)| *client).collect();
        let begun = self.peer.swarm(hood.neighbours, fastrand::u64(..));
        begun.map_err(|error| invalid(&error))
    }

    /// A slot of the exchange begins. Neighbours that are `busy` with what was sent before are sent nothing now, and hold up no other.
    pub(super) fn step(&mut self, link: Link, busy: &BTreeSet<Client>) -> Result<Vec<Errand>, TaskError> {
        self.slot += 1;
        let exchange = self.peer.exchange().map_err(|error| invalid(&error))?;
        let fresh = std::mem::take(&mut self.fresh);
        for neighbour in &self.neighbours {
            let word = self.words.entry(*neighbour).or_default();
            word.has.extend_from_slice(&fresh);
        }
        for (to, chunk) in exchange.ask(link.down) {
            self.words.entry(to).or_default().wants.insert(chunk);
        }
        // What is short first: the others can go on with it.
        let mut errands = Vec::new();
        let ready = |client: Client| !busy.contains(&client);
        let words = std::mem::take(&mut self.words).into_iter();
        let (now, later): (BTreeMap<_, _>, BTreeMap<_, _>) = words.partition(|(to, _)| ready(*to));
        self.words = later;
        for (to, word) in now {
            let lacks = |chunk: &Chunk| !exchange.held().contains(*chunk);
            let wants: Vec<Chunk> = word.wants.into_iter().filter(lacks).take(MOST_WANTED).collect();
            if !wants.is_empty() {
                let what = What::Want(wants);
                errands.push(Errand { to, what });
            }
            errands.extend(word.has.chunks(Letter::MOST_CHUNKS).map(|chunks| Errand {
                to,
                what: What::Has(chunks.to_vec()),
            }));
        }
        for _ in 0..link.up {
            let Some((to, chunk)) = exchange.serve(ready) else {
                break;
            };
            let what = What::Chunk(chunk);
            errands.push(Errand { to, what });
        }
        Ok(errands)
    }

    /// A client has answered.
    pub(super) fn answered(&mut self, client: Client) {
        self.missed.remove(&client);
    }

    /// A client has not answered; what it was told to have is told again. Whoever leaves letters unanswered in too many slots has left.
    pub(super) fn missed(&mut self, client: Client, has: Vec<Chunk>) {
        let slot = self.slot;
        let missed = self.missed.entry(client).or_insert(Missed { slots: 0, last: 0 });
        if missed.slots == 0 || missed.last < slot {
            (missed.slots, missed.last) = (missed.slots + 1, slot);
        }
        if missed.slots >= MOST_MISSED {
            self.left(client);
        } else if self.neighbours.contains(&client) {
            self.words.entry(client).or_default().has.extend(has);
        }
    }

    /// A neighbour asks for chunks.
    pub(super) fn wanted(&mut self, from: NodeId, chunks: &[Chunk]) -> Result<Answer, TaskError> {
        let client = self.client_at(from)?;
        if chunks.len() > MOST_WANTED {
            let says = format!(
                "{} chunks are asked for; at most {MOST_WANTED} are at a time",
                chunks.len()
            );
            return Err(TaskError::limit(says).with_field("want"));
        }
        let exchange = self.peer.exchange().map_err(|error| invalid(&error))?;
        let mut absent = Vec::new();
        for chunk in chunks {
            match exchange.asked(client, *chunk) {
                // Of too many at a time the last ones are not answered: it will ask again.
                Ok(()) | Err(ExchangeError::TooMuch(_)) => {}
                Err(ExchangeError::NotHeld(chunk)) => absent.push(chunk),
                // Taken for gone here, and not gone: it had better ask elsewhere.
                Err(ExchangeError::Stranger(_)) => return Ok(Answer::NotHere(chunks.to_vec())),
                Err(error) => return Err(invalid(&error)),
            }
        }
        Ok(match absent.is_empty() {
            true => Answer::Done,
            false => Answer::NotHere(absent),
        })
    }

    /// A neighbour has got chunks.
    pub(super) fn has(&mut self, from: NodeId, chunks: &[Chunk]) -> Result<(), TaskError> {
        let client = self.client_at(from)?;
        let exchange = self.peer.exchange().map_err(|error| invalid(&error))?;
        let mut known = chunks.iter().map(|chunk| exchange.has(client, *chunk));
        known.try_for_each(|known| match known {
            // Taken for gone here: nothing is asked of it.
            Err(ExchangeError::Stranger(_)) => Ok(()),
            known => known.map_err(|error| invalid(&error)),
        })
    }

    /// A neighbour does not have what it was asked for.
    pub(super) fn refused(&mut self, by: Client, chunks: &[Chunk]) {
        if let Ok(exchange) = self.peer.exchange() {
            chunks.iter().for_each(|chunk| exchange.refused(by, *chunk));
        }
    }

    /// A client does not answer any more, or, in the warm-up, the coordinator says that it has left.
    pub(super) fn left(&mut self, client: Client) {
        self.gone.insert(client);
        self.neighbours.retain(|neighbour| *neighbour != client);
        self.words.remove(&client);
        if let Ok(exchange) = self.peer.exchange() {
            exchange.left(client);
        }
    }

    /// What it holds, for the coordinator. That others are `gone` it is believed as long as it says who sends what: once clients are by
    /// themselves, it could part them by a word.
    pub(super) fn report(&mut self, gone: &[Client]) -> Answer {
        if self.peer.exchange().is_err() {
            gone.iter().for_each(|client| self.left(*client));
        }
        Answer::Held(self.peer.report())
    }

    /// What comes out, from all that is here: everybody adds in the order of the descriptors.
    pub(super) fn outcome(&self, rule: Option<MeanRule>) -> Result<SwarmOutcome, TaskError> {
        let numbers = self.numbers;
        let plain = || Mean::of_length(numbers);
        let mut mean = rule.map_or_else(plain, |rule| Mean::by_rule(numbers, rule));
        let (mut rebuilt, mut left_out) = (Vec::new(), Vec::new());
        for (update, weight) in self.peer.rebuilt() {
            let pseudonym = self.pseudonyms[update as usize];
            match mean.add(&self.update(update)?, weight) {
                Ok(()) => rebuilt.push(pseudonym),
                Err(error) => left_out.push((pseudonym, error.to_string())),
            }
        }
        Ok(SwarmOutcome {
            mean: mean.finish().map_err(|error| invalid(&error))?,
            rebuilt,
            of: self.pseudonyms.len(),
            left_out,
            covered: self.covered,
            unprotected: self.peer.unprotected(),
            altered: self.peer.altered().iter().copied().collect(),
        })
    }

    fn update(&self, update: u32) -> Result<Vec<f32>, TaskError> {
        let chunks = self.layout.chunks;
        let mut bytes = Vec::with_capacity(self.layout.room());
        for chunk in update * chunks..(update + 1) * chunks {
            bytes.extend(self.shelf.get(chunk)?);
        }
        let (numbers, _) = bytes.as_chunks::<4>();
        let numbers = numbers.iter().take(self.numbers);
        Ok(numbers.map(|number| f32::from_le_bytes(*number)).collect())
    }

    /// How many chunks are here.
    #[cfg(test)]
    pub(super) fn held(&self) -> u32 {
        self.peer.held().len()
    }
}
