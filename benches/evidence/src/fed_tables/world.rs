//! Clients that train, in virtual time: they drive the coordinator that ships, from its orders to its versions.

use super::digits::{LABELS, Sample, label_entropy};
use super::net::{Net, Pull, add};
use anyhow::{Context, Result};
use fastrand::Rng;
use karman_fed::{
    Action, AssignmentId, ClientId, Coordinator, Event, Instant, Order, Processor, Profile, Run, Update, Work,
};
use karman_tensor::encode::Feedback;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// What liars send instead of their update. Numbers as in the literature, registered here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Attack {
    /// Its negative.
    SignFlip,
    /// Ten times what training on labels 9 − y gives.
    Scaling,
    /// What training on labels 9 − y gives.
    LabelFlip,
    /// All of them half the negative mean of the honest ones (Xie et al. 2019).
    InnerProduct,
}

/// One client.
pub(super) struct Client {
    pub(super) samples: Vec<Sample>,
    /// Virtual seconds of one sample's gradient, and of sending the model both ways.
    pub(super) per_sample: f64,
    pub(super) transfer: f64,
    /// The chance that nothing comes of an order.
    pub(super) drop_out: f64,
    pub(super) attack: Option<Attack>,
    /// SCAFFOLD's variate.
    control: Vec<f32>,
    /// What its encoding has lost, array by array.
    feedback: Vec<Feedback>,
}

impl Client {
    /// An honest client that takes a second for everything.
    pub(super) fn new(samples: Vec<Sample>) -> Self {
        Self {
            samples,
            per_sample: 0.0,
            transfer: 1.0,
            drop_out: 0.0,
            attack: None,
            control: Vec::new(),
            feedback: Vec::new(),
        }
    }
}

/// How accurate the model was, and when.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Point {
    pub(super) seconds: f64,
    pub(super) version: u64,
    pub(super) accuracy: f64,
    /// Bytes of updates so far.
    pub(super) bytes: u64,
    /// What a private run has spent so far.
    pub(super) epsilon: Option<f64>,
}

/// A run until its end, or until it is accurate enough.
pub(super) struct World<'a> {
    pub(super) net: &'a Net,
    pub(super) clients: Vec<Client>,
    pub(super) held: &'a [Sample],
    pub(super) run: Run,
    pub(super) seed: u64,
    /// Where it may stop.
    pub(super) target: Option<f64>,
}

/// What will happen, by time and then by order of scheduling.
type Queue = BinaryHeap<Reverse<(u64, u64)>>;

impl World<'_> {
    /// The accuracy after each version.
    pub(super) fn play(mut self) -> Result<Vec<Point>> {
        let mut random = Rng::with_seed(self.seed);
        let strategy = self.run.strategy.build().context("no plugins here")?;
        let selection = self.run.selection.build();
        let model = self.net.initial(&mut random);
        let run = Run {
            seed: random.u64(..),
            ..self.run.clone()
        };
        let mut coordinator = Coordinator::new(
            run,
            self.net.layout()?,
            model,
            strategy,
            selection,
            Arc::new(Processor),
            [0; 32],
        )?;
        let mut points = Vec::new();
        let mut queue = Queue::new();
        let mut events: Vec<Option<Event>> = Vec::new();
        let schedule = |queue: &mut Queue, events: &mut Vec<Option<Event>>, at: u64, event: Event| {
            queue.push(Reverse((at, events.len() as u64)));
            events.push(Some(event));
        };
        for (id, client) in self.clients.iter().enumerate() {
            let profile = Profile {
                samples: client.samples.len() as u64,
                label_entropy: Some(label_entropy(&client.samples)),
                ..Profile::default()
            };
            let client = ClientId(id as u64);
            schedule(&mut queue, &mut events, 0, Event::Here { client, profile });
        }
        let mut bytes = 0;
        loop {
            let timeout = coordinator.next_timeout();
            let next = queue.peek().map(|Reverse((at, _))| *at);
            let (now, event) = match (next, timeout) {
                (Some(at), timeout) if timeout.is_none_or(|timeout| at <= timeout.0) => {
                    let place = queue.pop().map_or(0, |Reverse((_, place))| place as usize);
                    (at, events[place].take().context("an event happens once")?)
                }
                (_, Some(timeout)) => (timeout.0, Event::Tick),
                _ => break,
            };
            let mut orders = Vec::new();
            for action in coordinator.handle(Instant(now), event) {
                match action {
                    Action::Save { ticket, .. } => {
                        schedule(&mut queue, &mut events, now, Event::Saved { ticket })
                    }
                    Action::Send { client, order } => orders.push((client, order)),
                    Action::Closed(report) => {
                        bytes += report.bytes_up;
                        points.push(Point {
                            seconds: now as f64 / 1000.0,
                            version: report.version,
                            accuracy: self.net.accuracy(coordinator.model(), self.held),
                            bytes,
                            epsilon: report.epsilon,
                        });
                    }
                    _ => {}
                }
            }
            if let (Some(target), Some(point)) = (self.target, points.last())
                && point.accuracy >= target
            {
                break;
            }
            for (after, event) in self.answers(orders, &mut random)? {
                schedule(&mut queue, &mut events, now + after, event);
            }
        }
        Ok(points)
    }

    /// What clients answer to the orders of one moment, and after how many milliseconds. Liars know what the honest ones send.
    fn answers(
        &mut self,
        orders: Vec<(ClientId, Box<Order>)>,
        random: &mut Rng,
    ) -> Result<Vec<(u64, Event)>> {
        let mut trained = Vec::new();
        for (id, order) in orders {
            let Work::Train(how) = &order.work else { continue };
            let client = &mut self.clients[id.0 as usize];
            let change = client.train(self.net, &order, how);
            trained.push((id, order.assignment, how.encoding, change));
        }
        let honest: Vec<&Vec<f32>> = trained
            .iter()
            .filter(|it| self.clients[it.0.0 as usize].attack.is_none())
            .map(|it| &it.3.numbers)
            .collect();
        let mut mean = vec![0.0; self.net.length()];
        honest
            .iter()
            .for_each(|numbers| add(&mut mean, 1.0 / honest.len() as f32, numbers));
        let layout = self.net.layout()?;
        let mut answers = Vec::new();
        for (id, assignment, encoding, mut change) in trained {
            let client = &mut self.clients[id.0 as usize];
            match client.attack {
                Some(Attack::SignFlip) => change.numbers.iter_mut().for_each(|x| *x = -*x),
                Some(Attack::Scaling) => change.numbers.iter_mut().for_each(|x| *x *= 10.0),
                Some(Attack::InnerProduct) => {
                    change
                        .numbers
                        .iter_mut()
                        .zip(&mean)
                        .for_each(|(x, mean)| *x = -0.5 * mean);
                }
                Some(Attack::LabelFlip) | None => {}
            }
            let seconds = client.transfer + client.per_sample * change.samples_seen;
            let after = (seconds * 1000.0).round() as u64;
            let event = match random.f64() < client.drop_out {
                true => gave_up(id, assignment),
                false => client.send(id, assignment, &change, &layout, encoding)?,
            };
            answers.push((after, event));
        }
        Ok(answers)
    }
}

fn gave_up(client: ClientId, assignment: AssignmentId) -> Event {
    Event::GaveUp {
        client,
        assignment,
        reason: "it dropped out".into(),
    }
}

/// What training has changed.
struct Change {
    numbers: Vec<f32>,
    steps: u32,
    loss: f32,
    samples_seen: f64,
}

impl Client {
    fn train(&mut self, net: &Net, order: &Order, how: &karman_fed::Train) -> Change {
        let mut model = order.model.to_vec();
        let length = model.len();
        let drift = (how.rows == 2).then(|| {
            self.control.resize(length, 0.0);
            let mut drift = how
                .control
                .as_ref()
                .map_or_else(|| vec![0.0; length], |control| control.to_vec());
            add(&mut drift, -1.0, &self.control);
            drift
        });
        let flipped: Vec<Sample>;
        let samples = if matches!(self.attack, Some(Attack::LabelFlip | Attack::Scaling)) {
            let flip = |sample: &Sample| Sample {
                label: LABELS - 1 - sample.label,
                ..sample.clone()
            };
            flipped = self.samples.iter().map(flip).collect();
            &flipped
        } else {
            &self.samples
        };
        let pull = Pull {
            proximal: how.proximal,
            drift: drift.as_deref(),
        };
        let (steps, loss) = net.train(&mut model, samples, how, &pull, &mut Rng::with_seed(how.seed));
        let mut numbers = model;
        add(&mut numbers, -1.0, &order.model);
        if let Some(drift) = drift {
            // Option II: c_k' − c_k = −c + (w − y) / (K eta), which is −(drift + c_k) − D / (K eta).
            let mut change: Vec<f32> = drift
                .iter()
                .zip(&self.control)
                .map(|(drift, c_k)| -(drift + c_k))
                .collect();
            add(
                &mut change,
                -1.0 / (steps.max(1) as f32 * how.learning_rate),
                &numbers,
            );
            add(&mut self.control, 1.0, &change);
            numbers.extend(change);
        }
        Change {
            numbers,
            steps,
            loss: loss.min(1e6),
            samples_seen: f64::from(steps) * f64::from(how.batch.min(samples.len() as u32)),
        }
    }

    fn send(
        &mut self,
        client: ClientId,
        assignment: AssignmentId,
        change: &Change,
        layout: &karman_fed::Layout,
        encoding: karman_tensor::encode::Encoding,
    ) -> Result<Event> {
        let mut frames = Vec::new();
        let mut rest = &change.numbers[..];
        let mut place = 0;
        while !rest.is_empty() {
            for array in layout.arrays() {
                let (numbers, after) = rest.split_at(array.shape.elements().unwrap_or(0) as usize);
                rest = after;
                if self.feedback.len() == place {
                    self.feedback.push(Feedback::default());
                }
                frames.push(
                    self.feedback[place]
                        .encode(array.shape, numbers, encoding)?
                        .to_bytes(),
                );
                place += 1;
            }
        }
        let update = Box::new(Update {
            frames,
            samples: self.samples.len() as u64,
            steps: change.steps,
            loss: change.loss,
        });
        Ok(Event::Updated {
            client,
            assignment,
            update,
        })
    }
}
