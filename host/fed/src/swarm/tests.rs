//! Whole rounds: coordinator and peers, with real bytes.

use super::*;
use karman_types::Digest;
use proptest::prelude::*;
use std::collections::BTreeMap;

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
            self.peers.iter_mut().for_each(Peer::begin_slot);
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
            self.slots.push(Slot {
                told,
                arrived,
                left: Vec::new(),
            });
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

    fn record(&self) -> Record<'_> {
        Record {
            settings: &self.settings,
            links: &self.links,
            descriptors: &self.digests,
            commitment: Coordinator::commitment(&SEED),
            seed: SEED,
            slots: &self.slots,
        }
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

#[test]
fn everybody_rebuilds_everything_and_gets_the_same_mean_bit_by_bit() {
    for scheduler in [
        Scheduler::GreedyFastestFirst,
        Scheduler::RandomFastestFirst,
        Scheduler::RandomFifo,
        Scheduler::Flooding,
    ] {
        let mut world = World::new(settings(Gate::Fallback, scheduler), 14);
        world.warm_up(&[]);
        assert_eq!(
            world.coordinator.phase(),
            Phase::Swarming { covered: true },
            "{scheduler:?}"
        );
        let cover = world.settings.cover(14);
        assert!(world.peers.iter().all(|peer| peer.held().len() >= cover));
        world.swarm(&[]);
        let (rebuilt, mean) = world.mean(0);
        assert_eq!(rebuilt, 14);
        for client in 1..14 {
            assert_eq!(world.mean(client), (14, mean.clone()), "{scheduler:?}");
        }
        let exact: f64 = (0..14).map(|client| f64::from(update(client)[7])).sum::<f64>() / 14.0;
        assert!((f64::from(mean[7]) - exact).abs() < 1e-4);
    }
}

#[test]
fn an_honest_round_passes_its_audit_and_each_lie_is_found() {
    let mut world = World::new(settings(Gate::Fallback, Scheduler::GreedyFastestFirst), 12);
    world.warm_up(&[]);
    assert_eq!(audit(&world.record()), Ok(()));

    let mut lie = world.record();
    lie.seed = [4; 32];
    assert_eq!(audit(&lie), Err(Violation::Seed));
    lie.commitment = Coordinator::commitment(&lie.seed);
    assert!(audit(&lie).is_err(), "another seed has another overlay");

    let slot = world
        .slots
        .iter()
        .position(|slot| slot.told.iter().any(|one| one.ground == Ground::Cover))
        .unwrap();
    let with = |change: &dyn Fn(&mut Vec<Transfer>)| {
        let mut slots = world.slots.clone();
        change(&mut slots[slot].told);
        audit(&Record {
            slots: &slots,
            ..world.record()
        })
        .unwrap_err()
    };
    let first = world.slots[slot].told[0];
    assert!(matches!(
        with(&|told| told[0].from = first.to),
        Violation::Overlay { .. }
    ));
    assert!(matches!(
        with(&|told| told[0].chunk = u32::MAX),
        Violation::Unknown { .. }
    ));
    let own = world.coordinator.update_of(first.to).unwrap() * 25;
    assert!(matches!(
        with(&|told| told[0].chunk = own),
        Violation::Repeated { .. }
    ));
    assert!(matches!(
        with(&|told| told.extend(vec![first; 40])),
        Violation::Budget { .. }
    ));
    assert_eq!(
        with(&|told| {
            told.pop();
        }),
        Violation::Schedule { slot }
    );
    let foreign = |told: &mut Vec<Transfer>| {
        let held = (0..12 * 25).find(|chunk| {
            let before: Vec<_> = world.slots[..slot]
                .iter()
                .flat_map(|slot| &slot.arrived)
                .collect();
            let has = |client: Client| {
                before.contains(&&(client, *chunk))
                    || world.coordinator.update_of(client).unwrap() == chunk / 25
            };
            !has(first.from) && !has(first.to)
        });
        told[0].chunk = held.unwrap();
    };
    assert!(matches!(with(&foreign), Violation::NotHeld { .. }));
}

#[test]
fn nothing_of_its_own_leaves_a_client_through_a_strict_gate_before_it_has_its_cover() {
    let strict = settings(Gate::Strict, Scheduler::GreedyFastestFirst);
    let mut world = World::new(strict, 14);
    world.warm_up(&[]);
    let mut others = [0; 14];
    for slot in &world.slots {
        for one in &slot.told {
            let hidden = others[usize::from(one.from)] + strict.on_offer >= strict.cover(14);
            assert!(
                one.ground != Ground::Unprotected && (one.ground != Ground::Offered || hidden),
                "{one:?}"
            );
        }
        slot.arrived
            .iter()
            .for_each(|(client, _)| others[usize::from(*client)] += 1);
    }
    assert!(world.peers.iter().all(|peer| peer.unprotected() == 0));
}

/// Without a spray there is nothing but own chunks to begin with: a strict gate lets nothing move, and says so.
#[test]
fn a_cover_that_cannot_be_reached_ends_in_a_void_promise() {
    let none = SwarmSettings {
        spray: 0.0,
        patience: 40,
        cover: Cover::OfSwarm(0.3),
        ..settings(Gate::Strict, Scheduler::GreedyFastestFirst)
    };
    let mut world = World::new(none, 10);
    world.warm_up(&[]);
    assert_eq!(world.coordinator.phase(), Phase::Swarming { covered: false });
    assert!(world.slots.iter().all(|slot| slot.told.is_empty()));

    let fallback = SwarmSettings {
        gate: Gate::Fallback,
        ..none
    };
    let mut world = World::new(fallback, 10);
    world.warm_up(&[]);
    assert_eq!(world.coordinator.phase(), Phase::Swarming { covered: true });
    assert!(
        world.peers.iter().any(|peer| peer.unprotected() > 0),
        "and it is counted"
    );
}

#[test]
fn clients_that_fall_silent_hold_nobody_up() {
    let mut world = World::new(settings(Gate::Fallback, Scheduler::GreedyFastestFirst), 14);
    let silent = [3, 9];
    world.warm_up(&silent);
    assert_eq!(world.coordinator.phase(), Phase::Swarming { covered: true });
    assert_eq!(audit(&world.record()), Ok(()));
    world.swarm(&silent);
    let means: Vec<_> = (0..14)
        .filter(|client| !silent.contains(client))
        .map(|client| world.mean(usize::from(client)))
        .collect();
    assert!(means.iter().all(|mean| *mean == means[0]));
    assert_eq!(means[0].0, 12, "all updates but those of the two");
}

#[test]
fn a_peer_keeps_to_its_own_rules() {
    let mut world = World::new(settings(Gate::Strict, Scheduler::GreedyFastestFirst), 10);
    let own = world.coordinator.update_of(0).unwrap() * 25;
    let tell = |from, chunk, ground| Transfer {
        from,
        to: 1,
        chunk,
        ground,
    };
    let sprayed = world.settings.sprayed();
    let peer = &mut world.peers[0];
    assert_eq!(
        peer.told(&tell(0, own, Ground::Offered)),
        Err(PeerError::Uncovered(own))
    );
    assert_eq!(
        peer.told(&tell(0, own, Ground::Cover)),
        Err(PeerError::Uncovered(own)),
        "a false ground"
    );
    // As much is sprayed as was agreed on, and each chunk may be told twice.
    for chunk in (own..own + sprayed).chain([own]) {
        assert_eq!(peer.told(&tell(0, chunk, Ground::Spray)), Ok(()));
    }
    let beyond = own + sprayed;
    assert_eq!(
        peer.told(&tell(0, beyond, Ground::Spray)),
        Err(PeerError::Uncovered(beyond))
    );
    assert_eq!(
        peer.told(&tell(2, own, Ground::Cover)),
        Err(PeerError::NotMine(own))
    );
    let foreign = (own + 25) % 250;
    assert_eq!(
        peer.told(&tell(0, foreign, Ground::Cover)),
        Err(PeerError::NotMine(foreign))
    );
    let altered = peer.received(1, foreign, &[9; 8]);
    assert_eq!(altered, Err(ChunkError::Altered(foreign).into()));
    assert_eq!(
        peer.received(1, 999, &[9; 8]),
        Err(ChunkError::Unknown(999).into())
    );
    assert!(!peer.held().contains(foreign));
    assert_eq!(peer.exchange().unwrap_err(), PeerError::WarmUp);
}

/// A neighbour that says it has what it has not is asked once; another one gives the chunk.
#[test]
fn lies_about_what_one_holds_cost_one_request() {
    let all = |chunks: &[Chunk]| {
        let mut set = Inventory::none(64);
        chunks.iter().for_each(|chunk| {
            set.insert(*chunk);
        });
        set
    };
    let known = [(1, all(&[7])), (2, all(&[7]))];
    let mut exchange = Exchange::new(64, all(&[0]), known, 1).unwrap();
    let first = exchange.ask(5);
    let [(liar, 7)] = first[..] else {
        panic!("{first:?}")
    };
    exchange.refused(liar, 7);
    assert_eq!(exchange.ask(5), [(3 - liar, 7)]);
    // Whoever was not asked takes no request away.
    exchange.refused(liar, 7);
    // Nobody answers: it asks again later, once.
    let later = (0..super::exchange::LOST_AFTER + 2).flat_map(|_| exchange.ask(5));
    assert_eq!(later.count(), 1);
    assert!(exchange.received(3 - liar, 7) && !exchange.received(3 - liar, 7));

    assert_eq!(exchange.asked(9, 0), Err(ExchangeError::Stranger(9)));
    assert_eq!(exchange.asked(1, 5), Err(ExchangeError::NotHeld(5)));
    assert_eq!(exchange.has(1, 64), Err(ExchangeError::Unknown(64)));
    assert!(
        (0..20).all(|_| exchange.asked(1, 0).is_ok()),
        "the same request again is one request"
    );
    assert_eq!(exchange.serve(|_| true), Some((1, 0)));
    assert_eq!(exchange.serve(|_| true), None);
    let mut full = Exchange::new(64, all(&(0..64).collect::<Vec<_>>()), [(1, all(&[]))], 1).unwrap();
    assert!((0..16).all(|chunk| full.asked(1, chunk).is_ok()));
    assert_eq!(full.asked(1, 16), Err(ExchangeError::TooMuch(1)));
    assert!(Exchange::new(64, Inventory::none(200), [], 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// No link carries more than it can, nothing is sent twice, nobody sends what it has not: whatever the settings.
    #[test]
    fn the_audit_of_any_honest_round_finds_nothing(
        clients in 3_usize..16, gate in 0_usize..5, scheduler in 0_usize..4, spray in 0.0_f64..0.5, on_offer in 1_u32..4,
    ) {
        let gate = [Gate::Strict, Gate::Fallback, Gate::Blended, Gate::Throttled, Gate::Open][gate];
        let scheduler = [
            Scheduler::GreedyFastestFirst,
            Scheduler::RandomFastestFirst,
            Scheduler::RandomFifo,
            Scheduler::Flooding,
        ][scheduler];
        let settings = SwarmSettings { spray, on_offer, patience: 60, ..settings(gate, scheduler) };
        let mut world = World::new(settings, clients);
        world.warm_up(&[]);
        prop_assert_eq!(audit(&world.record()), Ok(()));
    }
}

#[test]
fn settings_that_make_no_round_are_refused() {
    let good = settings(Gate::Strict, Scheduler::Flooding);
    let links = [Link { up: 1, down: 1 }; 3];
    let digests = [1, 2, 3].map(|n: u8| Digest::of(&[n]));
    let make =
        |settings, links: &[Link], digests: &[Digest]| Coordinator::new(settings, links, digests, SEED).err();
    assert_eq!(make(good, &links, &digests), None);
    let share = make(
        SwarmSettings {
            spray: f64::NAN,
            ..good
        },
        &links,
        &digests,
    );
    assert!(matches!(share, Some(SwarmError::Share { what: "spray", .. })));
    assert_eq!(
        make(SwarmSettings { lags: 0, ..good }, &links, &digests),
        Some(SwarmError::Zero("lags"))
    );
    assert_eq!(
        make(good, &links[..1], &digests[..1]),
        Some(SwarmError::Clients { clients: 1 })
    );
    assert_eq!(
        make(good, &links, &digests[..2]),
        Some(SwarmError::Clients { clients: 2 })
    );
    assert_eq!(
        make(good, &links, &[digests[0], digests[1], digests[0]]),
        Some(SwarmError::Repeated)
    );
    let slow = [links[0], Link { up: 0, down: 3 }, links[0]];
    assert_eq!(make(good, &slow, &digests), Some(SwarmError::Link(1)));
}
