//! Rounds of the coordinator that ships, over vehicles that are always there and whose links take no time.

use super::registered::{Federated, Training};
use anyhow::{Context, Result, bail, ensure};
use karman_fed::{
    Action, Array, ClientId, Coordinator, Event, Instant, Layout, Order, Processor, Profile, Run, Train,
    Update, Work,
};
use karman_tensor::Shape;
use karman_tensor::encode::Encoded;
use pothole_learn::fleet::Window;
use pothole_learn::{How, Unet};
use std::collections::VecDeque;
use std::sync::Arc;

/// The model after the last round.
pub(super) fn federated(
    unet: &Unet,
    fleet: &[Vec<Window>],
    start: &[f32],
    training: &Training,
    seed: u64,
) -> Result<Vec<f32>> {
    let run = described(training, fleet.len(), seed)?;
    let arrays = unet.arrays().iter().map(|(name, shape)| {
        let (name, shape) = (name.clone(), Shape::new(shape)?);
        anyhow::Ok(Array { name, shape })
    });
    let layout = Layout::new(arrays.collect::<Result<_>>()?)?;
    let strategy = run.strategy.build().context("no plugins here")?;
    let selection = run.selection.build();
    let processor = Arc::new(Processor);
    let start = start.to_vec();
    let mut coordinator = Coordinator::new(
        run,
        layout.clone(),
        start,
        strategy,
        selection,
        processor,
        [0; 32],
    )?;
    let here = fleet.iter().enumerate().map(|(vehicle, windows)| Event::Here {
        client: ClientId(vehicle as u64),
        profile: Profile {
            samples: windows.len() as u64,
            ..Profile::default()
        },
    });
    let mut events: VecDeque<Event> = here.collect();
    let mut now = 0;
    loop {
        let event = match (events.pop_front(), coordinator.next_timeout()) {
            (Some(event), _) => event,
            (None, Some(timeout)) => {
                now = timeout.0.max(now);
                Event::Tick
            }
            (None, None) => break,
        };
        now += 1;
        for action in coordinator.handle(Instant(now), event) {
            match action {
                Action::Save { ticket, .. } => events.push_back(Event::Saved { ticket }),
                Action::Send { client, order } => {
                    events.push_back(answer(unet, &layout, fleet, client, &order)?);
                }
                Action::Refused { client, refusal } => bail!("vehicle {} was refused: {refusal}", client.0),
                Action::Failed { round, failure } => bail!("round {round} has failed: {failure}"),
                _ => {}
            }
        }
    }
    let made = coordinator.status().version;
    ensure!(
        made == u64::from(training.passes),
        "the run ended after {made} rounds"
    );
    Ok(coordinator.model().to_vec())
}

fn described(training: &Training, vehicles: usize, seed: u64) -> Result<Run> {
    let rounds = training.passes;
    let Federated {
        batch,
        learning_rate,
        momentum,
    } = training.federated;
    Ok(Run::from_toml(&format!(
        "name = 'pothole'\nrounds = {rounds}\nseed = {seed}\nstart-with = {vehicles}\nweights = 'samples'\n\
         [pace]\nmode = 'synchronous'\nclients = {vehicles}\n[strategy]\nname = 'fed-avg-m'\nmomentum = {momentum}\n\
         [training]\nepochs = 1\nbatch = {batch}\nlearning-rate = {learning_rate}\npartial-work = false\n\
         [evaluation]\nevery = 0\n"
    ))?)
}

/// What a vehicle answers to an order.
fn answer(
    unet: &Unet,
    layout: &Layout,
    fleet: &[Vec<Window>],
    client: ClientId,
    order: &Order,
) -> Result<Event> {
    let Work::Train(train) = &order.work else {
        bail!("nobody was to judge a version");
    };
    let windows = &fleet[client.0 as usize];
    let trained = how(train).teach(unet, windows, &order.model, None, |_| {});
    let mut frames = Vec::new();
    let (mut after, mut before) = (&trained.model[..], &order.model[..]);
    for array in layout.arrays() {
        let count = array.shape.elements().unwrap_or(0) as usize;
        let change: Vec<f32> = after[..count]
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        (after, before) = (&after[count..], &before[count..]);
        frames.push(Encoded::encode(array.shape, &change, train.encoding)?.to_bytes());
    }
    let update = Box::new(Update {
        frames,
        samples: windows.len() as u64,
        steps: trained.steps,
        loss: trained.loss(),
    });
    Ok(Event::Updated {
        client,
        assignment: order.assignment,
        update,
    })
}

const fn how(train: &Train) -> How {
    How {
        epochs: train.epochs,
        batch: train.batch,
        rate: train.learning_rate,
        most_steps: train.most_steps,
        proximal: train.proximal,
        seed: train.seed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::registered::Registered;
    use super::*;
    use pothole_learn::fleet::{Drive, Habits};

    /// Two vehicles with the same data come to what one of them comes to alone.
    #[test]
    fn a_round_is_the_mean_of_what_vehicles_have_learnt() {
        let unet = Unet::new();
        let windows = Habits::of(1, 0).windows(Drive::Train, 1);
        let mut training = Registered::read().unwrap().training;
        training.passes = 1;
        let start = unet.initial(1);
        let fleet = vec![windows.clone(), windows.clone()];
        let model = federated(&unet, &fleet, &start, &training, 5).unwrap();
        let alone = How {
            epochs: 1,
            batch: training.federated.batch,
            rate: training.federated.learning_rate,
            most_steps: None,
            proximal: 0.0,
            seed: 0,
        };
        let alone = alone.teach(&unet, &windows, &start, None, |_| {}).model;
        assert_ne!(alone, start);
        for (one, other) in model.iter().zip(&alone) {
            assert!((one - other).abs() < 1e-5, "{one} {other}");
        }
    }
}
