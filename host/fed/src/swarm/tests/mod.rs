//! Whole rounds: coordinator and peers, with real bytes.

mod audits;
mod gates;
mod rounds;
mod rules;
mod schedules;

use super::*;
use karman_types::Digest;
use std::collections::{BTreeMap, BTreeSet};

/// One slot of spray or warm-up.
struct Slot {
    /// What the coordinator told the clients.
    told: Vec<Transfer>,
    arrived: Vec<(Client, Chunk)>,
}

/// A round with its peers and the chunks that each of them has.
struct World {
    settings: SwarmSettings,
    links: Vec<Link>,
    digests: Vec<Digest>,
    coordinator: Coordinator,
    peers: Vec<Peer>,
    stores: Vec<BTreeMap<Chunk, Vec<u8>>>,
    slots: Vec<Slot>,
}

const SEED: [u8; 32] = [3; 32];

impl World {
    fn new(settings: SwarmSettings, clients: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(clients as u64);
        let links: Vec<_> = (0..clients)
            .map(|_| Link {
                up: random.u32(4..9),
                down: random.u32(10..30),
            })
            .collect();
        let cut: Vec<_> = (0..clients)
            .map(|client| {
                let update: Vec<u8> = update(client)
                    .iter()
                    .flat_map(|number| number.to_le_bytes())
                    .collect();
                settings.layout.cut(&update).unwrap()
            })
            .collect();
        let mut descriptors: Vec<_> = cut
            .iter()
            .enumerate()
            .map(|(client, chunks)| Descriptor::of(Digest::of(&client.to_le_bytes()), 1, chunks))
            .collect();
        let digests: Vec<_> = descriptors.iter().map(Descriptor::digest).collect();
        let coordinator = Coordinator::new(settings, &links, &digests, SEED).unwrap();
        descriptors.sort_by_key(Descriptor::digest);
        let peer = |client: usize| {
            Peer::new(&settings, client as Client, &digests[client], descriptors.clone()).unwrap()
        };
        let store = |client: usize| {
            let first = coordinator.update_of(client as Client).unwrap() * settings.layout.chunks;
            (first..).zip(cut[client].iter().cloned()).collect()
        };
        Self {
            peers: (0..clients).map(peer).collect(),
            stores: (0..clients).map(store).collect(),
            settings,
            links,
            digests,
            coordinator,
            slots: Vec::new(),
        }
    }

    fn carry(&mut self, from: Client, to: Client, chunk: Chunk) -> Result<bool, PeerError> {
        let bytes = self.stores[usize::from(from)][&chunk].clone();
        let new = self.peers[usize::from(to)].received(from, chunk, &bytes)?;
        self.stores[usize::from(to)].insert(chunk, bytes);
        Ok(new)
    }

    /// Spray and warm-up; what a silent client is told is lost.
    fn warm_up(&mut self, silent: &[Client]) {
        while !matches!(self.coordinator.phase(), Phase::Swarming { .. }) {
            for peer in &mut self.peers {
                peer.report();
                peer.begin_slot();
            }
            let told = self.coordinator.next_slot();
            let mut arrived = Vec::new();
            for transfer in &told {
                self.peers[usize::from(transfer.from)].told(transfer).unwrap();
                if silent.contains(&transfer.from) || silent.contains(&transfer.to) {
                    continue;
                }
                assert!(self.carry(transfer.from, transfer.to, transfer.chunk).unwrap());
                arrived.push((transfer.to, transfer.chunk));
            }
            arrived
                .iter()
                .for_each(|(client, chunk)| self.coordinator.delivered(*client, *chunk));
            self.slots.push(Slot { told, arrived });
        }
    }

    /// The exchange, until nobody asks for anything; how many slots that took.
    fn swarm(&mut self, silent: &[Client]) -> u32 {
        let held: Vec<_> = self.peers.iter().map(|peer| peer.held().clone()).collect();
        for (place, peer) in self.peers.iter_mut().enumerate() {
            let neighbours = self.coordinator.overlay().neighbours(place as Client);
            let known = neighbours
                .iter()
                .map(|other| (*other, held[usize::from(*other)].clone()));
            peer.swarm(known, place as u64).unwrap();
        }
        let active: Vec<_> = (0..self.peers.len() as Client)
            .filter(|one| !silent.contains(one))
            .collect();
        for slot in 1..2_000 {
            let mut down: Vec<_> = self.links.iter().map(|link| link.down).collect();
            let mut asked = 0;
            for to in &active {
                let exchange = self.peers[usize::from(*to)].exchange().unwrap();
                for (from, chunk) in exchange.ask(down[usize::from(*to)]) {
                    asked += 1;
                    if active.contains(&from) {
                        self.peers[usize::from(from)]
                            .exchange()
                            .unwrap()
                            .asked(*to, chunk)
                            .unwrap();
                    }
                }
            }
            let mut carried = 0;
            for from in &active {
                for _ in 0..self.links[usize::from(*from)].up {
                    let ready = |to: Client| down[usize::from(to)] > 0;
                    let served = self.peers[usize::from(*from)].exchange().unwrap().serve(ready);
                    let Some((to, chunk)) = served else { break };
                    down[usize::from(to)] -= 1;
                    carried += 1;
                    if self.carry(*from, to, chunk).unwrap() {
                        for other in self.coordinator.overlay().neighbours(to).to_vec() {
                            self.peers[usize::from(other)]
                                .exchange()
                                .unwrap()
                                .has(to, chunk)
                                .unwrap();
                        }
                    }
                }
            }
            if asked + carried == 0 && slot > 10 {
                return slot;
            }
        }
        panic!("the exchange does not end");
    }

    /// What a client gets.
    fn mean(&self, client: usize) -> (usize, Vec<f32>) {
        let rebuilt = self.peers[client].rebuilt();
        let mut mean = Mean::of_length(50);
        for (update, weight) in &rebuilt {
            let chunks = self.settings.layout.chunks;
            let bytes: Vec<u8> = (update * chunks..(update + 1) * chunks)
                .flat_map(|chunk| self.stores[client][&chunk].clone())
                .collect();
            let numbers: Vec<f32> = bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .take(50)
                .collect();
            mean.add(&numbers, *weight).unwrap();
        }
        (rebuilt.len(), mean.finish().unwrap())
    }
}

fn update(client: usize) -> Vec<f32> {
    (0..50).map(|place| (client * 50 + place) as f32 * 0.37).collect()
}

fn settings(gate: Gate, scheduler: Scheduler) -> SwarmSettings {
    let layout = Layout { chunk: 8, chunks: 25 };
    SwarmSettings {
        layout,
        neighbours: 4,
        gate,
        scheduler,
        spray: 0.4,
        ..SwarmSettings::default()
    }
}
