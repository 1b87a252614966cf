use super::board::{Board, Ground, Transfer};
use super::chunk::Chunk;
use super::inventory::Inventory;
use super::overlay::{Client, Overlay};
use super::schedule::schedule;
use super::settings::{Link, SwarmError, SwarmSettings};
use karman_types::Digest;
use std::collections::VecDeque;

/// Slots after which a transfer that was not acknowledged is taken for lost.
const LOST_AFTER: u32 = 3;

/// The coordinator of a round without a server in the middle. It sees which chunks go where, and never a chunk.
///
/// Slot after slot ([`Coordinator::next_slot`]) it says who sends what to whom, first the spray, then the warm-up; what has arrived is
/// told to it ([`Coordinator::delivered`]). When everybody who is still there has its cover the warm-up is over ([`Phase`]) and the
/// clients go on by themselves ([`super::Exchange`]). It knows whose update is whose; a round's clients must not share its interests.
pub struct Coordinator {
    settings: SwarmSettings,
    update_of: Vec<u32>,
    order: Vec<Digest>,
    board: Board,
    spray: VecDeque<Transfer>,
    slot: u32,
    /// The first slot after the spray.
    warm_since: Option<u32>,
    phase: Phase,
    /// Not acknowledged yet, by slot.
    under_way: VecDeque<(u32, Client, Chunk)>,
    /// Arrived since the last slot.
    fresh: Vec<(Client, Chunk)>,
}

/// Where a round is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Chunks are given away to clients that are not neighbours.
    Spray,
    /// Chunks go round until everybody has its cover.
    WarmUp,
    /// The clients exchange the rest by themselves.
    Swarming {
        /// Whether everybody who is there has its cover. If not, the round's promise is void.
        covered: bool,
    },
}

impl Coordinator {
    /// A round of clients with these links and these updates (the digest of each one's [`super::Descriptor`]). Everything random is drawn
    /// from the seed. It has to be secret and stay so: it shows whose update is whose.
    ///
    /// # Errors
    ///
    /// The settings make no round, or two descriptors are the same.
    pub fn new(
        settings: SwarmSettings,
        links: &[Link],
        descriptors: &[Digest],
        seed: [u8; 32],
    ) -> Result<Self, SwarmError> {
        settings.check(links)?;
        if descriptors.len() != links.len() {
            return Err(SwarmError::Clients {
                clients: descriptors.len(),
            });
        }
        let mut order = descriptors.to_vec();
        order.sort_unstable();
        if order.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(SwarmError::Repeated);
        }
        let update_of: Vec<u32> = descriptors
            .iter()
            .map(|digest| order.partition_point(|other| other < digest) as u32)
            .collect();
        let overlay = overlay(&settings, links.len(), &seed);
        let board = Board::new(&settings, overlay, links, &update_of, random(&seed, b"clients"));
        let spray = spray(&settings, &board, &seed);
        Ok(Self {
            settings,
            update_of,
            order,
            board,
            spray,
            slot: 0,
            warm_since: None,
            phase: Phase::Spray,
            under_way: VecDeque::new(),
            fresh: Vec::new(),
        })
    }

    /// What a round of this seed is called. It does not tell the seed.
    pub fn round(seed: &[u8; 32]) -> Digest {
        Digest::of(&[b"karman swarm seed".as_slice(), seed].concat())
    }

    /// Who exchanges chunks with whom.
    pub const fn overlay(&self) -> &Overlay {
        &self.board.overlay
    }

    /// The descriptors' digests in the order in which updates are numbered.
    pub fn updates(&self) -> &[Digest] {
        &self.order
    }

    /// The number of a client's update: what the coordinator must not tell.
    pub fn update_of(&self, client: Client) -> Option<u32> {
        self.update_of.get(usize::from(client)).copied()
    }

    /// What it knows a client to hold.
    pub fn held(&self, client: Client) -> Option<&Inventory> {
        self.board.seats.get(usize::from(client)).map(|seat| &seat.held)
    }

    /// What a client could send in this slot without laying itself open.
    pub fn offer(&self, client: Client) -> Option<&Inventory> {
        self.board.seats.get(usize::from(client)).map(|seat| &seat.offer)
    }

    /// The slots that have begun.
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// Where the round is.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Begins the next slot: what is sent in it. Nothing once the clients are by themselves.
    pub fn next_slot(&mut self) -> Vec<Transfer> {
        for (client, chunk) in std::mem::take(&mut self.fresh) {
            self.board.take_in(client, chunk);
        }
        self.forget_lost();
        self.advance();
        let slot = self.slot;
        self.slot += 1;
        let transfers = match self.phase {
            Phase::Spray => {
                self.board.open_slot(None);
                self.spray_slot()
            }
            Phase::WarmUp => {
                self.board.open_slot(Some(slot - self.warm_since.unwrap_or(slot)));
                let transfers = schedule(&mut self.board, self.settings.scheduler);
                self.board.close_slot(&transfers);
                transfers
            }
            Phase::Swarming { .. } => return Vec::new(),
        };
        self.under_way.extend(
            transfers
                .iter()
                .map(|transfer| (slot, transfer.to, transfer.chunk)),
        );
        transfers
    }

    /// A chunk has arrived and is what its descriptor says. It may be sent on from the next slot.
    pub fn delivered(&mut self, to: Client, chunk: Chunk) {
        let slot = self.slot;
        let Some(seat) = self.board.seats.get_mut(usize::from(to)) else {
            return;
        };
        seat.heard = slot;
        if chunk < self.order.len() as u32 * self.settings.layout.chunks && seat.held.insert(chunk) {
            seat.promised.insert(chunk);
            self.fresh.push((to, chunk));
        }
    }

    /// A client has left the round.
    pub fn left(&mut self, client: Client) {
        if let Some(seat) = self.board.seats.get_mut(usize::from(client)) {
            seat.left = true;
        }
    }

    /// Clients that are there and have not been silent for too long.
    fn is_active(&self, client: usize) -> bool {
        let seat = &self.board.seats[client];
        let since = self.slot - seat.heard.max(self.warm_since.unwrap_or(self.slot));
        !seat.left && (since < self.settings.silence || seat.held.len() >= self.cover())
    }

    fn cover(&self) -> u32 {
        self.settings.cover(self.order.len())
    }

    fn advance(&mut self) {
        if self.phase == Phase::Spray && self.spray.is_empty() {
            self.phase = Phase::WarmUp;
            self.warm_since = Some(self.slot);
        }
        if self.phase != Phase::WarmUp {
            return;
        }
        let cover = self.cover();
        let mut active: Vec<_> = (0..self.board.seats.len()).collect();
        active.retain(|client| self.is_active(*client));
        let covered = |client: &usize| self.board.seats[*client].held.len() >= cover;
        if !active.is_empty() && active.iter().all(covered) {
            self.phase = Phase::Swarming { covered: true };
        } else if self.slot >= self.settings.patience {
            self.phase = Phase::Swarming { covered: false };
        }
    }

    /// As much of the spray as the links carry in a slot; the rest waits.
    fn spray_slot(&mut self) -> Vec<Transfer> {
        let mut transfers = Vec::new();
        let mut rest = VecDeque::new();
        for transfer in std::mem::take(&mut self.spray) {
            let Transfer {
                from,
                to,
                chunk,
                ground,
            } = transfer;
            let gone = self.board.seat(from).left || self.board.seat(to).left;
            if gone || self.board.seat(to).promised.contains(chunk) {
                continue;
            }
            match self.board.up[usize::from(from)] > 0 && self.board.down[usize::from(to)] > 0 {
                true => transfers.push(self.board.assign(from, to, chunk, ground)),
                false => rest.push_back(transfer),
            }
        }
        self.spray = rest;
        transfers
    }

    /// What was not acknowledged in time may be sent again.
    fn forget_lost(&mut self) {
        while let Some((slot, to, chunk)) = self.under_way.front().copied() {
            let arrived = self.board.seat(to).held.contains(chunk);
            if !arrived && slot + LOST_AFTER > self.slot {
                break;
            }
            if !arrived {
                self.board.seat_mut(to).promised.remove(chunk);
            }
            self.under_way.pop_front();
        }
    }
}

pub(crate) fn random(seed: &[u8; 32], purpose: &[u8]) -> fastrand::Rng {
    let digest = Digest::of(&[seed.as_slice(), purpose].concat());
    let mut word = [0; 8];
    word.copy_from_slice(&digest.as_bytes()[..8]);
    fastrand::Rng::with_seed(u64::from_le_bytes(word))
}

pub(crate) fn overlay(settings: &SwarmSettings, clients: usize, seed: &[u8; 32]) -> Overlay {
    Overlay::draw(clients, settings.neighbours, &mut random(seed, b"overlay"))
}

/// Each owner gives a share of its chunks away, each to somebody that is no neighbour: who has it then did not get it from whom one
/// would think.
fn spray(settings: &SwarmSettings, board: &Board, seed: &[u8; 32]) -> VecDeque<Transfer> {
    let mut random = random(seed, b"spray");
    let clients = board.seats.len();
    let mut spray = Vec::new();
    for from in 0..clients as Client {
        let strangers: Vec<Client> = (0..clients as Client)
            .filter(|to| *to != from && !board.overlay.are_neighbours(from, *to))
            .collect();
        let mut own = board.seat(from).own.clone();
        random.shuffle(&mut own);
        for chunk in own.into_iter().take(settings.sprayed() as usize) {
            if let Some(to) = random.choice(&strangers) {
                spray.push(Transfer {
                    from,
                    to: *to,
                    chunk,
                    ground: Ground::Spray,
                });
            }
        }
    }
    random.shuffle(&mut spray);
    spray.into()
}
