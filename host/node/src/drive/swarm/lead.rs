//! The coordinator of a round: it asks `karman-fed`'s machine what each slot brings, and tells the clients.

use super::talk::{invalid, is_gone, say};
use futures::future::join_all;
use karman_fed::swarm::{
    Answer, Beginning, Client, Coordinator, Descriptor, Inventory, Link, Message, Neighbourhood, Phase,
    Place, Shown, SwarmSettings, Transfer,
};
use karman_mesh::Mesh;
use karman_types::{Digest, ErrorKind, NodeId, TaskError, format_duration};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

mod opening;

use opening::{Entered, open};

/// The most chunks that a client's link is taken to carry in a slot.
const MOST_IN_A_SLOT: u32 = 4096;
/// Clients that are told at a time who takes part: the descriptors of all go to each of them.
const BEGIN_AT_ONCE: usize = 32;
/// How many times a client may take as long as it may to answer, until the time of spray and warm-up is over.
const ANSWERS: u32 = 4;
/// How often in a row all have to hold the same: a chunk may have been on its way at the first time.
const STEADY: u32 = 2;

/// A round that is to be led.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SwarmPlan {
    /// What the clients wait for.
    pub(crate) name: String,
    /// How it goes.
    pub(crate) settings: SwarmSettings,
    /// The numbers of each update.
    pub(crate) numbers: u32,
    /// What the updates of nodes have to weigh; any weight will do of one that is not named here.
    pub(crate) weights: BTreeMap<NodeId, u32>,
    /// How long a slot takes at least. Where the links carry less than was said, it takes longer.
    pub(crate) slot: Duration,
    /// How long spray and warm-up may take, and after them the exchange: whoever answers late holds nobody up for longer.
    pub(crate) patience: Duration,
}

/// What came of a round, as its coordinator saw it. It tells whose update is whose: no client is to see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SwarmLed {
    /// The clients by their numbers.
    pub(crate) clients: Vec<NodeId>,
    /// With whom each of them exchanged chunks.
    pub(crate) neighbours: Vec<Vec<Client>>,
    /// Their updates' pseudonyms, and what each weighs.
    pub(crate) updates: Vec<(Digest, u32)>,
    /// Whether everybody had its cover at the end of the warm-up.
    pub(crate) covered: bool,
    /// How long spray and warm-up took, and after them the exchange.
    pub(crate) took: (Duration, Duration),
    /// Clients that left before the end.
    pub(crate) gone: Vec<NodeId>,
    /// What those of them said that did not go without a word.
    pub(crate) why: BTreeMap<NodeId, String>,
    /// Nodes that took no part, and why.
    pub(crate) refused: Vec<(NodeId, String)>,
}

/// Leads a round among these nodes.
pub(super) async fn lead(
    mesh: &Mesh,
    plan: &SwarmPlan,
    nodes: &[NodeId],
    seed: [u8; 32],
) -> Result<SwarmLed, TaskError> {
    if plan.slot.is_zero() {
        return Err(invalid(&"a slot takes some time").with_field("slot"));
    }
    let round = Coordinator::round(&seed);
    let (clients, refused) = open(mesh, plan, round, nodes).await?;
    if clients.len() < 2 {
        let why: Vec<String> = refused
            .iter()
            .map(|(node, why)| format!("{}: {why}", node.short()))
            .collect();
        let says = format!(
            "{} of {} nodes take part in `{}`",
            clients.len(),
            nodes.len(),
            plan.name
        );
        return Err(TaskError::unavailable(says).with_hint(match why.is_empty() {
            true => String::from("a round has at least 2 clients"),
            false => why.join("; "),
        }));
    }
    let links: Vec<Link> = clients.iter().map(|client| client.link).collect();
    let digests: Vec<Digest> = clients.iter().map(|client| client.descriptor.digest()).collect();
    let coordinator = Coordinator::new(plan.settings, &links, &digests, seed)
        .map_err(|error| invalid(&error).with_field("settings"))?;
    let mut leading = Leading {
        mesh,
        plan,
        round,
        clients,
        coordinator,
        gone: BTreeSet::new(),
        why: BTreeMap::new(),
    };
    leading.begin().await;
    let started = Instant::now();
    let covered = leading.warm_up().await;
    let warm = Instant::now();
    leading.exchange(covered).await;
    let name = |client: &Client| leading.clients[usize::from(*client)].place.node;
    let overlay = leading.coordinator.overlay();
    let all = 0..leading.clients.len() as Client;
    Ok(SwarmLed {
        clients: leading.clients.iter().map(|client| client.place.node).collect(),
        neighbours: all.map(|client| overlay.neighbours(client).to_vec()).collect(),
        updates: leading
            .clients
            .iter()
            .map(|client| (client.descriptor.pseudonym, client.descriptor.weight))
            .collect(),
        covered,
        took: (warm.duration_since(started), warm.elapsed()),
        gone: leading.gone.iter().map(name).collect(),
        why: leading
            .why
            .iter()
            .map(|(client, why)| (name(client), why.clone()))
            .collect(),
        refused,
    })
}

/// Says something to a client, which gets no more than a share of the round's time to answer: all wait for it.
async fn say_in_time(
    mesh: &Mesh,
    plan: &SwarmPlan,
    round: Digest,
    to: NodeId,
    message: Message,
) -> Result<Answer, TaskError> {
    let most = plan.patience / ANSWERS;
    let late = || TaskError::deadline(format!("it did not answer within {}", format_duration(most)));
    timeout(most, say(mesh, &plan.name, round, to, message))
        .await
        .unwrap_or_else(|_| Err(late()))
}

struct Leading<'a> {
    mesh: &'a Mesh,
    plan: &'a SwarmPlan,
    round: Digest,
    clients: Vec<Entered>,
    coordinator: Coordinator,
    gone: BTreeSet<Client>,
    /// What some of those said that are gone.
    why: BTreeMap<Client, String>,
}

impl Leading<'_> {
    /// Those that are still there.
    fn there(&self) -> Vec<Client> {
        let all = 0..self.clients.len() as Client;
        all.filter(|client| !self.gone.contains(client)).collect()
    }

    /// Says something to several clients at once.
    async fn say(&self, letters: Vec<(Client, Message)>) -> Vec<(Client, Result<Answer, TaskError>)> {
        let (mesh, plan, round, clients) = (self.mesh, self.plan, self.round, &self.clients);
        let asked = letters.into_iter().map(|(client, message)| {
            let node = clients[usize::from(client)].place.node;
            async move { (client, say_in_time(mesh, plan, round, node, message).await) }
        });
        join_all(asked).await
    }

    /// The same; who does not answer has left.
    async fn tell(&mut self, letters: Vec<(Client, Message)>) -> Vec<(Client, Answer)> {
        let mut good = Vec::new();
        for (client, answer) in self.say(letters).await {
            match answer {
                Ok(answer) => good.push((client, answer)),
                Err(error) => self.leave_out(client, error),
            }
        }
        good
    }

    fn leave_out(&mut self, client: Client, error: TaskError) {
        tracing::warn!(client, %error, gone = is_gone(&error), "a client of a swarm round is left out");
        if self.gone.insert(client) {
            self.coordinator.left(client);
            if !is_gone(&error) {
                self.why.insert(client, error.message);
            }
        }
    }

    async fn tell_all(&mut self, message: &Message) -> Vec<(Client, Answer)> {
        let there = self.there();
        let letters = there.into_iter().map(|client| (client, message.clone()));
        self.tell(letters.collect()).await
    }

    /// What all hold that are still there.
    async fn reports(&mut self) -> Vec<(Client, Inventory)> {
        let gone = self.gone.iter().copied().collect();
        let answers = self.tell_all(&Message::Report { gone }).await;
        let held = answers.into_iter().filter_map(|(client, answer)| match answer {
            Answer::Held(held) => Some((client, held)),
            Answer::Here { .. } | Answer::NotHere(_) | Answer::Done => None,
        });
        held.collect()
    }

    async fn begin(&mut self) {
        let mut descriptors: Vec<Descriptor> = self
            .clients
            .iter()
            .map(|client| client.descriptor.clone())
            .collect();
        descriptors.sort_by_cached_key(Descriptor::digest);
        let clients: Vec<Place> = self.clients.iter().map(|client| client.place).collect();
        let shown: Vec<Shown> = self.clients.iter().map(|client| client.shown.clone()).collect();
        let letter = |me: Client| {
            let beginning = Beginning {
                me,
                clients: clients.clone(),
                descriptors: descriptors.clone(),
                shown: shown.clone(),
            };
            (me, Message::Begin(beginning))
        };
        let all: Vec<Client> = (0..clients.len() as Client).collect();
        for some in all.chunks(BEGIN_AT_ONCE) {
            self.tell(some.iter().copied().map(letter).collect()).await;
        }
    }

    /// Spray and warm-up; whether everybody had its cover at the end.
    async fn warm_up(&mut self) -> bool {
        let (started, mut slots) = (Instant::now(), slots(self.plan.slot));
        loop {
            slots.tick().await;
            let told = self.coordinator.next_slot();
            match self.coordinator.phase() {
                Phase::Swarming { covered } => return covered,
                Phase::Spray | Phase::WarmUp => {}
            }
            if self.there().len() < 2 || started.elapsed() >= self.plan.patience {
                return false;
            }
            self.send(&told).await;
            self.collect().await;
        }
    }

    async fn send(&mut self, told: &[Transfer]) {
        let mut by_sender: BTreeMap<Client, Vec<Transfer>> = BTreeMap::new();
        for transfer in told {
            by_sender.entry(transfer.from).or_default().push(*transfer);
        }
        let there = by_sender
            .into_iter()
            .filter(|(client, _)| !self.gone.contains(client));
        let letters: Vec<_> = there
            .map(|(client, transfers)| (client, Message::Slot(transfers)))
            .collect();
        for (client, answer) in self.say(letters).await {
            match answer {
                // It may wait for one that is gone: the report that is asked for next says whether it is there.
                Err(error) if error.kind == ErrorKind::Deadline => {}
                Err(error) => self.leave_out(client, error),
                Ok(_) => {}
            }
        }
    }

    /// What has arrived, by the word of those who got it: a sender might say anything.
    async fn collect(&mut self) {
        let all = self.clients.len() as u32 * self.plan.settings.layout.chunks;
        for (client, held) in self.reports().await {
            let Some(known) = self.coordinator.held(client) else {
                continue;
            };
            let new = held.missing_in(known).filter(|chunk| *chunk < all);
            for chunk in new.collect::<Vec<_>>() {
                self.coordinator.delivered(client, chunk);
            }
        }
    }

    /// The clients by themselves, until all that are there hold the same, nothing moves any more, or the time is over.
    async fn exchange(&mut self, covered: bool) {
        let letters = self
            .there()
            .into_iter()
            .map(|client| (client, self.neighbourhood(client, covered)));
        let letters = letters.collect();
        self.tell(letters).await;
        let go = Message::Go {
            slot_ms: self.plan.slot.as_millis() as u64,
            // They end by themselves only where nobody ends the round: who did so sooner would be taken for gone.
            within_ms: (2 * self.plan.patience).as_millis() as u64,
        };
        self.tell_all(&go).await;
        let (started, mut slots) = (Instant::now(), slots(self.plan.slot));
        let (mut before, mut quiet, mut same) = (0, 0, 0);
        while started.elapsed() < self.plan.patience {
            slots.tick().await;
            let held = self.reports().await;
            let alike = held.windows(2).all(|pair| pair[0].1 == pair[1].1);
            let moved: u64 = held.iter().map(|(_, held)| u64::from(held.len())).sum();
            same = if alike { same + 1 } else { 0 };
            quiet = if moved == before { quiet + 1 } else { 0 };
            before = moved;
            if same >= STEADY || quiet >= self.plan.settings.silence {
                break;
            }
        }
        self.tell_all(&Message::End).await;
    }

    fn neighbourhood(&self, client: Client, covered: bool) -> Message {
        let held = |client: Client| self.coordinator.held(client).cloned().unwrap_or_default();
        let neighbours = self.coordinator.overlay().neighbours(client).iter();
        let there = neighbours.filter(|neighbour| !self.gone.contains(neighbour));
        Message::Swarm(Neighbourhood {
            neighbours: there.map(|neighbour| (*neighbour, held(*neighbour))).collect(),
            known: held(client),
            covered,
        })
    }
}

fn slots(length: Duration) -> Interval {
    let mut slots = interval(length);
    slots.set_missed_tick_behavior(MissedTickBehavior::Delay);
    slots
}
