use super::board::{Ground, Transfer};
use super::chunk::{Chunk, ChunkError, Descriptor, Layout};
use super::exchange::{Exchange, ExchangeError};
use super::inventory::Inventory;
use super::overlay::Client;
use super::settings::{Gate, SwarmSettings};
use karman_types::Digest;

/// One client in a round without a server in the middle. It knows what it holds, not the bytes: whoever drives it keeps those.
///
/// It does what the coordinator says only as far as its own rules go: a chunk of its own leaves under the gate that was agreed on,
/// whatever it is told; what is not what its descriptor says is not taken.
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
    unprotected: u32,
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
    /// Told to send what it does not hold, or on behalf of somebody else.
    #[error("this client cannot send chunk {0}")]
    NotMine(Chunk),
    /// Told to send a chunk of its own where the gate forbids it.
    #[error("chunk {0} is this client's own and not hidden by enough others")]
    Uncovered(Chunk),
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
            unprotected: 0,
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

    /// The coordinator tells it to send a chunk.
    ///
    /// # Errors
    ///
    /// It does not: it does not hold the chunk, or the chunk is its own and the gate forbids it.
    pub fn told(&mut self, transfer: &Transfer) -> Result<(), PeerError> {
        let chunk = transfer.chunk;
        if transfer.from != self.me || !self.held().contains(chunk) {
            return Err(PeerError::NotMine(chunk));
        }
        if chunk / self.layout.chunks != self.own {
            return Ok(());
        }
        if transfer.ground == Ground::Spray {
            // It may be told twice.
            let room = self.sprayed.contains(chunk) || self.sprayed.len() < self.settings.sprayed();
            if !room {
                return Err(PeerError::Uncovered(chunk));
            }
            self.sprayed.insert(chunk);
            return Ok(());
        }
        let others = self.held.len() - self.layout.chunks;
        let on_offer = self.settings.on_offer(others, self.descriptors.len());
        let room = self.offered.contains(chunk) || self.offered.len() < on_offer;
        if room && transfer.ground == Ground::Offered {
            self.offered.insert(chunk);
            return Ok(());
        }
        match self.settings.falls_back() || self.settings.gate == Gate::Open {
            false => Err(PeerError::Uncovered(chunk)),
            true => {
                self.unprotected += 1;
                Ok(())
            }
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
    /// They are not that chunk; the exchange does not ask the sender for it again.
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
