//! What tests of federated runs share: what clients say, runs of five of them, and what the log of a run tells.

use super::begin::Start;
use super::conductor::Conductor;
use super::handle::Handle;
use super::orders::{self, Clients};
use super::record::{FedEvent, Record};
use super::wire::{self, Answer, Course, Frames};
use bytes::Bytes;
use karman_fed::{ClientId, Event, Judgement, Run, Update};
use karman_store::Store;
use karman_tensor::encode::{Encoded, Encoding};
use karman_types::TaskError;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// The clients of a run that [`described`] describes.
pub(super) const CLIENTS: u64 = 5;
/// What they have for a plugin.
pub(super) const PLUGIN: &str = "learner";

/// A run of four rounds.
pub(super) fn described(more: &str) -> Record {
    let text = format!(
        "name = 'x'\nrounds = 4\nstart-with = 5\n[clients]\nplugin = '{PLUGIN}'\n\
         [pace]\nmode = 'synchronous'\nclients = {CLIENTS}\n[evaluation]\nevery = 0\n{more}"
    );
    Record::new(Run::from_toml(&text).unwrap())
}

/// A driver of this run, to whom everybody has introduced itself.
pub(super) fn conducted(record: Record, store: &Store, clients: Arc<dyn Clients>) -> (Conductor, Handle) {
    let channel = unbounded_channel();
    let outbox = channel.0.clone();
    let conducted = Conductor::new(record, store.clone(), clients, channel, Start::default()).unwrap();
    introduce(&outbox, CLIENTS);
    conducted
}

/// Drives a run to its end: the bits of its model, and the log.
pub(super) async fn driven(record: Record, clients: Arc<dyn Clients>) -> (Vec<u32>, Vec<FedEvent>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let (conductor, handle) = conducted(record, &store, clients);
    conductor.drive().await.unwrap();
    (model(&store), handle.status(0).log)
}

/// The bits of the model that is on the disk.
pub(super) fn model(store: &Store) -> Vec<u32> {
    let model = Record::read(store, "x").unwrap().unwrap().model().unwrap();
    model.numbers.iter().map(|number| number.to_bits()).collect()
}

/// What is said of client 2.
pub(super) fn troubles(log: &[FedEvent]) -> Vec<String> {
    let trouble = |event: &FedEvent| match event {
        FedEvent::Trouble { client, what } if client.0 == 2 => Some(what.clone()),
        _ => None,
    };
    log.iter().filter_map(trouble).collect()
}

/// So many clients say that they are there.
pub(super) fn introduce(outbox: &UnboundedSender<Event>, clients: u64) {
    for number in 0..clients {
        let described = Answer::Described {
            samples: 10,
            label_entropy: None,
            charge: None,
            link: None,
            passes: Vec::new(),
            adapter_rank: None,
            most_epsilon: None,
        };
        let here = orders::here(ClientId(number), &described).unwrap();
        outbox.send(here).unwrap();
    }
}

/// An array of one row as it travels.
pub(super) fn frame(values: &[f32]) -> Bytes {
    let shape = [values.len() as u32].into();
    Encoded::encode(shape, values, Encoding::F32).unwrap().to_bytes()
}

/// What a client's training changes, and its samples: decided by its order alone.
pub(super) fn trained(client: ClientId, course: &Course, model: &[f32]) -> (Vec<f32>, u64) {
    let mut random = fastrand::Rng::with_seed(course.seed ^ client.0);
    let goal = |place: usize| ((client.0 * 31 + place as u64) as f32).sin();
    let drawn = model
        .iter()
        .enumerate()
        .map(|(place, w)| 0.3 * (goal(place) - w) + 0.01 * random.f32());
    (drawn.collect(), 10 + client.0)
}

/// The same as an update.
pub(super) fn update_of(client: ClientId, course: &Course, model: &Frames) -> Result<Box<Update>, TaskError> {
    let model = wire::arrays(model)?;
    let (numbers, samples) = trained(client, course, &model[0].values);
    Ok(Box::new(Update {
        frames: vec![frame(&numbers)],
        samples,
        steps: 3,
        loss: 0.5,
    }))
}

/// A training whose update comes back in so many rows.
pub(super) fn course(encoding: Encoding, rows: usize) -> Course {
    Course {
        epochs: 1,
        batch: 8,
        learning_rate: 0.1,
        most_steps: None,
        proximal: 0.0,
        rows,
        stateless: false,
        counted: None,
        seed: 1,
        encoding,
        pack: false,
    }
}

pub(super) fn judgement() -> Judgement {
    Judgement {
        samples: 4,
        correct: 3,
        loss: 0.1,
    }
}
