//! Secure sums: bytes and time for SecAgg (everybody is everybody's neighbour) and SecAgg+ (a ring), with one client in twenty gone before
//! its vector.
//!
//! Whole rounds of real clients and a real coordinator in one process, every message through CBOR as between nodes. A vector has 16,384
//! elements of 32 bits (64 KiB). For each number of clients the two graphs take turns in random order; client times are medians over all
//! clients that stay, with their bootstrap over clients.
//!
//! | key | what |
//! |---|---|
//! | `exact.GRAPH.nN` | rounds whose sum is the plain fixed-point sum of the survivors, element by element, over all: 1 |
//! | `client_sent_kib.GRAPH.nN`, `client_received_kib.GRAPH.nN` | what a client sends and receives in a round |
//! | `sent_vs_plain.GRAPH.nN` | what it sends over the vector alone |
//! | `client_ms.GRAPH.nN` | its time, all steps together |
//! | `server_ms.GRAPH.nN` | the coordinator's time, all steps together; no interval where there are fewer than 30 rounds |
//! | `client_ms_plus_vs_full.nN`, `client_sent_plus_vs_full.nN` | SecAgg+ over SecAgg |
//! | `neighbours.nN` | of each client on the ring |
//! | `leak_bits.nN`, `break_bits.nN`, `stick_bits.nN` | -log2 of the chance that, on that ring with 5 % corrupt and 5 % gone, a secret leaks to a coordinator that lies, it sums clients apart, the round ends without a sum (bounds; 40 and more is the usual wish for the first two) |
//! | `neighbours_for_40_bits.nN` | the ring that keeps both below 2^-40 and the last below 2^-20 |

use anyhow::{Context, bail};
use ed25519_compact::{KeyPair, Seed};
use karman_fed::secure::margin::{Situation, least_degree, margin};
use karman_fed::secure::{
    Client, Closed, Degree, FixedPoint, Graph, Member, Pass, Ring, SecureSum, Server, Session, Settings, Step,
};
use karman_study::interval::bootstrap;
use karman_study::pairs::median;
use karman_study::report::{Kind, Report, Target};
use karman_types::{Digest, NodeId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers of clients, and rounds of each graph.
const CELLS: [(usize, usize); 5] = [(10, 30), (50, 30), (100, 10), (200, 4), (500, 1)];
const GRAPHS: [(&str, Graph); 2] = [
    ("secagg", Graph::Complete),
    ("secagg-plus", Graph::Ring(Degree::Logarithmic)),
];
const NUMBERS: usize = 16_383;

/// Runs the study.
///
/// # Errors
///
/// A round fails, or the report cannot be written.
pub(crate) fn run(quick: bool) -> anyhow::Result<()> {
    let cells: Vec<_> = match quick {
        true => CELLS[..2].iter().map(|(clients, _)| (*clients, 2)).collect(),
        false => CELLS.to_vec(),
    };
    let mut report = Report::new("secagg");
    report.kind(Kind::Measured);
    report.register(cells.iter().flat_map(|(clients, _)| {
        GRAPHS.into_iter().flat_map(move |(graph, _)| {
            ["exact", "client_ms", "client_sent_kib", "server_ms"]
                .map(|key| format!("{key}.{graph}.n{clients}"))
        })
    }));
    for (clients, rounds) in cells {
        let mut done: BTreeMap<&str, Vec<Measured>> = BTreeMap::new();
        for round in 0..rounds {
            let mut turn = GRAPHS;
            fastrand::shuffle(&mut turn);
            for (name, graph) in turn {
                done.entry(name)
                    .or_default()
                    .push(measure(clients, graph, round as u64)?);
            }
        }
        for (name, rounds) in &done {
            rows(&mut report, name, clients, rounds);
        }
        let medians = GRAPHS.map(|(name, _)| middle(&done[name], |client| client.time));
        let sent = GRAPHS.map(|(name, _)| middle(&done[name], |client| client.sent));
        report.figure(
            &format!("client_ms_plus_vs_full.n{clients}"),
            medians[1] / medians[0],
            "ratio",
            Target::Shown,
        );
        report.figure(
            &format!("client_sent_plus_vs_full.n{clients}"),
            sent[1] / sent[0],
            "ratio",
            Target::Shown,
        );
        margins(&mut report, clients)?;
    }
    report.write_and_print()
}

fn rows(report: &mut Report, graph: &str, clients: usize, rounds: &[Measured]) {
    let key = |name: &str| format!("{name}.{graph}.n{clients}");
    let exact = rounds.iter().filter(|round| round.exact).count() as f64 / rounds.len() as f64;
    report.figure(&key("exact"), exact, "share", Target::AtLeast(1.0));
    let all: Vec<Costs> = rounds.iter().flat_map(|round| round.clients.clone()).collect();
    let time = bootstrap(&all, |clients| {
        median(clients.iter().map(|client| client.time).collect())
    });
    report.estimate(&key("client_ms"), time, "ms", Target::Shown);
    let sent = middle(rounds, |client| client.sent);
    report.figure(&key("client_sent_kib"), sent / 1024.0, "KiB", Target::Shown);
    report.figure(
        &key("client_received_kib"),
        middle(rounds, |client| client.received) / 1024.0,
        "KiB",
        Target::Shown,
    );
    report.figure(
        &key("sent_vs_plain"),
        sent / ((NUMBERS + 1) * 4) as f64,
        "ratio",
        Target::Shown,
    );
    let server: Vec<f64> = rounds.iter().map(|round| round.server).collect();
    match server.len() >= 30 {
        true => report.estimate(
            &key("server_ms"),
            bootstrap(&server, |all| median(all.to_vec())),
            "ms",
            Target::Shown,
        ),
        false => report.figure(&key("server_ms"), median(server), "ms", Target::Shown),
    }
    report.keep_raw(&key("rounds"), &rounds);
}

fn middle(rounds: &[Measured], cost: impl Fn(&Costs) -> f64) -> f64 {
    median(rounds.iter().flat_map(|round| &round.clients).map(cost).collect())
}

fn margins(report: &mut Report, clients: usize) -> anyhow::Result<()> {
    let situation = Situation {
        clients,
        corrupt: 0.05,
        gone: 0.05,
    };
    let degree = Graph::Ring(Degree::Logarithmic).degree(clients);
    let margin = margin(situation, degree)?;
    report.figure(
        &format!("neighbours.n{clients}"),
        degree as f64,
        "",
        Target::Shown,
    );
    for (name, chance) in [
        ("leak_bits", margin.leaks_actively),
        ("break_bits", margin.breaks_actively),
        ("stick_bits", margin.sticks),
    ] {
        let key = format!("{name}.n{clients}");
        match chance > 0.0 {
            true => report.figure(&key, -chance.log2(), "bits", Target::Shown),
            false => report.void(&key, "it cannot happen"),
        }
    }
    let key = format!("neighbours_for_40_bits.n{clients}");
    match least_degree(situation, 40, 20)? {
        Some(degree) => report.figure(&key, degree as f64, "", Target::Shown),
        None => report.void(&key, "not even the complete graph"),
    }
    Ok(())
}

/// A round.
#[derive(Serialize)]
struct Measured {
    exact: bool,
    /// The coordinator's milliseconds.
    server: f64,
    clients: Vec<Costs>,
}

/// What a round costs one client.
#[derive(Clone, Copy, Default, Serialize)]
struct Costs {
    /// Milliseconds.
    time: f64,
    /// Bytes.
    sent: f64,
    /// Bytes.
    received: f64,
}

/// One client with its vector and what it has cost up to now.
struct Seat {
    client: Client,
    vector: Vec<u64>,
    leaves: bool,
    costs: Costs,
}

fn measure(clients: usize, graph: Graph, round: u64) -> anyhow::Result<Measured> {
    let fixed = FixedPoint::new(Ring::BITS_32, 16, 8.0, 1, clients as u32)?;
    let identities: Vec<_> = (0..clients)
        .map(|client| KeyPair::from_seed(Seed::new(*Digest::of(&(client as u64).to_le_bytes()).as_bytes())))
        .collect();
    let member = |identity: &KeyPair| Member {
        node: NodeId::of_key(&*identity.pk),
        key: *identity.pk,
        once: *identity.pk,
    };
    let settings = Settings {
        round: Digest::of(&round.to_le_bytes()),
        graph,
        seed: Digest::of(b"ring"),
        length: fixed.length(NUMBERS),
        ring: Ring::BITS_32,
        least: clients / 2,
    };
    let session = Arc::new(Session::new(settings, identities.iter().map(member).collect())?);
    let mut random = fastrand::Rng::with_seed(round);
    let mut server = Server::new(session.clone());
    let mut server_time = Duration::ZERO;
    let mut seats: BTreeMap<NodeId, Seat> = BTreeMap::new();
    for (place, identity) in identities.into_iter().enumerate() {
        let node = NodeId::of_key(&*identity.pk);
        let numbers: Vec<f32> = (0..NUMBERS).map(|_| random.f32() * 2.0 - 1.0).collect();
        let entropy = std::array::from_fn(|_| random.u8(..));
        // What is measured is one round: its number need not be fresh.
        let once = *identity.pk;
        let (joined, time) =
            timed(|| Client::join(session.clone(), node, identity, Pass::new(once), entropy));
        let (client, keys) = joined?;
        let mut seat = Seat {
            client,
            vector: fixed.encode(&numbers, 1)?,
            leaves: place % 20 == 3,
            costs: Costs {
                time,
                ..Costs::default()
            },
        };
        let keys = seat.sends(&keys)?;
        server_time += deliver(&mut server, node, keys)?;
        seats.insert(node, seat);
    }
    loop {
        let begun = Instant::now();
        let closed = server.close()?;
        server_time += begun.elapsed();
        match closed {
            Closed::Sum(sum) => {
                let stayed = seats.values().filter(|seat| !seat.leaves).map(|seat| seat.costs);
                return Ok(Measured {
                    exact: is_exact(&sum, &seats),
                    server: server_time.as_secs_f64() * 1e3,
                    clients: stayed.collect(),
                });
            }
            Closed::Next(messages) => {
                for (node, message) in messages {
                    let seat = seats.get_mut(&node).context("a message for nobody")?;
                    if seat.leaves && server.step() >= Step::Mask {
                        continue;
                    }
                    let (message, bytes) = through_cbor(&message)?;
                    seat.costs.received += bytes;
                    let (answer, time) = timed(|| match seat.client.handle(message)? {
                        Some(answer) => Ok(answer),
                        None => seat.client.mask(&seat.vector),
                    });
                    seat.costs.time += time;
                    let answer = seat.sends(&answer?)?;
                    server_time += deliver(&mut server, node, answer)?;
                }
            }
        }
    }
}

impl Seat {
    fn sends<T: Serialize + DeserializeOwned>(&mut self, message: &T) -> anyhow::Result<T> {
        let (message, bytes) = through_cbor(message)?;
        self.costs.sent += bytes;
        Ok(message)
    }
}

fn deliver(
    server: &mut Server,
    from: NodeId,
    message: karman_fed::secure::ToServer,
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    server.receive(from, message)?;
    Ok(begun.elapsed())
}

fn through_cbor<T: Serialize + DeserializeOwned>(message: &T) -> anyhow::Result<(T, f64)> {
    let bytes = cbor4ii::serde::to_vec(Vec::new(), message)?;
    match cbor4ii::serde::from_slice(&bytes) {
        Ok(message) => Ok((message, bytes.len() as f64)),
        Err(why) => bail!("a message does not come back: {why}"),
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let begun = Instant::now();
    let result = work();
    (result, begun.elapsed().as_secs_f64() * 1e3)
}

/// Against the sum in the open.
fn is_exact(sum: &SecureSum, seats: &BTreeMap<NodeId, Seat>) -> bool {
    let stayed: Vec<NodeId> = seats
        .iter()
        .filter(|(_, seat)| !seat.leaves)
        .map(|(node, _)| *node)
        .collect();
    let mut plain = vec![0_u64; NUMBERS + 1];
    for node in &stayed {
        for (plain, element) in plain.iter_mut().zip(&seats[node].vector) {
            *plain = Ring::BITS_32.wrap(*plain + element);
        }
    }
    sum.survivors == stayed && sum.elements == plain
}
