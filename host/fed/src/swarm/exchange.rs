use super::chunk::Chunk;
use super::inventory::Inventory;
use super::overlay::Client;
use std::collections::VecDeque;

/// Requests to one neighbour that may be unanswered at a time: enough to keep a link busy for a slot or two.
const PIPELINE: usize = 4;
/// Slots after which a request is given up: longer than a neighbour takes to get through what all of its neighbours may ask.
pub(crate) const LOST_AFTER: u32 = 16;

/// One client's side of the swarm after the warm-up: what it holds, what it knows its neighbours to hold, what it has asked them for and
/// they it. As in BitTorrent, it asks for the chunks that are rarest around it, and serves in the order of asking.
#[derive(Clone, Debug)]
pub struct Exchange {
    chunks: u32,
    held: Inventory,
    /// Held or asked for.
    promised: Inventory,
    /// By their numbers.
    neighbours: Vec<Neighbour>,
    /// How many neighbours hold each chunk.
    holders: Vec<u16>,
    queue: VecDeque<(Client, Chunk)>,
    slot: u32,
    random: fastrand::Rng,
}

#[derive(Clone, Debug)]
struct Neighbour {
    client: Client,
    held: Inventory,
    /// What it was asked for, and when.
    asked: Vec<(u32, Chunk)>,
}

/// What a neighbour says that cannot be.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// It is no neighbour.
    #[error("client {0} is no neighbour")]
    Stranger(Client),
    /// There is no such chunk in the round.
    #[error("there is no chunk {0}")]
    Unknown(Chunk),
    /// A list of chunks of another round.
    #[error("a list of chunks does not fit the round's {0}")]
    Inventory(u32),
    /// More requests than may be unanswered.
    #[error("client {0} asks for too much at a time")]
    TooMuch(Client),
    /// It is asked for what it does not hold.
    #[error("chunk {0} is not here")]
    NotHeld(Chunk),
}

impl Exchange {
    /// A client that holds this and knows these of its neighbours, in a round of so many chunks.
    ///
    /// # Errors
    ///
    /// A list does not fit the round.
    pub fn new(
        chunks: u32,
        held: Inventory,
        neighbours: impl IntoIterator<Item = (Client, Inventory)>,
        seed: u64,
    ) -> Result<Self, ExchangeError> {
        let mut known: Vec<_> = neighbours
            .into_iter()
            .map(|(client, held)| Neighbour {
                client,
                held,
                asked: Vec::new(),
            })
            .collect();
        known.sort_by_key(|neighbour| neighbour.client);
        known.dedup_by_key(|neighbour| neighbour.client);
        let fits = held.fits(chunks) && known.iter().all(|neighbour| neighbour.held.fits(chunks));
        if !fits {
            return Err(ExchangeError::Inventory(chunks));
        }
        let mut holders = vec![0; chunks as usize];
        for chunk in known.iter().flat_map(|neighbour| neighbour.held.iter()) {
            holders[chunk as usize] += 1;
        }
        Ok(Self {
            chunks,
            promised: held.clone(),
            held,
            neighbours: known,
            holders,
            queue: VecDeque::new(),
            slot: 0,
            random: fastrand::Rng::with_seed(seed),
        })
    }

    /// What it holds.
    pub const fn held(&self) -> &Inventory {
        &self.held
    }

    fn place(&self, client: Client) -> Option<usize> {
        self.neighbours
            .binary_search_by_key(&client, |known| known.client)
            .ok()
    }

    /// A neighbour has got a chunk.
    ///
    /// # Errors
    ///
    /// It is no neighbour, or there is no such chunk.
    pub fn has(&mut self, neighbour: Client, chunk: Chunk) -> Result<(), ExchangeError> {
        if chunk >= self.chunks {
            return Err(ExchangeError::Unknown(chunk));
        }
        let place = self.place(neighbour).ok_or(ExchangeError::Stranger(neighbour))?;
        self.learn(place, chunk);
        Ok(())
    }

    fn learn(&mut self, place: usize, chunk: Chunk) {
        self.holders[chunk as usize] += u16::from(self.neighbours[place].held.insert(chunk));
    }

    /// A neighbour has left: what it was asked for is asked for elsewhere.
    pub fn left(&mut self, neighbour: Client) {
        let Some(place) = self.place(neighbour) else {
            return;
        };
        let known = self.neighbours.remove(place);
        for chunk in known.held.iter() {
            self.holders[chunk as usize] -= 1;
        }
        for (_, chunk) in known.asked {
            if !self.held.contains(chunk) {
                self.promised.remove(chunk);
            }
        }
        self.queue.retain(|(asker, _)| *asker != neighbour);
    }

    /// Begins a slot in which at most `down` chunks can come: what to ask whom for.
    pub fn ask(&mut self, down: u32) -> Vec<(Client, Chunk)> {
        self.slot += 1;
        self.give_up_old();
        let under_way: usize = self.neighbours.iter().map(|known| known.asked.len()).sum();
        let mut room = (down as usize * 2).saturating_sub(under_way);
        let mut order: Vec<usize> = (0..self.neighbours.len()).collect();
        self.random.shuffle(&mut order);
        let mut asks = Vec::new();
        while room > 0 && !order.is_empty() {
            order.retain(|place| {
                let chunk = if room > 0 { self.next_from(*place) } else { None };
                let Some(chunk) = chunk else { return false };
                asks.push((self.neighbours[*place].client, chunk));
                room -= 1;
                true
            });
        }
        asks
    }

    /// The chunk to ask a neighbour for: of a few that it has and this client lacks, the one fewest neighbours have.
    fn next_from(&mut self, place: usize) -> Option<Chunk> {
        let known = &mut self.neighbours[place];
        if known.asked.len() >= PIPELINE {
            return None;
        }
        let holders = |chunk: Chunk| self.holders[chunk as usize].into();
        let chunk = known
            .held
            .draw_missing_in(&self.promised, &mut self.random, holders)?;
        self.promised.insert(chunk);
        known.asked.push((self.slot, chunk));
        Some(chunk)
    }

    fn give_up_old(&mut self) {
        for known in &mut self.neighbours {
            known.asked.retain(|(slot, chunk)| {
                let waits = slot + LOST_AFTER > self.slot;
                if !waits && !self.held.contains(*chunk) {
                    self.promised.remove(*chunk);
                }
                waits
            });
        }
    }

    /// A neighbour asks for a chunk.
    ///
    /// # Errors
    ///
    /// It is no neighbour, it asks for too much at a time, or for what is not here.
    pub fn asked(&mut self, neighbour: Client, chunk: Chunk) -> Result<(), ExchangeError> {
        if self.place(neighbour).is_none() {
            return Err(ExchangeError::Stranger(neighbour));
        }
        if !self.held.contains(chunk) {
            return Err(ExchangeError::NotHeld(chunk));
        }
        let waiting = self.queue.iter().filter(|(asker, _)| *asker == neighbour).count();
        if waiting >= 4 * PIPELINE {
            return Err(ExchangeError::TooMuch(neighbour));
        }
        if !self.queue.contains(&(neighbour, chunk)) {
            self.queue.push_back((neighbour, chunk));
        }
        Ok(())
    }

    /// The next chunk to send, and to whom; `ready` says whether a neighbour can take one now.
    pub fn serve(&mut self, mut ready: impl FnMut(Client) -> bool) -> Option<(Client, Chunk)> {
        let place = self.queue.iter().position(|(asker, _)| ready(*asker))?;
        self.queue.remove(place)
    }

    /// A chunk has arrived from a neighbour and is what its descriptor says; whether it is new.
    pub fn received(&mut self, from: Client, chunk: Chunk) -> bool {
        if chunk >= self.chunks {
            return false;
        }
        if let Some(place) = self.place(from) {
            self.neighbours[place].asked.retain(|(_, asked)| *asked != chunk);
            self.learn(place, chunk);
        }
        self.promised.insert(chunk);
        self.held.insert(chunk)
    }

    /// What a neighbour sent was not what its descriptor says, or it does not have it: it is not asked for that again.
    pub fn refused(&mut self, from: Client, chunk: Chunk) {
        let Some(place) = self.place(from) else {
            return;
        };
        let known = &mut self.neighbours[place];
        let before = known.asked.len();
        known.asked.retain(|(_, asked)| *asked != chunk);
        let was_asked = known.asked.len() < before;
        if known.held.remove(chunk) {
            self.holders[chunk as usize] -= 1;
        }
        // Whoever was not asked takes no request away that is under way elsewhere.
        if was_asked && !self.held.contains(chunk) {
            self.promised.remove(chunk);
        }
    }
}
