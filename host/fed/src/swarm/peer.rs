use super::board::{Ground, Transfer};
use super::chunk::{Chunk, ChunkError, Descriptor, Layout};
use super::exchange::{Exchange, ExchangeError};
use super::inventory::Inventory;
use super::overlay::Client;
use super::settings::{Gate, SwarmSettings};
use karman_types::Digest;
use std::collections::{BTreeMap, BTreeSet};

/// One client in a round without a server in the middle. It knows what it holds, not the bytes: whoever drives it keeps those.
///
/// It does what the coordinator says only as far as what was agreed on goes: a chunk of its own leaves under the gate, whatever it is told;
/// what is not what its descriptor says is not taken. What it refuses no coordinator says that keeps to the rules, however much of what it
/// told is lost on its way: the client may leave the round for it.
#[derive(Clone, Debug)]
pub struct Peer {
    me: Client,
    layout: Layout,
    settings: SwarmSettings,
    descriptors: Vec<Descriptor>,
    own: u32,
    held: Inventory,
    /// Own chunks that it was told to send in this slot.
    offered: Inventory,
    /// Own chunks that it was told to give away: no more than was agreed on.
    sprayed: Inventory,
    /// To whom it was told to give those, and to whom anything else: the ones are no neighbours, and the others are.
    strangers: BTreeSet<Client>,
    neighbours: BTreeSet<Client>,
    /// Own chunks that it was told to send to each outside of any cover.
    uncovered: BTreeMap<Client, BTreeSet<Chunk>>,
    /// How many chunks of others it held when the coordinator last heard of it.
    reported: u32,
    unprotected: u32,
    /// Whoever sent it what is not the chunk that it was said to be.
    altered: BTreeSet<Client>,
    exchange: Option<Exchange>,
}

/// What is wrong with what a peer is told.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// A chunk that is not what it should be.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// Something that cannot be in the exchange.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Told to send what it does not hold, on behalf of somebody else, or as its own what is not.
    #[error("this client cannot send chunk {0}")]
    NotMine(Chunk),
    /// Told to send a chunk of its own where the gate forbids it.
    #[error("chunk {0} is this client's own and not hidden by enough others")]
    Uncovered(Chunk),
    /// Told to send to itself, or to nobody.
    #[error("chunk {chunk} cannot go to client {to}")]
    Nowhere {
        /// Which.
        chunk: Chunk,
        /// To whom.
        to: Client,
    },
    /// One that is a neighbour at one time and none at another.
    #[error("client {0} is sprayed to, as neighbours are not, and told to be a neighbour")]
    Overlay(Client),
    /// The warm-up is to be over, and this client's own chunks would not be hidden.
    #[error(
        "{held} chunks are here at the end of the warm-up, and {cover} have to be, to hide this client's own"
    )]
    NoCover {
        /// What it holds.
        held: u32,
        /// What it should hold.
        cover: u32,
    },
    /// The exchange is to begin, and there is nobody to exchange anything with.
    #[error("no neighbour is left to exchange chunks with")]
    Alone,
    /// Its own update is not among the descriptors, or a descriptor is there twice or out of order.
    #[error("the descriptors are not those of a round with this client in it")]
    Descriptors,
    /// The warm-up is not over.
    #[error("the exchange has not begun")]
    WarmUp,
}

impl Peer {
    /// A client whose update has this descriptor, among all of a round in order.
    ///
    /// # Errors
    ///
    /// A descriptor does not fit the round, or its own is not among them.
    pub fn new(
        settings: &SwarmSettings,
        me: Client,
        own: &Digest,
        descriptors: Vec<Descriptor>,
    ) -> Result<Self, PeerError> {
        let layout = settings.layout;
        layout.check()?;
        descriptors
            .iter()
            .try_for_each(|descriptor| descriptor.check(&layout, settings.most_weight))?;
        let digests: Vec<_> = descriptors.iter().map(Descriptor::digest).collect();
        if !digests.is_sorted_by(|one, other| one < other) || digests.len() > SwarmSettings::MOST_CLIENTS {
            return Err(PeerError::Descriptors);
        }
        let own = digests.binary_search(own).map_err(|_| PeerError::Descriptors)? as u32;
        let all = descriptors.len() as u32 * layout.chunks;
        let mut held = Inventory::none(all);
        for chunk in own * layout.chunks..(own + 1) * layout.chunks {
            held.insert(chunk);
        }
        Ok(Self {
            me,
            layout,
            settings: *settings,
            descriptors,
            own,
            held,
            offered: Inventory::none(all),
            sprayed: Inventory::none(all),
            strangers: BTreeSet::new(),
            neighbours: BTreeSet::new(),
            uncovered: BTreeMap::new(),
            reported: 0,
            unprotected: 0,
            altered: BTreeSet::new(),
            exchange: None,
        })
    }

    /// What it holds.
    pub fn held(&self) -> &Inventory {
        self.exchange.as_ref().map_or(&self.held, Exchange::held)
    }

    /// Chunks of its own that left without the protection of the gate.
    pub const fn unprotected(&self) -> u32 {
        self.unprotected
    }

    /// A slot of the warm-up begins.
    pub fn begin_slot(&mut self) {
        self.offered = Inventory::none(self.chunks());
    }

    /// What it holds, for the coordinator.
    pub fn report(&mut self) -> Inventory {
        self.reported = self.held().len().saturating_sub(self.layout.chunks);
        self.held().clone()
    }

    /// The coordinator tells it to send a chunk.
    ///
    /// # Errors
    ///
    /// It does not: it does not hold the chunk, nobody is there to get it, or the chunk is its own and the gate forbids it.
    pub fn told(&mut self, transfer: &Transfer) -> Result<(), PeerError> {
        let Transfer {
            from,
            to,
            chunk,
            ground,
        } = *transfer;
        if from != self.me || !self.held().contains(chunk) {
            return Err(PeerError::NotMine(chunk));
        }
        if to == self.me || usize::from(to) >= self.descriptors.len() {
            return Err(PeerError::Nowhere { chunk, to });
        }
        let sprays = ground == Ground::Spray;
        let otherwise = if sprays { &self.neighbours } else { &self.strangers };
        if otherwise.contains(&to) {
            return Err(PeerError::Overlay(to));
        }
        let is_own = chunk / self.layout.chunks == self.own;
        match ground {
            Ground::Cover if !is_own => {}
            _ if !is_own => return Err(PeerError::NotMine(chunk)),
            Ground::Cover => return Err(PeerError::Uncovered(chunk)),
            Ground::Spray => self.sprays(chunk)?,
            Ground::Offered => self.offers(chunk)?,
            Ground::Unprotected => self.falls_back(to, chunk)?,
        }
        let same = if sprays {
            &mut self.strangers
        } else {
            &mut self.neighbours
        };
        same.insert(to);
        Ok(())
    }

    /// No more than was agreed on. It may be told twice.
    fn sprays(&mut self, chunk: Chunk) -> Result<(), PeerError> {
        let room = self.sprayed.contains(chunk) || self.sprayed.len() < self.settings.sprayed();
        if !room {
            return Err(PeerError::Uncovered(chunk));
        }
        self.sprayed.insert(chunk);
        Ok(())
    }

    /// As many at a time as what it holds of others hides.
    fn offers(&mut self, chunk: Chunk) -> Result<(), PeerError> {
        let others = self.held.len() - self.layout.chunks;
        let on_offer = self.settings.on_offer(others, self.descriptors.len());
        let room = self.offered.contains(chunk) || self.offered.len() < on_offer;
        if !room {
            return Err(PeerError::Uncovered(chunk));
        }
        self.offered.insert(chunk);
        Ok(())
    }

    /// Where a receiver that has no cover yet can get nothing else from anybody around it. Of that a client knows its own part: the
    /// receiver has, or is being sent, its own update, all that the coordinator knows to be here of others', and what it was told to send to it
    /// before, each after all that come before it; and that is less than a cover.
    fn falls_back(&mut self, to: Client, chunk: Chunk) -> Result<(), PeerError> {
        match self.settings.gate {
            Gate::Open => {}
            Gate::Strict | Gate::Throttled => return Err(PeerError::Uncovered(chunk)),
            Gate::Fallback | Gate::Blended => {
                let cover = self.settings.cover(self.descriptors.len());
                let before = self.uncovered.get(&to).filter(|sent| !sent.contains(&chunk));
                let before = before.map_or(0, |sent| sent.len() as u32);
                if self.reported.max(self.layout.chunks + before) >= cover {
                    return Err(PeerError::Uncovered(chunk));
                }
                self.uncovered.entry(to).or_default().insert(chunk);
            }
        }
        self.unprotected += 1;
        Ok(())
    }

    /// Whether the exchange may begin with these neighbours: the coordinator says that the warm-up is over. A client that is `protected` has
    /// its own cover then, whatever the others have.
    ///
    /// # Errors
    ///
    /// It has not, there are none, or one is no client or was none of its neighbours before.
    pub fn check_end(
        &self,
        neighbours: impl IntoIterator<Item = Client>,
        protected: bool,
    ) -> Result<(), PeerError> {
        let clients = self.descriptors.len();
        let mut alone = true;
        for neighbour in neighbours {
            alone = false;
            if self.strangers.contains(&neighbour)
                || neighbour == self.me
                || usize::from(neighbour) >= clients
            {
                return Err(PeerError::Overlay(neighbour));
            }
        }
        let (held, cover) = (self.held().len(), self.settings.cover(clients));
        match protected && held < cover {
            true => Err(PeerError::NoCover { held, cover }),
            false if alone => Err(PeerError::Alone),
            false => Ok(()),
        }
    }

    /// What a chunk of the round hashes to.
    pub fn digest(&self, chunk: Chunk) -> Option<Digest> {
        let (update, place) = (chunk / self.layout.chunks, chunk % self.layout.chunks);
        let descriptor = self.descriptors.get(update as usize)?;
        descriptor.chunks.get(place as usize).copied()
    }

    /// Bytes have come that are said to be this chunk. Whether it is new: then it is to be kept, and told of.
    ///
    /// # Errors
    ///
    /// They are not that chunk; the exchange does not ask the sender for it again, and [`Peer::altered`] names it.
    pub fn received(&mut self, from: Client, chunk: Chunk, bytes: &[u8]) -> Result<bool, PeerError> {
        let fits = bytes.len() == self.layout.chunk as usize;
        self.hashed(from, chunk, fits.then(|| Digest::of(bytes)))
    }

    /// As [`Peer::received`], where somebody else has hashed the bytes; nothing where they are too few or too many.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn hashed(&mut self, from: Client, chunk: Chunk, digest: Option<Digest>) -> Result<bool, PeerError> {
        let right = self.digest(chunk).ok_or(ChunkError::Unknown(chunk))?;
        if digest != Some(right) {
            // What somebody passed on that could not look into it says nothing of that one.
            if from != self.me {
                self.altered.insert(from);
            }
            if let Some(exchange) = &mut self.exchange {
                exchange.refused(from, chunk);
            }
            return Err(ChunkError::Altered(chunk).into());
        }
        Ok(match &mut self.exchange {
            Some(exchange) => exchange.received(from, chunk),
            None => self.held.insert(chunk),
        })
    }

    /// The warm-up is over: what its neighbours hold, and a seed to draw by. From now on it asks and is asked ([`Peer::exchange`]).
    ///
    /// # Errors
    ///
    /// A list does not fit the round.
    pub fn swarm(
        &mut self,
        neighbours: impl IntoIterator<Item = (Client, Inventory)>,
        seed: u64,
    ) -> Result<(), PeerError> {
        self.exchange = Some(Exchange::new(self.chunks(), self.held.clone(), neighbours, seed)?);
        Ok(())
    }

    /// The exchange.
    ///
    /// # Errors
    ///
    /// The warm-up is not over.
    pub fn exchange(&mut self) -> Result<&mut Exchange, PeerError> {
        self.exchange.as_mut().ok_or(PeerError::WarmUp)
    }

    /// The clients that have sent it bytes that are not the chunk they were said to be: what it tells of the others after the round
    /// ([`super::audit()`]).
    pub const fn altered(&self) -> &BTreeSet<Client> {
        &self.altered
    }

    /// How many chunks it has to have where it has fewer: its cover, and once the warm-up is over all.
    pub fn needed(&self) -> Option<u32> {
        let needed = match self.exchange {
            Some(_) => self.chunks(),
            None => self.settings.cover(self.descriptors.len()),
        };
        (self.held().len() < needed).then_some(needed)
    }

    /// The updates whose chunks are all here, in the order of their descriptors, with their weights: what it aggregates
    /// ([`super::Mean`]).
    pub fn rebuilt(&self) -> Vec<(u32, u32)> {
        let chunks = self.layout.chunks;
        let whole = |update: &u32| self.held().has_all(update * chunks..(update + 1) * chunks);
        let all = (0..self.descriptors.len() as u32).filter(whole);
        all.map(|update| (update, self.descriptors[update as usize].weight))
            .collect()
    }

    fn chunks(&self) -> u32 {
        self.descriptors.len() as u32 * self.layout.chunks
    }
}
