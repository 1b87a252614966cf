//! Rounds whose clients train adapters of unequal ranks.

use super::*;
use crate::Adapters;
use karman_tensor::Shape;
use proptest::prelude::*;

const ARRAY: &str = "arrays = ['array 0']\n";

/// What a client's training changes of its adapters: its order decides it.
pub(super) fn trained(client: ClientId, train: &Train, adapters: &Adapters) -> Update {
    let mut random = fastrand::Rng::with_seed(train.seed ^ client.0);
    let frame = |array: &crate::Array| {
        let count = array.shape.elements().unwrap() as usize;
        let changes: Vec<f32> = (0..count).map(|_| random.f32() - 0.5).collect();
        let encoded = Encoded::encode(array.shape, &changes, Encoding::F32);
        encoded.unwrap().to_bytes()
    };
    Update {
        frames: adapters.layout.arrays().iter().map(frame).collect(),
        samples: 10 + client.0,
        steps: 3,
        loss: 0.5,
    }
}

fn described(rule: &str) -> Run {
    run(&format!(
        "rounds = 5\nstart-with = 6\n[low-rank]\n{ARRAY}ranks = [1, 2]\nrule = '{rule}'\n\
         [pace]\nmode = 'synchronous'\nclients = 6\n"
    ))
}

/// Clients with an odd number train adapters of rank 1 only.
fn introduced(client: u64) -> Event {
    let profile = Profile {
        samples: 10,
        adapter_rank: (client % 2 == 1).then_some(1),
        ..Profile::default()
    };
    Event::Here {
        client: ClientId(client),
        profile,
    }
}

fn world(rule: &str, seed: u64) -> World {
    let mut world = World::new(coordinator(described(rule)), 0, seed);
    world.events = (0..6).map(introduced).collect();
    world
}

fn adapters(order: &Order) -> Option<&Adapters> {
    match &order.work {
        Work::Train(train) => train.adapters.as_ref(),
        Work::Evaluate => None,
    }
}

fn orders(world: &World) -> Vec<(ClientId, Order)> {
    let sent = world.seen.iter().filter_map(|action| match action {
        Action::Send { client, order } => Some((*client, (**order).clone())),
        _ => None,
    });
    sent.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn neither_the_order_of_arrival_nor_a_restart_changes_a_bit(seed: u64, nested: bool, cut in 0.0..1.0f64) {
        let rule = if nested { "prelort" } else { "florist" };
        let whole = world(rule, seed).finish();
        prop_assert_eq!(whole.coordinator.status().version, 5, "{:?}", whole.coordinator.status());
        prop_assert!(whole.refusals().is_empty());
        prop_assert_eq!(world(rule, seed ^ 1).finish().bits(), whole.bits());

        let cut = (whole.log.len() as f64 * cut) as usize;
        let durable = whole.checkpoints.iter().rfind(|(at, _)| *at <= cut);
        let Some((at, checkpoint)) = durable else { return Ok(()) };
        let mut resumed = resume(checkpoint.clone());
        for (now, event) in &whole.log[*at..] {
            resumed.handle(*now, event.clone());
        }
        prop_assert_eq!(resumed.model(), whole.coordinator.model());
    }

    /// Also with adapters half gathered.
    #[test]
    fn a_checkpoint_of_any_moment_is_all_there_is(seed: u64, nested: bool, steps in 0usize..60) {
        let mut world = world(if nested { "prelort" } else { "florist" }, seed);
        for _ in 0..steps {
            world.step();
        }
        while world.coordinator.saving.is_some() {
            world.step();
        }
        let mut resumed = resume(world.coordinator.checkpoint().unwrap());
        let from = world.log.len();
        let world = world.finish();
        for (now, event) in &world.log[from..] {
            resumed.handle(*now, event.clone());
        }
        prop_assert_eq!(resumed.checkpoint().unwrap(), world.coordinator.checkpoint().unwrap());
    }
}

#[test]
fn each_client_trains_adapters_of_its_own_rank_and_only_they_travel_back() {
    for rule in ["florist", "prelort"] {
        let world = world(rule, 1).finish();
        let sent = orders(&world);
        let to_train: Vec<_> = sent
            .iter()
            .filter(|(_, order)| adapters(order).is_some())
            .collect();
        assert_eq!(to_train.len(), 30);
        for (client, order) in &to_train {
            let rank = 2 - client.0 as u32 % 2;
            let shapes: Vec<&[u32]> = adapters(order)
                .unwrap()
                .layout
                .arrays()
                .iter()
                .map(|array| array.shape.dims())
                .collect();
            assert_eq!(shapes, [[rank, 3], [2, rank]]);
        }
        // The other array stays as it was, and the matrix does not.
        let model = world.coordinator.model();
        assert!(model[..6].iter().all(|x| *x != 0.0), "{model:?}");
        assert_eq!(model[6..], [0.0; 5]);
        // Each factor has 12 bytes around it or fewer, in place of a model of 44.
        let report = &world.reports()[0];
        let numbers = 3 * (5 + 10);
        let frames = 4 * numbers + 12 * 12;
        assert!(
            report.bytes_up >= 4 * numbers && report.bytes_up <= frames,
            "{report:?}"
        );
        assert_eq!(report.bytes_down, 4 * (6 * LENGTH as u64 + numbers));
    }
}

/// Nested adapters are trained on top of the model as it began; clients judge the one that they make.
#[test]
fn nested_adapters_lie_on_the_model_as_it_began() {
    let nested = world("prelort", 1).finish();
    let merged = world("florist", 1).finish();
    for (world, as_it_began) in [(&nested, true), (&merged, false)] {
        for (_, order) in orders(world).iter().filter(|(_, order)| order.version > 0) {
            let plain = order.model.iter().all(|x| *x == 0.0);
            assert_eq!(plain, as_it_began && adapters(order).is_some(), "{order:?}");
        }
    }
}

#[test]
fn bad_adapters_are_named_and_the_round_goes_on() {
    let bad = |update: &dyn Fn(&Adapters) -> Vec<Vec<f32>>, shapes: Option<[[u32; 2]; 2]>, expected: &str| {
        let mut world = world("florist", 1);
        while world.orders.is_empty() {
            world.step();
        }
        let place = world.orders.iter().position(|(client, _)| client.0 == 2).unwrap();
        let (client, order) = world.orders.remove(place);
        let sent = adapters(&order).unwrap();
        let own = sent.layout.arrays().iter().map(|array| array.shape);
        let shapes: Vec<Shape> = match shapes {
            Some(shapes) => shapes.map(Shape::from).to_vec(),
            None => own.collect(),
        };
        let frames = update(sent).into_iter().zip(shapes).map(|(changes, shape)| {
            let encoded = Encoded::encode(shape, &changes, Encoding::F32);
            encoded.unwrap().to_bytes()
        });
        let update = Box::new(Update {
            frames: frames.collect(),
            samples: 10,
            steps: 1,
            loss: 0.5,
        });
        world.feed(Event::Updated {
            client,
            assignment: order.assignment,
            update,
        });
        let world = world.finish();
        let said: Vec<String> = world.refusals().iter().map(ToString::to_string).collect();
        assert!(matches!(&said[..], [one] if one.contains(expected)), "{said:?}");
        assert_eq!(world.reports()[0].clients.len(), 5);
        assert_eq!(world.coordinator.status().version, 5);
    };
    let of = |numbers: f32| {
        move |sent: &Adapters| {
            let each = sent.layout.arrays().iter();
            let count = |array: &crate::Array| array.shape.elements().unwrap() as usize;
            each.map(|array| vec![numbers; count(array)])
                .collect::<Vec<Vec<f32>>>()
        }
    };
    bad(&of(2000.0), None, "`array 0.lora-a` holds 2000");
    // Neither factor is too large; what they add to the model is.
    bad(&of(100.0), None, "`array 0` holds");
    let of_rank_one = |_: &Adapters| vec![vec![0.1; 3], vec![0.1; 2]];
    bad(
        &of_rank_one,
        Some([[1, 3], [2, 1]]),
        "`array 0.lora-a` has the shape [1, 3] instead of [2, 3]",
    );
    bad(&|_: &Adapters| Vec::new(), None, "0 arrays instead of 2");
}

#[test]
fn a_node_for_which_every_rank_is_too_large_is_named_and_not_asked() {
    let text =
        format!("rounds = 1\n[low-rank]\n{ARRAY}ranks = [2]\n[pace]\nmode = 'synchronous'\nclients = 6\n");
    let mut world = World::new(coordinator(run(&text)), 0, 1);
    world.events = (0..6).map(introduced).collect();
    let world = world.finish();
    let least = Refusal::Rank { most: 1, least: 2 };
    assert_eq!(world.refusals(), vec![least; 3]);
    let trained = [0, 2, 4].map(ClientId);
    assert!(
        world.reports()[0]
            .clients
            .iter()
            .all(|client| trained.contains(client))
    );
    // It is no fault of theirs.
    let excluded = |action: &Action| matches!(action, Action::Excluded { .. });
    assert!(!world.seen.iter().any(excluded));
}

#[test]
fn a_model_without_the_matrix_cannot_begin() {
    let text = "rounds = 1\n[low-rank]\narrays = ['dense']\nranks = [1]\n";
    let run = run(text);
    let (strategy, selection) = (run.strategy.build().unwrap(), run.selection.build());
    let began = Coordinator::new(
        run,
        layout(),
        vec![0.0; LENGTH],
        strategy,
        selection,
        Arc::new(Processor),
        [3; 32],
    );
    let error = began.unwrap_err().to_string();
    assert!(
        error.contains("`dense`") && error.contains("`array 0`"),
        "{error}"
    );
}
