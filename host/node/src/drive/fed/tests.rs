//! A run whose clients speak the protocol, and lie in it as no honest node's host would.

use super::begin::Start;
use super::clock::Clock;
use super::conductor::Conductor;
use super::go_on;
use super::orders::Clients;
use super::record::{FedEvent, Record};
use super::testing::{frame, introduce, judgement};
use super::wire::{Answer, Frames, Order, Work};
use crate::drive::cbor;
use crate::{LogRing, Node, NodeConfig, RuntimeOptions};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_fed::{ClientId, Event, LocalPrivacy, Profile, Run, Update, Window, Windows};
use karman_store::Store;
use karman_tensor::encode::{Encoded, Encoding, Link};
use karman_types::TaskError;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;

/// Clients 0 to 2 are honest.
struct Liars;

/// A frame of two numbers of which the last is none: no encoder writes it.
fn not_a_number() -> Bytes {
    let mut bytes = frame(&[1.0, 2.0]).to_vec();
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    bytes.into()
}

fn update(client: ClientId) -> Update {
    let honest = frame(&[1.0, -1.0]);
    let good = Update {
        frames: vec![honest.clone()],
        samples: 10,
        steps: 3,
        loss: 0.5,
    };
    match client.0 {
        3 => Update {
            frames: vec![not_a_number()],
            ..good
        },
        4 => Update {
            frames: vec![frame(&[1.0])],
            ..good
        },
        5 => Update {
            frames: vec![honest.clone(), honest],
            ..good
        },
        6 => Update {
            frames: vec![Bytes::from_static(b"\xff\xff\xff")],
            ..good
        },
        7 => Update {
            samples: 1 << 60,
            ..good
        },
        8 => Update { steps: 0, ..good },
        9 => Update {
            loss: f32::INFINITY,
            ..good
        },
        _ => good,
    }
}

impl Clients for Liars {
    fn ask(&self, order: Order, _: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        async move {
            Ok(match order.work {
                Work::Describe => Answer::Described {
                    samples: 10,
                    label_entropy: None,
                    charge: None,
                    link: None,
                    passes: Vec::new(),
                    adapter_rank: None,
                    most_epsilon: None,
                },
                Work::Begin { .. } => {
                    let model: Frames = vec![("weight".into(), frame(&[0.0, 0.0]))];
                    Answer::Begun { model }
                }
                // Client 10 answers what it was not asked.
                Work::Train { .. } if order.client.0 == 10 => Answer::Judged(judgement()),
                Work::Train { .. } => Answer::Trained(Box::new(update(order.client))),
                Work::Evaluate { .. } => Answer::Judged(judgement()),
                Work::TrainPrivately { .. } | Work::Sum { .. } | Work::Spread { .. } => {
                    return Err(TaskError::invalid("nobody sums here"));
                }
            })
        }
        .boxed()
    }
}

#[tokio::test]
async fn what_no_honest_node_would_send_is_named_and_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let text = "name = 'x'\nrounds = 4\nstart-with = 11\n[clients]\nplugin = 'x'\n\
                [pace]\nmode = 'synchronous'\nclients = 11\n";
    let record = Record::new(Run::from_toml(text).unwrap());
    let channel = unbounded_channel();
    let outbox = channel.0.clone();
    let liars = Arc::new(Liars);
    let (conductor, handle) =
        Conductor::new(record, store.clone(), liars, channel, Start::default()).unwrap();
    introduce(&outbox, 11);
    conductor.drive().await.unwrap();

    let log = handle.status(0).log;
    let named = |client: u64, says: &str| {
        log.iter().any(|event| {
            matches!(event, FedEvent::Trouble { client: who, what } if who.0 == client && what.contains(says))
        })
    };
    for (client, says) in [
        (3, "weight"),
        (4, "has the shape"),
        (5, "2 arrays instead of 1"),
        (6, "not an encoded array"),
        (7, "it declares 1152921504606846976 samples"),
        (8, "has not taken a step"),
        (9, "`loss` is inf"),
        (10, "it was not asked"),
    ] {
        assert!(named(client, says), "client {client}: `{says}` is not in {log:?}");
    }
    assert!(named(3, "excluded") && named(9, "excluded"), "{log:?}");
    for event in &log {
        if let FedEvent::Round { clients, .. } = event {
            assert_eq!(clients[..], [ClientId(0), ClientId(1), ClientId(2)]);
        }
    }
    assert!(
        matches!(
            log.last(),
            Some(FedEvent::Finished {
                version: 4,
                failure: None
            })
        ),
        "{log:?}"
    );
    // On the disk is what was seen, and the model of the honest.
    let record = Record::read(&store, "x").unwrap().unwrap();
    assert_eq!(record.log, log);
    assert_eq!(record.model().unwrap().numbers, [4.0, -4.0]);
}

#[test]
fn what_is_no_order_is_refused() {
    for bytes in [&b""[..], b"\xff\xff", b"\xa1\x63run\x01", &[0x9f; 1000]] {
        let error = cbor::read::<Order>("order", bytes).unwrap_err();
        assert!(error.message.starts_with("order: "), "{error}");
    }
}

/// Clients that note how their updates are to travel.
#[derive(Default)]
struct Senders(Arc<Mutex<BTreeMap<u64, Encoding>>>);

impl Clients for Senders {
    fn ask(&self, order: Order, _: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        let noted = self.0.clone();
        // Nothing that packs well.
        let mut random = fastrand::Rng::with_seed(1);
        let numbers: Vec<f32> = (0..4096).map(|_| random.f32() - 0.5).collect();
        async move {
            Ok(match order.work {
                Work::Begin { .. } => Answer::Begun {
                    model: vec![("weight".into(), frame(&numbers))],
                },
                Work::Train { course, .. } => {
                    noted.lock().insert(order.client.0, course.encoding);
                    let array = Encoded::encode([4096].into(), &numbers, course.encoding).unwrap();
                    let array = if course.pack { array.pack() } else { array };
                    Answer::Trained(Box::new(Update {
                        frames: vec![array.to_bytes()],
                        ..update(order.client)
                    }))
                }
                other => return Err(TaskError::invalid(format!("nobody is asked {other:?}"))),
            })
        }
        .boxed()
    }
}

#[tokio::test]
async fn updates_travel_as_measured_links_ask_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let text = "name = 'x'\nrounds = 1\nstart-with = 3\n[clients]\nplugin = 'x'\n[encoding]\nby-link = 0.01\n\
                [pace]\nmode = 'synchronous'\nclients = 3\n[evaluation]\nevery = 0\n";
    let record = Record::new(Run::from_toml(text).unwrap());
    let channel = unbounded_channel();
    let outbox = channel.0.clone();
    let senders = Senders::default();
    let noted = senders.0.clone();
    let senders = Arc::new(senders);
    let (conductor, _handle) = Conductor::new(record, store, senders, channel, Start::default()).unwrap();
    // One whose link is slow, one whose link is faster than anything, and one that has not measured it.
    for (client, rate) in [(0, Some(1e3)), (1, Some(1e15)), (2, None)] {
        let profile = Profile {
            samples: 10,
            link: rate.map(|bytes_per_second| Link { bytes_per_second }),
            ..Profile::default()
        };
        let client = ClientId(client);
        outbox.send(Event::Here { client, profile }).unwrap();
    }
    conductor.drive().await.unwrap();
    let encodings: Vec<Encoding> = noted.lock().values().copied().collect();
    assert_eq!(encodings, [Encoding::Int8, Encoding::F32, Encoding::F32]);
}

/// Clients that note what noise they are asked for.
#[derive(Default)]
struct Noised(Arc<Mutex<Vec<LocalPrivacy>>>);

impl Clients for Noised {
    fn ask(&self, order: Order, time: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        let Work::TrainPrivately { noise, .. } = order.work else {
            return Liars.ask(order, time);
        };
        self.0.lock().push(noise);
        async move { Ok(Answer::Trained(Box::new(update(order.client)))) }.boxed()
    }
}

#[tokio::test]
async fn clients_are_asked_for_the_noise_of_the_description_and_the_log_says_what_it_costs() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let text = "name = 'x'\nrounds = 4\nstart-with = 3\nweights = 'uniform'\n[clients]\nplugin = 'x'\n\
                [pace]\nmode = 'synchronous'\nclients = 3\n[evaluation]\nevery = 0\n\
                [local-privacy]\nnoise-multiplier = 1.5\nnorm = 0.5\n";
    let record = Record::new(Run::from_toml(text).unwrap());
    let described = record.run.local_privacy.unwrap();
    let channel = unbounded_channel();
    let outbox = channel.0.clone();
    let clients = Noised::default();
    let asked = clients.0.clone();
    let clients = Arc::new(clients);
    let (conductor, handle) = Conductor::new(record, store, clients, channel, Start::default()).unwrap();
    introduce(&outbox, 3);
    conductor.drive().await.unwrap();
    let status = handle.status(0);
    let told = status.log.iter().filter_map(|event| match event {
        FedEvent::Round { epsilon, .. } => *epsilon,
        _ => None,
    });
    let mechanism = described.mechanism().unwrap();
    let costs = [1, 2, 3, 4].map(|updates| mechanism.spent_after(updates, described.delta).unwrap());
    assert_eq!(told.collect::<Vec<_>>(), costs.map(|spent| spent.epsilon));
    assert_eq!(status.status.unwrap().spent, Some(costs[3]));
    assert_eq!(*asked.lock(), [described; 12]);
}

/// Clients of whom one goes out of view before a round with it could be over.
struct Passing;

impl Clients for Passing {
    fn ask(&self, order: Order, time: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        Liars.ask(order, time)
    }

    fn windows(&self, clock: Clock) -> Windows {
        let start = clock.now();
        let window = Window {
            start,
            end: start.after(Duration::from_secs(1)),
            bytes_per_second: None,
        };
        Windows::from([(ClientId(2), vec![window])])
    }
}

#[tokio::test]
async fn who_is_about_to_go_out_of_view_is_not_asked_and_the_log_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let text = "name = 'x'\nrounds = 2\nstart-with = 2\n[clients]\nplugin = 'x'\n[eligibility]\ntraining = '40 s'\n\
                [pace]\nmode = 'synchronous'\nclients = 3\n[evaluation]\nevery = 0\n";
    let record = Record::new(Run::from_toml(text).unwrap());
    let channel = unbounded_channel();
    let outbox = channel.0.clone();
    let (conductor, handle) =
        Conductor::new(record, store, Arc::new(Passing), channel, Start::default()).unwrap();
    introduce(&outbox, 3);
    conductor.drive().await.unwrap();
    let log = handle.status(0).log;
    let told = log.iter().filter_map(|event| match event {
        FedEvent::PassedOver { client, why } => Some((client.0, why.ends_with("40 s needed"))),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(2, true)], "{log:?}");
    let rounds = log.iter().filter_map(|event| match event {
        FedEvent::Round { clients, .. } => Some(clients.clone()),
        _ => None,
    });
    let two = vec![ClientId(0), ClientId(1)];
    assert_eq!(rounds.collect::<Vec<_>>(), [two.clone(), two], "{log:?}");
}

#[tokio::test]
async fn a_run_that_is_driven_already_is_not_driven_once_more_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let options = RuntimeOptions {
        state: folder.path().join("state"),
        cache: folder.path().join("cache"),
        program: None,
    };
    let node = Node::start(NodeConfig::default(), options, LogRing::default())
        .await
        .unwrap();
    let run = Run::from_toml("name = 'x'\nrounds = 1\n[clients]\nplugin = 'x'\n").unwrap();
    node.start_fed(run, false).await.unwrap();
    let seen = async || node.fed_news(BTreeMap::new(), 1).await.unwrap()[0].seen;
    let driven = seen().await;
    go_on(&node.downgrade());
    assert_eq!(seen().await, driven);
}
