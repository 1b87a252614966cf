mod answers;
mod behaviour;
mod brought;
mod joint;
mod judging;
mod laws;
mod local;
mod low_rank;
mod private;
mod summed;
mod swarmed;
mod views;

use super::*;
use crate::{ClientId, Instant, Layout, Processor, Profile, Run, Window, Windows};
use bytes::Bytes;
use karman_tensor::encode::{Encoded, Encoding};
use std::collections::VecDeque;
use std::sync::Arc;

const SHAPES: [[u32; 2]; 2] = [[2, 3], [1, 5]];
const LENGTH: usize = 11;

fn layout() -> Layout {
    Layout::of_shapes(SHAPES).unwrap()
}

fn run(text: &str) -> Run {
    Run::from_toml(&format!("name = 'test'\n{text}")).unwrap()
}

fn coordinator(run: Run) -> Coordinator {
    let strategy = run.strategy.build().unwrap();
    coordinator_by(run, strategy)
}

fn coordinator_by(run: Run, strategy: Box<dyn crate::strategy::Strategy>) -> Coordinator {
    let selection = run.selection.build();
    Coordinator::new(
        run,
        layout(),
        vec![0.0; LENGTH],
        strategy,
        selection,
        Arc::new(Processor),
        [3; 32],
    )
    .unwrap()
}

fn resume(checkpoint: Checkpoint) -> Coordinator {
    let strategy = checkpoint.run().strategy.build().unwrap();
    resume_by(checkpoint, strategy)
}

fn resume_by(checkpoint: Checkpoint, strategy: Box<dyn crate::strategy::Strategy>) -> Coordinator {
    // Through its bytes, as from a disk.
    let bytes = cbor4ii::serde::to_vec(Vec::new(), &checkpoint).unwrap();
    let checkpoint: Checkpoint = cbor4ii::serde::from_slice(&bytes).unwrap();
    let selection = checkpoint.run().selection.build();
    Coordinator::resume(checkpoint, strategy, selection, Arc::new(Processor)).unwrap()
}

fn here(id: u64) -> Event {
    let profile = Profile {
        samples: 10 + id,
        ..Profile::default()
    };
    Event::Here {
        client: ClientId(id),
        profile,
    }
}

fn frames(numbers: &[f32]) -> Vec<Bytes> {
    let mut rest = numbers;
    let mut frames = Vec::new();
    while !rest.is_empty() {
        for shape in SHAPES {
            let (array, after) = rest.split_at((shape[0] * shape[1]) as usize);
            frames.push(
                Encoded::encode(shape.into(), array, Encoding::F32)
                    .unwrap()
                    .to_bytes(),
            );
            rest = after;
        }
    }
    frames
}

/// Each client draws the model towards a point of its own, by an amount that its order decides.
fn train(client: ClientId, order: &Order) -> Update {
    let Work::Train(train) = &order.work else {
        panic!("an evaluation is no training")
    };
    if let Some(adapters) = &train.adapters {
        return low_rank::trained(client, train, adapters);
    }
    let mut random = fastrand::Rng::with_seed(train.seed ^ client.0);
    let goal = |i: usize| ((client.0 * 31 + i as u64) as f32).sin();
    let drawn = order
        .model
        .iter()
        .enumerate()
        .map(|(i, w)| 0.3 * (goal(i) - w) + 0.01 * random.f32());
    let mut numbers: Vec<f32> = drawn.collect();
    if train.rows == 2 {
        numbers.extend((0..LENGTH).map(|_| random.f32() - 0.5).collect::<Vec<_>>());
    }
    Update {
        frames: frames(&numbers),
        samples: 10 + client.0,
        steps: 1 + random.u32(..5),
        loss: random.f32(),
    }
}

fn answer(client: ClientId, order: &Order) -> Event {
    match order.work {
        Work::Train(_) => Event::Updated {
            client,
            assignment: order.assignment,
            update: Box::new(train(client, order)),
        },
        Work::Evaluate => Event::Judged {
            client,
            assignment: order.assignment,
            judgement: Judgement {
                samples: 10,
                correct: 5,
                loss: 1.0,
            },
        },
    }
}

/// Drives a coordinator: what was sent is answered after a while, in an order that `random` decides.
struct World {
    coordinator: Coordinator,
    random: fastrand::Rng,
    now: Instant,
    orders: Vec<(ClientId, Order)>,
    events: VecDeque<Event>,
    /// Every event fed in, with its time.
    log: Vec<(Instant, Event)>,
    /// Checkpoints with the length of the log when they became durable.
    checkpoints: Vec<(usize, Checkpoint)>,
    seen: Vec<Action>,
}

impl World {
    fn new(coordinator: Coordinator, clients: u64, seed: u64) -> Self {
        Self {
            coordinator,
            random: fastrand::Rng::with_seed(seed),
            now: Instant(0),
            orders: Vec::new(),
            events: (0..clients).map(here).collect(),
            log: Vec::new(),
            checkpoints: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn feed(&mut self, event: Event) {
        self.now = self.now.after(std::time::Duration::from_millis(7));
        self.log.push((self.now, event.clone()));
        let actions = self.coordinator.handle(self.now, event);
        for action in &actions {
            match action {
                Action::Send { client, order } => self.orders.push((*client, (**order).clone())),
                Action::Withdraw { assignment, .. } => {
                    self.orders.retain(|(_, it)| it.assignment != *assignment)
                }
                Action::Save { ticket, checkpoint } => {
                    self.events.push_front(Event::Saved { ticket: *ticket });
                    self.checkpoints.push((self.log.len(), (**checkpoint).clone()));
                }
                _ => {}
            }
        }
        self.seen.extend(actions);
    }

    /// Everything that has happened, and what follows from it; orders wait.
    fn feed_all(&mut self) {
        while let Some(event) = self.events.pop_front() {
            self.feed(event);
        }
    }

    fn step(&mut self) -> bool {
        if let Some(event) = self.events.pop_front() {
            self.feed(event);
            return true;
        }
        if self.orders.is_empty() {
            return false;
        }
        let place = self.random.usize(..self.orders.len());
        let (client, order) = self.orders.swap_remove(place);
        self.feed(answer(client, &order));
        true
    }

    fn finish(mut self) -> Self {
        while self.step() {}
        self
    }

    fn bits(&self) -> Vec<u32> {
        self.coordinator.model().iter().map(|x| x.to_bits()).collect()
    }

    fn refusals(&self) -> Vec<Refusal> {
        let refusal = |action: &Action| match action {
            Action::Refused { refusal, .. } => Some(refusal.clone()),
            _ => None,
        };
        self.seen.iter().filter_map(refusal).collect()
    }

    fn reports(&self) -> Vec<RoundReport> {
        let report = |action: &Action| match action {
            Action::Closed(report) => Some((**report).clone()),
            _ => None,
        };
        self.seen.iter().filter_map(report).collect()
    }

    /// Why rounds have failed.
    fn failures(&self) -> Vec<String> {
        let failure = |action: &Action| match action {
            Action::Failed { failure, .. } => Some(failure.to_string()),
            _ => None,
        };
        self.seen.iter().filter_map(failure).collect()
    }
}

const STRATEGIES: [&str; 12] = [
    "name = 'fed-avg'",
    "name = 'fed-prox'",
    "name = 'fed-avg-m'",
    "name = 'fed-adam'",
    "name = 'fed-yogi'",
    "name = 'fed-adagrad'",
    "name = 'scaffold'",
    "name = 'fed-nova'",
    "name = 'krum'\nkeep = 3",
    "name = 'bulyan'",
    "name = 'trimmed-mean'",
    "name = 'median'",
];

const SELECTIONS: [&str; 6] = ["random", "fastest", "oort", "power-of-choice", "bandit", "energy"];

fn described(strategy: &str, selection: &str, pace: &str) -> Run {
    run(&format!(
        "rounds = 5\n[pace]\n{pace}\n[strategy]\n{strategy}\n[selection]\nname = '{selection}'\n"
    ))
}

const SYNCHRONOUS: &str = "mode = 'synchronous'\nclients = 9\n";
const SEMI: &str = "mode = 'semi-asynchronous'\nclients = 9\nenough = 5\nwait = '1 s'\n";
const BUFFERED: &str = "mode = 'buffered'\nat-once = 7\nbuffer = 4\n";
