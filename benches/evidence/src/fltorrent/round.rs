use super::bound::{Offers, largest_flow};
use karman_fed::swarm::{Client, Coordinator, Exchange, Ground, Link, Phase, SwarmSettings, Transfer};
use karman_types::Digest;
use serde::Serialize;

/// A slot is a second.
const CHUNK_MBIT: f64 = 256.0 * 1024.0 * 8.0 / 1e6;
/// Slots after which a round is given up: longer than any that was seen.
const LONGEST: u32 = 60_000;

/// How far a round is followed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Extent {
    /// To its end.
    Whole,
    /// To the end of its warm-up.
    WarmUp,
    /// The same, with the flow bound at every tenth slot.
    WarmUpWithBound,
}

/// A sender, and the updates that its chunks were of and when.
pub(super) type FromOne = (Client, Vec<(u32, u32)>);

/// What was seen of a round.
pub(super) struct Round {
    figures: Figures,
    /// For each receiver and each of its senders, the updates that chunks were of and when, in order, in the warm-up.
    pub(super) seen: Vec<Vec<FromOne>>,
    /// Which update is whose.
    pub(super) update_of: Vec<u32>,
    pub(super) flows: Vec<Flow>,
    /// The shortest warm-up that the links allow.
    pub(super) time_bound: f64,
}

/// A round in figures.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Figures {
    /// Slots of spray and warm-up.
    pub(super) warm_slots: f64,
    /// Slots of the whole round.
    pub(super) slots: f64,
    /// Chunks moved in the warm-up, without the spray.
    pub(super) moved: f64,
    /// Chunks that the uplinks could have moved in it.
    pub(super) capacity: f64,
    /// Those of them outside the gate.
    pub(super) unprotected: f64,
}

/// One slot against its bound.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    pub(super) sent: f64,
    pub(super) gated: f64,
    pub(super) ungated: f64,
}

impl Round {
    pub(super) const fn figures(&self) -> Figures {
        self.figures
    }
}

/// A round of so many clients.
///
/// # Errors
///
/// The settings make no round, a warm-up ends without a cover, or a round does not end.
pub(super) fn simulate(
    settings: &SwarmSettings,
    clients: usize,
    seed: u64,
    extent: Extent,
) -> anyhow::Result<Round> {
    let links = links(clients, seed);
    let digests: Vec<_> = (0..clients)
        .map(|client| Digest::of(format!("{seed}/{client}").as_bytes()))
        .collect();
    let secret = *Digest::of(&seed.to_le_bytes()).as_bytes();
    let mut coordinator = Coordinator::new(*settings, &links, &digests, secret)?;
    let update_of = (0..clients)
        .filter_map(|client| coordinator.update_of(client as Client))
        .collect();
    let all_up: u32 = links.iter().map(|link| link.up).sum();
    let mut round = Round {
        figures: Figures {
            warm_slots: 0.0,
            slots: 0.0,
            moved: 0.0,
            capacity: 0.0,
            unprotected: 0.0,
        },
        seen: vec![Vec::new(); clients],
        update_of,
        flows: Vec::new(),
        time_bound: time_bound(settings, &links),
    };
    let mut warm_since = None;
    loop {
        let slot = coordinator.slot();
        let with_bound = extent == Extent::WarmUpWithBound && slot.is_multiple_of(10);
        let before = with_bound.then(|| Offers::of(&coordinator, settings, &links));
        let transfers = coordinator.next_slot();
        if let Phase::Swarming { covered } = coordinator.phase() {
            anyhow::ensure!(covered, "the warm-up of {clients} clients ends without a cover");
            round.figures.warm_slots = f64::from(slot);
            break;
        }
        for transfer in &transfers {
            coordinator.delivered(transfer.to, transfer.chunk);
        }
        if coordinator.phase() == Phase::WarmUp {
            round.figures.capacity += f64::from(all_up);
            round.see(settings, slot, &transfers);
            // While some are still silent, no flow is to be had from them.
            let all_speak = slot >= *warm_since.get_or_insert(slot) + settings.lags;
            if let Some(before) = before.filter(|_| all_speak) {
                let sent = transfers.len() as f64;
                let [gated, ungated] = [true, false].map(|gated| largest_flow(&before, gated));
                round.flows.push(Flow { sent, gated, ungated });
            }
        }
    }
    if extent == Extent::Whole {
        let slots = swarm(&coordinator, settings, &links, seed)?;
        round.figures.slots = round.figures.warm_slots + f64::from(slots);
    }
    Ok(round)
}

impl Round {
    fn see(&mut self, settings: &SwarmSettings, slot: u32, transfers: &[Transfer]) {
        for transfer in transfers {
            self.figures.moved += 1.0;
            self.figures.unprotected += f64::from(u8::from(transfer.ground == Ground::Unprotected));
            let senders = &mut self.seen[usize::from(transfer.to)];
            let place = senders
                .iter()
                .position(|(from, _)| *from == transfer.from)
                .unwrap_or_else(|| {
                    senders.push((transfer.from, Vec::new()));
                    senders.len() - 1
                });
            senders[place]
                .1
                .push((slot, transfer.chunk / settings.layout.chunks));
        }
    }
}

fn links(clients: usize, seed: u64) -> Vec<Link> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut mbit = |from: f64, to: f64| ((from + (to - from) * random.f64()) / CHUNK_MBIT) as u32;
    (0..clients)
        .map(|_| Link {
            up: mbit(15.5, 25.3),
            down: mbit(36.5, 121.0),
        })
        .collect()
}

/// Nobody gets its cover faster than its downlink, nor all together faster than all uplinks.
fn time_bound(settings: &SwarmSettings, links: &[Link]) -> f64 {
    let missing = f64::from(settings.cover(links.len()).saturating_sub(settings.layout.chunks));
    let slowest = links.iter().map(|link| link.down).min().unwrap_or(1);
    let all_up: u32 = links.iter().map(|link| link.up).sum();
    (missing / f64::from(slowest)).max(missing * links.len() as f64 / f64::from(all_up))
}

/// The exchange after the warm-up; how many slots it takes until everybody has everything.
fn swarm(
    coordinator: &Coordinator,
    settings: &SwarmSettings,
    links: &[Link],
    seed: u64,
) -> anyhow::Result<u32> {
    let clients = links.len() as Client;
    let chunks = links.len() as u32 * settings.layout.chunks;
    let held = |client: Client| coordinator.held(client).cloned().unwrap_or_default();
    let overlay = coordinator.overlay();
    let mut exchanges = Vec::new();
    for client in 0..clients {
        let neighbours = overlay
            .neighbours(client)
            .iter()
            .map(|other| (*other, held(*other)));
        let seed = seed * 10_000 + u64::from(client);
        exchanges.push(Exchange::new(chunks, held(client), neighbours, seed)?);
    }
    let mut incomplete = exchanges
        .iter()
        .filter(|exchange| exchange.held().len() < chunks)
        .count();
    let mut order: Vec<Client> = (0..clients).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    for slot in 0..LONGEST {
        if incomplete == 0 {
            return Ok(slot);
        }
        random.shuffle(&mut order);
        let mut down: Vec<u32> = links.iter().map(|link| link.down).collect();
        for to in &order {
            for (from, chunk) in exchanges[usize::from(*to)].ask(down[usize::from(*to)]) {
                exchanges[usize::from(from)].asked(*to, chunk)?;
            }
        }
        let mut arrived = Vec::new();
        for from in &order {
            for _ in 0..links[usize::from(*from)].up {
                let Some((to, chunk)) = exchanges[usize::from(*from)].serve(|to| down[usize::from(to)] > 0)
                else {
                    break;
                };
                down[usize::from(to)] -= 1;
                arrived.push((*from, to, chunk));
            }
        }
        for (from, to, chunk) in arrived {
            if exchanges[usize::from(to)].received(from, chunk) {
                incomplete -= usize::from(exchanges[usize::from(to)].held().len() == chunks);
                for other in overlay.neighbours(to) {
                    exchanges[usize::from(*other)].has(to, chunk)?;
                }
            }
        }
    }
    anyhow::bail!("a round of {clients} clients does not end in {LONGEST} slots")
}
