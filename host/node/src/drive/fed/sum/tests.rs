//! Sums between clients that speak the protocol, without nodes and guests around them.

use super::client::{Sums, Taker, Trained, carry_out};
use super::identity::{Credential, Identity};
use super::message::{Answered, Lesson, Step};
use crate::drive::fed::conductor::Conductor;
use crate::drive::fed::memory::{Key, Memory};
use crate::drive::fed::orders::{self, Clients};
use crate::drive::fed::record::{FedEvent, Record};
use crate::drive::fed::wire::{self, Answer, Course, Frames, Order, RunId, Work};
use ed25519_compact::{KeyPair, Seed};
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_fed::secure::{
    Closed, Graph, Member, Members, Ring, Server, Session, Settings, ToClient, ToServer, UnmaskRequest,
};
use karman_fed::{AssignmentId, ClientId, Judgement, Run, Update};
use karman_store::Store;
use karman_tensor::encode::{Encoded, Encoding};
use karman_types::{Digest, ErrorKind, NodeId, TaskError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;

const CLIENTS: u64 = 5;

/// A client as its node keeps it.
struct Person {
    pair: KeyPair,
    sums: Sums,
    memory: Memory,
}

impl Person {
    fn new(number: u64) -> Self {
        Self {
            pair: KeyPair::from_seed(Seed::new([number as u8 + 1; 32])),
            sums: Sums::default(),
            memory: Memory::in_process(BTreeMap::new()),
        }
    }

    fn node(&self) -> NodeId {
        NodeId::of_key(&*self.pair.pk)
    }

    async fn step(&self, order: &Order, step: Step) -> Result<Answered, TaskError> {
        let Work::Sum { assignment, .. } = order.work else {
            panic!("{order:?}")
        };
        let key = Memory::key(NodeId::of_key(b"driver"), order);
        let client = order.client;
        let train = |lesson: Lesson| {
            async move {
                let model = wire::arrays(&lesson.model)?;
                let (numbers, samples) = trained(client, &lesson.course, &model[0].values);
                Ok(Trained {
                    numbers,
                    samples,
                    steps: 3,
                    loss: 0.5,
                })
            }
            .boxed()
        };
        carry_out(self.taker(&key), assignment, step, train).await
    }

    fn taker<'a>(&'a self, key: &'a Key) -> Taker<'a> {
        Taker {
            sums: &self.sums,
            memory: &self.memory,
            who: self,
            key,
        }
    }
}

impl Identity for Person {
    fn credential(&self) -> Result<Credential, TaskError> {
        Ok(Credential {
            key: *self.pair.pk,
            membership: b"member".to_vec(),
        })
    }

    fn pair(&self) -> Result<KeyPair, TaskError> {
        Ok(self.pair.clone())
    }

    fn check(&self, credential: &Credential) -> Result<NodeId, TaskError> {
        match credential.membership == b"member" {
            true => Ok(NodeId::of_key(&credential.key)),
            false => Err(TaskError::denied("no member").with_field("invited")),
        }
    }
}

/// What a client's training changes, and its samples: decided by its order alone.
fn trained(client: ClientId, course: &Course, model: &[f32]) -> (Vec<f32>, u64) {
    let mut random = fastrand::Rng::with_seed(course.seed ^ client.0);
    let goal = |place: usize| ((client.0 * 31 + place as u64) as f32).sin();
    let drawn = model
        .iter()
        .enumerate()
        .map(|(place, w)| 0.3 * (goal(place) - w) + 0.01 * random.f32());
    (drawn.collect(), 10 + client.0)
}

fn frame(values: &[f32]) -> bytes::Bytes {
    let shape = [values.len() as u32].into();
    Encoded::encode(shape, values, Encoding::F32).unwrap().to_bytes()
}

/// Where a client ceases to answer in the second round.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Leaves {
    Never,
    BeforeItsUpdate,
    AfterItsUpdate,
}

struct People {
    all: Vec<Person>,
    leaves: Leaves,
    /// The version that each trained last.
    versions: Mutex<BTreeMap<ClientId, u64>>,
}

impl People {
    fn answer_train(
        &self,
        client: ClientId,
        version: u64,
        course: &Course,
        model: &Frames,
    ) -> Result<Answer, TaskError> {
        if client.0 == 2 && version == 1 && self.leaves == Leaves::BeforeItsUpdate {
            return Err(TaskError::failed("it has left"));
        }
        let model = wire::arrays(model)?;
        let (numbers, samples) = trained(client, course, &model[0].values);
        Ok(Answer::Trained(Box::new(Update {
            frames: vec![frame(&numbers)],
            samples,
            steps: 3,
            loss: 0.5,
        })))
    }

    async fn answer_step(&self, order: &Order, step: Step) -> Result<Answer, TaskError> {
        let client = order.client;
        let second = match &step {
            Step::Train { lesson, .. } => {
                self.versions.lock().insert(client, lesson.version);
                lesson.version == 1
            }
            _ => self.versions.lock().get(&client) == Some(&1),
        };
        let leaves = match &step {
            Step::Train { .. } => self.leaves == Leaves::BeforeItsUpdate,
            Step::Said(ToClient::Survivors(_)) => self.leaves == Leaves::AfterItsUpdate,
            _ => false,
        };
        if client.0 == 2 && second && leaves {
            return Err(TaskError::failed("it has left"));
        }
        let answered = self.all[client.0 as usize].step(order, step).await?;
        Ok(Answer::Sum(Box::new(answered)))
    }
}

struct Meeting(Arc<People>);

impl Clients for Meeting {
    fn ask(&self, order: Order, _: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
        let people = self.0.clone();
        async move {
            let client = order.client;
            match &order.work {
                Work::Describe => panic!("they were announced"),
                Work::Begin { .. } => Ok(Answer::Begun {
                    model: vec![("weight".into(), frame(&[0.0, 0.5, -0.5]))],
                }),
                Work::Train {
                    version,
                    course,
                    model,
                    ..
                } => people.answer_train(client, *version, course, model),
                Work::Evaluate { .. } => Ok(Answer::Judged(Judgement {
                    samples: 4,
                    correct: 3,
                    loss: 0.1,
                })),
                Work::Sum { step, .. } => people.answer_step(&order, (**step).clone()).await,
            }
        }
        .boxed()
    }

    fn members(&self) -> Vec<NodeId> {
        self.0.all.iter().map(Person::node).collect()
    }
}

/// The bits of the model after four rounds, and the log.
async fn learn(more: &str, leaves: Leaves) -> (Vec<u32>, Vec<FedEvent>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let text = format!(
        "name = 'x'\nrounds = 4\nstart-with = 5\n[clients]\nplugin = 'x'\n\
         [pace]\nmode = 'synchronous'\nclients = {CLIENTS}\n[evaluation]\nevery = 0\n{more}"
    );
    let record = Record::new(Run::from_toml(&text).unwrap());
    let channel = unbounded_channel();
    let outbox = channel.0.clone();
    let people = People {
        all: (0..CLIENTS).map(Person::new).collect(),
        leaves,
        versions: Mutex::default(),
    };
    let clients = Arc::new(Meeting(Arc::new(people)));
    let (conductor, handle) = Conductor::new(record, store.clone(), clients, channel, None).unwrap();
    for number in 0..CLIENTS {
        let described = Answer::Described {
            samples: 10,
            label_entropy: None,
        };
        outbox
            .send(orders::here(ClientId(number), &described).unwrap())
            .unwrap();
    }
    conductor.drive().await.unwrap();
    let model = Record::read(&store, "x").unwrap().unwrap().model().unwrap();
    let bits = model.numbers.iter().map(|number| number.to_bits()).collect();
    (bits, handle.status(0).log)
}

fn rounds(log: &[FedEvent]) -> Vec<Vec<u64>> {
    let clients = |event: &FedEvent| match event {
        FedEvent::Round { clients, .. } => Some(clients.iter().map(|client| client.0).collect()),
        _ => None,
    };
    log.iter().filter_map(clients).collect()
}

#[tokio::test]
async fn the_model_is_the_one_that_updates_in_the_open_make() {
    let all = vec![0, 1, 2, 3, 4];
    for (leaves, second) in [
        (Leaves::Never, all.clone()),
        (Leaves::BeforeItsUpdate, vec![0, 1, 3, 4]),
        // What is masked already is in the sum, whoever masked it.
        (Leaves::AfterItsUpdate, all.clone()),
    ] {
        let (plain, seen) = learn("", leaves).await;
        let (secret, log) = learn("[secure-sum]\n", leaves).await;
        let rounds_were = [all.clone(), second, all.clone(), all.clone()];
        assert_eq!(rounds(&seen), rounds_were, "{seen:?}");
        assert_eq!(rounds(&log), rounds_were, "{log:?}");
        assert_eq!(secret, plain);
        let named = log.iter().any(|event| {
            matches!(event, FedEvent::Trouble { client, what } if client.0 == 2 && what.contains("it has left"))
        });
        assert_eq!(named, leaves == Leaves::BeforeItsUpdate, "{log:?}");
    }
}

#[tokio::test]
async fn a_sum_of_too_few_fails_its_round_with_the_reason() {
    let (_, log) = learn(
        "[secure-sum]\nleast = 5\n[limits]\nfailed-rounds = 9\n",
        Leaves::BeforeItsUpdate,
    )
    .await;
    let failed = log.iter().find_map(|event| match event {
        FedEvent::Failed { why, .. } => Some(why.clone()),
        _ => None,
    });
    let failed = failed.unwrap_or_else(|| panic!("{log:?}"));
    assert!(
        failed.contains("only 4 clients sent masked vectors, 5 are needed"),
        "{failed}"
    );
}

/// Three of them in a sum of one number.
struct Table {
    people: Vec<Person>,
    settings: Settings,
    invited: Vec<Credential>,
}

impl Table {
    fn new() -> Self {
        let people: Vec<Person> = (0..3).map(Person::new).collect();
        Self {
            settings: Settings {
                round: Digest::of(b"round"),
                graph: Graph::Complete,
                seed: Digest::of(b"seed"),
                length: 4,
                ring: Ring::BITS_64,
                least: 2,
            },
            invited: people.iter().map(|one| one.credential().unwrap()).collect(),
            people,
        }
    }

    fn server(&self) -> Server {
        let member = |person: &Person| Member {
            node: person.node(),
            key: *person.pair.pk,
        };
        let members = self.people.iter().map(member).collect();
        Server::new(Arc::new(Session::new(self.settings.clone(), members).unwrap()))
    }

    async fn ask(&self, number: usize, assignment: u64, step: Step) -> Result<ToServer, TaskError> {
        let run = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        let work = Work::Sum {
            assignment: AssignmentId(assignment),
            step: Box::new(Step::Who),
        };
        let order = Order::new(&RunId("0a".into()), &run, ClientId(number as u64), work);
        match self.people[number].step(&order, step).await? {
            Answered::Says(says) | Answered::Trained { says, .. } => Ok(says),
            Answered::Who(credential) => panic!("{credential:?}"),
        }
    }

    async fn join(
        &self,
        number: usize,
        assignment: u64,
        invited: &[Credential],
    ) -> Result<ToServer, TaskError> {
        let (settings, invited) = (self.settings.clone(), invited.to_vec());
        self.ask(number, assignment, Step::Join { settings, invited })
            .await
    }

    fn train(said: ToClient) -> Step {
        let run = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        let course = Course {
            epochs: 1,
            batch: 1,
            learning_rate: 1.0,
            most_steps: None,
            proximal: 0.0,
            rows: 1,
            seed: 7,
            encoding: Encoding::F32,
            pack: false,
        };
        let lesson = Box::new(Lesson {
            version: 0,
            course,
            model: Arc::new(vec![("weight".into(), frame(&[0.0, 0.0, 0.0]))]),
            grid: run.grid(),
            weights: run.weights,
            limits: run.limits,
        });
        Step::Train { said, lesson }
    }

    /// The server when everybody has been told who survived and is to reveal, with what it says to the first.
    async fn before_unmasking(&self) -> UnmaskRequest {
        let mut server = self.server();
        for (number, person) in self.people.iter().enumerate() {
            let says = self.join(number, 1, &self.invited).await.unwrap();
            server.receive(person.node(), says).unwrap();
        }
        loop {
            let Closed::Next(messages) = server.close().unwrap() else {
                panic!("it is over")
            };
            for (node, said) in messages {
                let number = self.people.iter().position(|one| one.node() == node).unwrap();
                let step = match said {
                    ToClient::Unmask(request) if number == 0 => return request,
                    ToClient::Unmask(_) => continue,
                    ToClient::Shares { .. } => Self::train(said),
                    said => Step::Said(said),
                };
                let says = self.ask(number, 1, step.clone()).await.unwrap();
                // Its answer was lost: asked again, it says the same.
                assert_eq!(self.ask(number, 1, step).await.unwrap(), says);
                server.receive(node, says).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn strangers_on_the_roster_are_refused() {
    let table = Table::new();
    let mut invited = table.invited.clone();
    invited[2].membership = b"forged".to_vec();
    let error = table.join(0, 1, &invited).await.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Denied, "no member")
    );
    // Nor is one taken in that is not itself invited.
    let error = table.join(0, 1, &table.invited[1..]).await.unwrap_err();
    assert!(error.message.contains("from 3 to"), "{error}");
}

#[tokio::test]
async fn an_update_goes_into_one_sum_and_no_other() {
    let table = Table::new();
    table.before_unmasking().await;
    let error = table.join(0, 1, &table.invited).await.unwrap_err();
    assert!(error.message.contains("is in a sum already"), "{error}");
    table.join(0, 2, &table.invited).await.unwrap();
    // The sum before is left with that.
    let error = table
        .ask(0, 1, Table::train(ToClient::Survivors(Members::none(3))))
        .await;
    assert!(error.unwrap_err().message.contains("takes no part in that sum"));
}

#[tokio::test]
async fn lists_that_overlap_and_a_second_unmasking_are_refused() {
    let table = Table::new();
    let request = table.before_unmasking().await;
    let mut overlapping = request.clone();
    overlapping.dropped = overlapping.survivors.clone();
    let said = |request: &UnmaskRequest| Step::Said(ToClient::Unmask(request.clone()));
    let error = table.ask(0, 1, said(&overlapping)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied);
    assert!(
        error.message.contains("cannot have survived and dropped out"),
        "{error}"
    );
    table.ask(0, 1, said(&request)).await.unwrap();
    let error = table.ask(0, 1, said(&overlapping)).await.unwrap_err();
    assert!(error.message.contains("are revealed already"), "{error}");
}
