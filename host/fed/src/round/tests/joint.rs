//! Runs of five whose updates come to one thing, made by the clients together: what those with `[secure-sum]` and with `[swarm]` share.

use super::*;
use std::time::Duration;

const CLIENTS: u64 = 5;

pub(super) fn described(more: &str) -> Run {
    run(&format!(
        "rounds = 4\nstart-with = {CLIENTS}\n[pace]\nmode = 'synchronous'\nclients = {CLIENTS}\n\
         [strategy]\nname = 'fed-avg-m'\n{more}"
    ))
}

/// The numbers of an update.
pub(super) fn numbers(update: &Update) -> Vec<f32> {
    let frames = update.frames.iter();
    frames
        .flat_map(|frame| Encoded::from_bytes(frame).unwrap().decode().unwrap())
        .collect()
}

/// What a client says of its update for an order.
pub(super) fn part(client: ClientId, order: &Order, update: &Update) -> Part {
    Part {
        client,
        assignment: order.assignment,
        samples: update.samples,
        steps: update.steps,
        loss: update.loss,
        took: Duration::from_secs(client.0),
    }
}

/// The first round's orders are out.
pub(super) fn begun(run: &Run) -> (World, Vec<(ClientId, Order)>) {
    let mut world = World::new(coordinator(run.clone()), CLIENTS, 1);
    world.feed_all();
    let orders = std::mem::take(&mut world.orders);
    assert_eq!(orders.len(), 5);
    (world, orders)
}

/// Drives a run to its end: models are judged at once, and `train` says what comes of the orders to train of each round, the first
/// being number 1.
pub(super) fn drive_rounds(
    run: Run,
    mut train: impl FnMut(&mut World, usize, Vec<(ClientId, Order)>),
) -> World {
    let mut world = World::new(coordinator(run), CLIENTS, 1);
    let mut round = 0;
    loop {
        if let Some(event) = world.events.pop_front() {
            world.feed(event);
            continue;
        }
        let orders = std::mem::take(&mut world.orders);
        let trains = |(_, order): &(ClientId, Order)| matches!(order.work, Work::Train(_));
        let (training, judging): (Vec<_>, Vec<_>) = orders.into_iter().partition(trains);
        for (client, order) in &judging {
            world.feed(answer(*client, order));
        }
        if !training.is_empty() {
            round += 1;
            train(&mut world, round, training);
        } else if world.events.is_empty() {
            return world;
        }
    }
}
