use super::chunk::Chunk;
use super::inventory::Inventory;
use super::overlay::{Client, Overlay};
use super::settings::{Gate, Link, SwarmSettings};
use serde::{Deserialize, Serialize};

/// One chunk from one client to another, in one slot.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Transfer {
    /// Who sends.
    pub from: Client,
    /// Who receives.
    pub to: Client,
    /// Which chunk.
    pub chunk: Chunk,
    /// On what ground.
    pub ground: Ground,
}

/// Why a transfer may be.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ground {
    /// Given away before the warm-up, through a connection of its own.
    Spray,
    /// Not the sender's own.
    Cover,
    /// The sender's own, on offer among its cover.
    Offered,
    /// The sender's own, outside any bound.
    Unprotected,
}

/// What the coordinator knows of a client in the warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) link: Link,
    pub(crate) lag: u32,
    /// Its own chunks, in the order in which they are offered.
    pub(crate) own: Vec<Chunk>,
    /// How many of those were offered.
    offered: usize,
    /// Those on offer now.
    window: Vec<Chunk>,
    /// What it holds.
    pub(crate) held: Inventory,
    /// What it holds or is on its way to it.
    pub(crate) promised: Inventory,
    /// What it may send: of others, since the slot before; its own too where there is no gate.
    pub(crate) offer: Inventory,
    /// The slot of its last delivery.
    pub(crate) heard: u32,
    /// Whether it has left.
    pub(crate) left: bool,
}

/// All that a slot's transfers are chosen from.
pub(crate) struct Board {
    pub(crate) overlay: Overlay,
    pub(crate) seats: Vec<Seat>,
    /// How many clients hold each chunk.
    holders: Vec<u16>,
    settings: SwarmSettings,
    /// What is left of each client's slot.
    pub(crate) up: Vec<u32>,
    pub(crate) down: Vec<u32>,
    pub(crate) random: fastrand::Rng,
}

impl Board {
    /// Everybody holds its own chunks only.
    pub(crate) fn new(
        settings: &SwarmSettings,
        overlay: Overlay,
        links: &[Link],
        update_of: &[u32],
        mut random: fastrand::Rng,
    ) -> Self {
        let chunks = settings.layout.chunks;
        let all = links.len() as u32 * chunks;
        let seats = links.iter().zip(update_of).map(|(link, update)| {
            let mut own: Vec<Chunk> = (update * chunks..(update + 1) * chunks).collect();
            random.shuffle(&mut own);
            let mut held = Inventory::none(all);
            own.iter().for_each(|chunk| {
                held.insert(*chunk);
            });
            let offer = if settings.gate == Gate::Open {
                held.clone()
            } else {
                Inventory::none(all)
            };
            let lag = random.u32(..settings.lags);
            let promised = held.clone();
            Seat {
                link: *link,
                lag,
                own,
                offered: 0,
                window: Vec::new(),
                held,
                promised,
                offer,
                heard: 0,
                left: false,
            }
        });
        Self {
            seats: seats.collect(),
            holders: vec![1; all as usize],
            settings: *settings,
            up: vec![0; links.len()],
            down: vec![0; links.len()],
            overlay,
            random,
        }
    }

    pub(crate) fn seat(&self, client: Client) -> &Seat {
        &self.seats[usize::from(client)]
    }

    pub(crate) fn seat_mut(&mut self, client: Client) -> &mut Seat {
        &mut self.seats[usize::from(client)]
    }

    /// What arrived in the slot before may be sent from now on.
    pub(crate) fn take_in(&mut self, client: Client, chunk: Chunk) {
        let seat = self.seat_mut(client);
        if !is_own(seat, chunk) {
            seat.offer.insert(chunk);
        }
        self.holders[chunk as usize] = self.holders[chunk as usize].saturating_add(1);
    }

    /// A slot's budgets; a client that has left, or whose lag is not over, sends nothing. Own chunks that were sent make room for the
    /// next ones.
    pub(crate) fn open_slot(&mut self, since_spray: Option<u32>) {
        for place in 0..self.seats.len() {
            let seat = &self.seats[place];
            let sends = !seat.left && since_spray.is_none_or(|slots| slots >= seat.lag);
            self.up[place] = if sends { seat.link.up } else { 0 };
            self.down[place] = if seat.left { 0 } else { seat.link.down };
            self.fill_window(place as Client);
        }
    }

    /// Puts own chunks on offer, as far as the gate is open, in place of those that were sent or that nobody lacks.
    fn fill_window(&mut self, client: Client) {
        let on_offer = self
            .settings
            .on_offer(self.seat(client).offer.len(), self.seats.len()) as usize;
        if on_offer == 0 {
            return;
        }
        let neighbours = self.overlay.neighbours(client);
        let lacked = |chunk: &Chunk| {
            let lacks = |other: &Client| !self.seats[usize::from(*other)].promised.contains(*chunk);
            neighbours.iter().any(lacks)
        };
        let mut window = self.seat(client).window.clone();
        window.retain(lacked);
        let seat = self.seat_mut(client);
        while window.len() < on_offer {
            window.push(seat.own[seat.offered % seat.own.len()]);
            seat.offered += 1;
        }
        seat.window = window;
    }

    /// A chunk that one could send another: of others, the one fewest hold of a few. Through a blended gate, any of those and of its own
    /// that are on offer, all with the same chance.
    pub(crate) fn find_cover(&mut self, from: Client, to: Client) -> Option<(Chunk, Ground)> {
        let (sender, receiver) = (&self.seats[usize::from(from)], &self.seats[usize::from(to)]);
        if self.settings.gate != Gate::Blended {
            let holders = |chunk: Chunk| self.holders[chunk as usize].into();
            let chunk = sender
                .offer
                .draw_missing_in(&receiver.promised, &mut self.random, holders)?;
            return Some((chunk, Ground::Cover));
        }
        let own: Vec<Chunk> = sender
            .window
            .iter()
            .copied()
            .filter(|chunk| !receiver.promised.contains(*chunk))
            .collect();
        let others = sender.offer.count_missing_in(&receiver.promised) as usize;
        if others == 0 {
            // Nothing to blend in with.
            return None;
        }
        match own.get(self.random.usize(..own.len() + others)) {
            Some(chunk) => Some((*chunk, Ground::Offered)),
            None => {
                let chunk = sender
                    .offer
                    .draw_missing_in(&receiver.promised, &mut self.random, |_| 0)?;
                Some((chunk, Ground::Cover))
            }
        }
    }

    /// A chunk of its own that one has on offer for another.
    pub(crate) fn find_offered(&self, from: Client, to: Client) -> Option<(Chunk, Ground)> {
        if self.settings.gate == Gate::Blended {
            return None;
        }
        let (window, to) = (&self.seat(from).window, self.seat(to));
        let chunk = window
            .iter()
            .copied()
            .find(|chunk| !to.promised.contains(*chunk))?;
        Some((chunk, Ground::Offered))
    }

    /// Any chunk of its own that one has for another, where the gate lets that be: the other has no cover yet, and nobody around it has anything
    /// else for it, now or once links are free again.
    pub(crate) fn find_unprotected(&self, from: Client, to: Client) -> Option<(Chunk, Ground)> {
        if !self.settings.falls_back() {
            return None;
        }
        let (own, promised) = (&self.seat(from).own, &self.seat(to).promised);
        if promised.len() >= self.settings.cover(self.seats.len()) {
            return None;
        }
        let chunk = own.iter().copied().find(|chunk| !promised.contains(*chunk))?;
        let mut neighbours = self
            .overlay
            .neighbours(to)
            .iter()
            .filter(|other| !self.seat(**other).left);
        let alone = neighbours.all(|other| self.seat(*other).offer.missing_in(promised).next().is_none());
        alone.then_some((chunk, Ground::Unprotected))
    }

    /// Settles a transfer.
    pub(crate) fn assign(&mut self, from: Client, to: Client, chunk: Chunk, ground: Ground) -> Transfer {
        self.up[usize::from(from)] -= 1;
        self.down[usize::from(to)] -= 1;
        self.seat_mut(to).promised.insert(chunk);
        let own = is_own(self.seat(from), chunk);
        let ground = if own && ground == Ground::Cover {
            Ground::Unprotected
        } else {
            ground
        };
        Transfer {
            from,
            to,
            chunk,
            ground,
        }
    }

    /// Chunks of the sender's own that were sent make room, from the next slot on.
    pub(crate) fn close_slot(&mut self, transfers: &[Transfer]) {
        for transfer in transfers
            .iter()
            .filter(|transfer| transfer.ground == Ground::Offered)
        {
            self.seat_mut(transfer.from)
                .window
                .retain(|chunk| *chunk != transfer.chunk);
        }
    }
}

fn is_own(seat: &Seat, chunk: Chunk) -> bool {
    let chunks = seat.own.len() as u32;
    seat.own
        .first()
        .is_some_and(|first| first / chunks == chunk / chunks)
}
