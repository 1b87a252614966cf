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
    gate: Gate,
    cover: u32,
    on_offer: usize,
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
            gate: settings.gate,
            cover: settings.cover(links.len()),
            on_offer: settings.on_offer as usize,
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
        let hidden = self.seat(client).offer.len() + self.on_offer as u32 >= self.cover;
        let opens = match self.gate {
            Gate::Strict | Gate::Fallback => hidden,
            Gate::Throttled => true,
            Gate::Open => false,
        };
        if !opens {
            return;
        }
        let neighbours = self.overlay.neighbours(client);
        let lacked = |chunk: &Chunk| {
            let lacks = |other: &Client| !self.seats[usize::from(*other)].promised.contains(*chunk);
            neighbours.iter().any(lacks)
        };
        let mut window = self.seat(client).window.clone();
        window.retain(lacked);
        let on_offer = self.on_offer;
        let seat = self.seat_mut(client);
        while window.len() < on_offer {
            window.push(seat.own[seat.offered % seat.own.len()]);
            seat.offered += 1;
        }
        seat.window = window;
    }

    /// A chunk that one could send another: of others, the one fewest hold of a few.
    pub(crate) fn find_cover(&mut self, from: Client, to: Client) -> Option<Chunk> {
        let (from, to) = (&self.seats[usize::from(from)], &self.seats[usize::from(to)]);
        let holders = |chunk: Chunk| self.holders[chunk as usize].into();
        from.offer
            .draw_missing_in(&to.promised, &mut self.random, holders)
    }

    /// A chunk of its own that one has on offer for another.
    pub(crate) fn find_offered(&self, from: Client, to: Client) -> Option<Chunk> {
        let (window, to) = (&self.seat(from).window, self.seat(to));
        window.iter().copied().find(|chunk| !to.promised.contains(*chunk))
    }

    /// Any chunk of its own that one has for another, where the gate lets that be.
    pub(crate) fn find_unprotected(&self, from: Client, to: Client) -> Option<Chunk> {
        let (own, to) = (&self.seat(from).own, self.seat(to));
        let missing = || own.iter().copied().find(|chunk| !to.promised.contains(*chunk));
        (self.gate == Gate::Fallback).then(missing).flatten()
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
