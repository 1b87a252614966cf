use super::*;
use crate::select::SelectionChoice;
use crate::strategy::StrategyChoice;
use karman_tensor::encode::{Link, Measured};

#[test]
fn a_round_without_enough_updates_fails_with_the_reason_and_is_tried_again() {
    let run = run("rounds = 1\n[pace]\nmode = 'synchronous'\nclients = 3\nminimum = 3\ntimeout = '1 min'\n");
    let before = coordinator(run.clone()).model().clone();
    let mut world = World::new(coordinator(run), 3, 1);
    for _ in 0..3 {
        while world.orders.is_empty() {
            world.step();
        }
        // Nobody answers.
        world.orders.clear();
        world.now = world.coordinator.next_timeout().unwrap();
        world.feed(Event::Tick);
    }
    let world = world.finish();
    let status = world.coordinator.status();
    let failure = RoundFailure::TooFew {
        updates: 0,
        minimum: 3,
    };
    assert_eq!(
        status.failure,
        Some(Failure::Rounds {
            rounds: 3,
            last: failure
        })
    );
    assert!(status.ended);
    assert_eq!(world.coordinator.model(), &before);
}

/// A strategy as a careless plugin would have it.
#[derive(Debug)]
struct Wild;

impl crate::strategy::Strategy for Wild {
    fn name(&self) -> &str {
        "wild"
    }

    fn factor(&self, _: &crate::strategy::Facts) -> f64 {
        f64::NAN
    }

    fn step(
        &mut self,
        model: &mut [f32],
        _: &crate::strategy::Aggregate<'_>,
    ) -> Result<(), crate::strategy::StrategyError> {
        model[3] = f32::INFINITY;
        Ok(())
    }
}

#[test]
fn a_step_that_would_not_be_finite_does_not_happen() {
    let run = run("rounds = 1\n[pace]\nmode = 'synchronous'\nclients = 2\n");
    let model = vec![0.5; LENGTH];
    let selection = run.selection.build();
    let wild = Coordinator::new(
        run,
        layout(),
        model.clone(),
        Box::new(Wild),
        selection,
        Arc::new(Processor),
        [3; 32],
    )
    .unwrap();
    let world = World::new(wild, 2, 1).finish();
    let diverged = RoundFailure::Diverged {
        index: 3,
        value: f32::INFINITY,
    };
    let failure = Failure::Rounds {
        rounds: 3,
        last: diverged,
    };
    assert_eq!(world.coordinator.status().failure, Some(failure));
    assert_eq!(world.coordinator.model()[..], model);
}

#[test]
fn no_more_than_eight_updates_are_in_memory() {
    let run = run("rounds = 1\nstart-with = 40\n[pace]\nmode = 'synchronous'\nclients = 40\n");
    let mut world = World::new(coordinator(run), 40, 1);
    let mut most = 0;
    while world.step() {
        most = most.max(world.coordinator.gathering.held());
    }
    assert!(most < gather::BATCH, "{most}");
}

#[test]
fn nobody_hears_of_a_version_before_it_is_durable() {
    let run = run("rounds = 3\n[pace]\nmode = 'synchronous'\nclients = 2\n");
    let mut coordinator = coordinator(run);
    coordinator.handle(Instant(0), here(0));
    let actions = coordinator.handle(Instant(0), here(1));
    assert!(matches!(actions[..], [Action::Save { .. }]), "{actions:?}");
    assert!(coordinator.handle(Instant(1), Event::Tick).is_empty());
    assert!(
        coordinator
            .handle(Instant(1), Event::Saved { ticket: Ticket(77) })
            .is_empty()
    );
    let reason = "no space left".to_owned();
    let actions = coordinator.handle(
        Instant(2),
        Event::Unsaved {
            ticket: Ticket(1),
            reason: reason.clone(),
        },
    );
    let failure = Some(Failure::Unsaved(reason));
    assert!(
        actions.contains(&Action::Finished { version: 0, failure }),
        "{actions:?}"
    );
}

#[test]
fn clients_judge_the_model_and_a_target_ends_the_run() {
    let text =
        "rounds = 9\n[pace]\nmode = 'synchronous'\nclients = 3\n[evaluation]\nclients = 2\ntarget = 0.5\n";
    let world = World::new(coordinator(run(text)), 3, 1).finish();
    let status = world.coordinator.status();
    assert_eq!(
        (status.version, status.accuracy, status.ended),
        (1, Some(0.5), true)
    );
    assert_eq!(status.failure, None);
}

/// One evaluator of the first version answers well, the other not at all: when the second version comes, what is known ends the run.
#[test]
fn an_evaluation_that_is_cut_short_counts() {
    let text = "rounds = 9\nstart-with = 3\n[pace]\nmode = 'synchronous'\nclients = 3\n[evaluation]\nclients = 2\ntarget = 0.5\n";
    let mut world = World::new(coordinator(run(text)), 3, 1);
    let mut judged = 0;
    while world.coordinator.status().version < 2 {
        let silent = |order: &Order| order.work == Work::Evaluate && judged > 0;
        if let Some(place) = world.orders.iter().position(|(_, order)| silent(order)) {
            world.orders.remove(place);
        }
        let before = world
            .orders
            .iter()
            .filter(|(_, order)| order.work == Work::Evaluate)
            .count();
        assert!(world.step());
        let after = world
            .orders
            .iter()
            .filter(|(_, order)| order.work == Work::Evaluate)
            .count();
        judged += before.saturating_sub(after);
    }
    let status = world.finish().coordinator.status();
    assert_eq!(
        (status.version, status.accuracy, status.ended),
        (2, Some(0.5), true)
    );
}

#[test]
fn choices_are_built_as_described() {
    for strategy in STRATEGIES {
        let run = described(strategy, "random", SYNCHRONOUS);
        let name = strategy.split('\'').nth(1).unwrap();
        assert_eq!(run.strategy.build().unwrap().name(), name);
    }
    for selection in SELECTIONS {
        let run = described("name = 'fed-avg'", selection, SYNCHRONOUS);
        assert_eq!(run.selection.build().name(), selection);
    }
    assert_eq!(SelectionChoice::default().build().name(), "random");
    let brought = described("name = 'plugin'\nplugin = 'mine'", "random", SYNCHRONOUS).strategy;
    assert!(brought.build().is_none());
    assert_eq!(brought.plugin().unwrap().plugin, "mine");
    assert!(StrategyChoice::default().plugin().is_none());
}

#[test]
fn updates_travel_as_the_link_asks_for() {
    let text = "rounds = 1\n[pace]\nmode = 'synchronous'\nclients = 3\n[encoding]\nby-link = 0.01\n";
    let mut coordinator = coordinator(run(&format!("start-with = 3\n{text}")));
    let int8 = Measured {
        encoding: Encoding::Int8,
        packed: true,
        ratio: 4.0,
        encodes: 1e6,
        decodes: 1e6,
        error: 0.004,
    };
    coordinator.handle(
        Instant(0),
        Event::Measured {
            encodings: vec![int8],
        },
    );
    for (client, rate) in [(0, Some(1e3)), (1, Some(1e9)), (2, None)] {
        let link = rate.map(|bytes_per_second| Link { bytes_per_second });
        let profile = Profile {
            samples: 1,
            link,
            ..Profile::default()
        };
        coordinator.handle(
            Instant(0),
            Event::Here {
                client: ClientId(client),
                profile,
            },
        );
    }
    let actions = coordinator.handle(Instant(1), Event::Saved { ticket: Ticket(1) });
    let packing = |action: &Action| match action {
        Action::Send { order, .. } => match &order.work {
            Work::Train(train) => Some((train.encoding, train.pack)),
            Work::Evaluate => None,
        },
        _ => None,
    };
    let packings: Vec<(Encoding, bool)> = actions.iter().filter_map(packing).collect();
    assert_eq!(
        packings,
        [
            (Encoding::Int8, true),
            (Encoding::F32, false),
            (Encoding::F32, false)
        ]
    );
}

/// The driver was killed when everything was on its way: the same orders go out again, and the run ends as it would have.
#[test]
fn after_links_were_lost_every_order_goes_out_again() {
    let text = "rounds = 3\n[pace]\nmode = 'synchronous'\nclients = 3\n";
    let whole = World::new(coordinator(run(text)), 3, 1).finish();
    let mut world = World::new(coordinator(run(text)), 3, 1);
    while world.orders.len() < 3 || world.checkpoints.len() < 2 {
        assert!(world.step());
    }
    let before: Vec<_> = std::mem::take(&mut world.orders);
    world.feed(Event::Severed {
        windows: Windows::new(),
    });
    let numbers = |orders: &[(ClientId, Order)]| {
        let mut numbers: Vec<_> = orders
            .iter()
            .map(|(client, order)| (*client, order.assignment))
            .collect();
        numbers.sort();
        numbers
    };
    assert_eq!(numbers(&world.orders), numbers(&before));
    assert_eq!(world.finish().bits(), whole.bits());
}

/// A driver that goes on from it waits for no announcement of those, and for one of everybody else.
#[test]
fn a_checkpoint_says_who_was_there() {
    let text = "rounds = 3\nstart-with = 3\n[pace]\nmode = 'synchronous'\nclients = 3\nminimum = 2\n";
    let mut world = World::new(coordinator(run(text)), 3, 1);
    while world.checkpoints.is_empty() {
        assert!(world.step());
    }
    let present = |world: &World| {
        let (_, checkpoint) = world.checkpoints.last().unwrap();
        checkpoint.present().map(|client| client.0).collect::<Vec<u64>>()
    };
    assert_eq!(present(&world), [0, 1, 2]);
    let before = world.checkpoints.len();
    let client = ClientId(2);
    world.feed(Event::Gone { client });
    while world.checkpoints.len() == before {
        assert!(world.step());
    }
    assert_eq!(present(&world), [0, 1]);
}

#[test]
fn a_short_timeout_keeps_nobody_out_who_answers_in_time() {
    let text = "rounds = 2\n[pace]\nmode = 'synchronous'\nclients = 1\nminimum = 1\ntimeout = '2 s'\n[evaluation]\nevery = 0\n";
    let mut world = World::new(coordinator(run(text)), 1, 1);
    world.feed_all();
    assert_eq!(world.orders.len(), 1, "its training was never measured");
    // The answer came in time, and is seen a moment later.
    world.now = world.coordinator.next_timeout().unwrap();
    assert!(world.step());
    world.feed_all();
    assert_eq!(world.coordinator.status().version, 1);
    assert_eq!(world.orders.len(), 1, "it is asked again");
    assert_eq!(world.finish().coordinator.status().version, 2);
}

#[test]
fn steps_become_smaller_with_each_version() {
    let text = "rounds = 3\n[pace]\nmode = 'synchronous'\nclients = 1\nminimum = 1\n[evaluation]\nevery = 0\n\
                [training]\nlearning-rate = 0.4\nlearning-rate-decay = 0.5\n";
    let mut world = World::new(coordinator(run(text)), 1, 1);
    world.feed_all();
    let mut rates = Vec::new();
    while let Some((_, order)) = world.orders.first() {
        let Work::Train(train) = &order.work else {
            panic!("an evaluation is no training")
        };
        rates.push(train.learning_rate);
        assert!(world.step());
        world.feed_all();
    }
    assert_eq!(rates, [0.4, 0.2, 0.1]);
}
