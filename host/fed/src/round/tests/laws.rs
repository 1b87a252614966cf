use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The order in which updates arrive has no influence on a synchronous run, whatever the strategy.
    #[test]
    fn the_order_of_arrival_does_not_matter(seed: u64, strategy in 0..STRATEGIES.len()) {
        let world = |seed| {
            World::new(coordinator(described(STRATEGIES[strategy], "random", SYNCHRONOUS)), 12, seed).finish()
        };
        let (one, other) = (world(seed), world(seed ^ 1));
        prop_assert_eq!(one.coordinator.status().version, 5);
        prop_assert_eq!(one.bits(), other.bits());
    }

    /// Killed at any moment, a run that goes on from its last durable checkpoint with the events that followed ends the same.
    #[test]
    fn a_resumed_run_ends_the_same(
        seed: u64,
        strategy in 0..STRATEGIES.len(),
        selection in 0..SELECTIONS.len(),
        pace in 0usize..3,
        cut in 0.0..1.0f64,
    ) {
        // Robust rules are synchronous.
        let pace = if strategy > 7 { SYNCHRONOUS } else { [SYNCHRONOUS, SEMI, BUFFERED][pace] };
        let run = described(STRATEGIES[strategy], SELECTIONS[selection], pace);
        let whole = World::new(coordinator(run), 12, seed).finish();
        prop_assert_eq!(whole.coordinator.status().version, 5, "{:?}", whole.coordinator.status());

        let cut = (whole.log.len() as f64 * cut) as usize;
        let durable = whole.checkpoints.iter().rfind(|(at, _)| *at <= cut);
        let Some((at, checkpoint)) = durable else { return Ok(()) };
        let mut resumed = resume(checkpoint.clone());
        for (now, event) in &whole.log[*at..] {
            resumed.handle(*now, event.clone());
        }
        prop_assert_eq!(resumed.model(), whole.coordinator.model());
        prop_assert_eq!(resumed.status().version, 5);
    }

    /// The same for a checkpoint taken at any moment, also with updates half gathered.
    #[test]
    fn a_checkpoint_of_any_moment_is_all_there_is(seed: u64, pace in 0usize..3, steps in 0usize..60) {
        let run = described("name = 'fed-avg-m'", "bandit", [SYNCHRONOUS, SEMI, BUFFERED][pace]);
        let mut world = World::new(coordinator(run), 12, seed);
        for _ in 0..steps {
            world.step();
        }
        // An order that waits for the disk goes out at once after a restart: take a moment at which none waits.
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

    /// Clients that come and go and die at any step: the run ends, with its versions or with a reason, and never earlier.
    #[test]
    fn death_at_any_step_is_survived(
        seed: u64, pace in 0usize..3, deaths in prop::collection::vec((0usize..80, 0u64..12, any::<bool>()), 0..20),
    ) {
        let run = described("name = 'fed-avg'", "random", [SYNCHRONOUS, SEMI, BUFFERED][pace]);
        let mut world = World::new(coordinator(run), 12, seed);
        for step in 0..80 {
            world.step();
            for (_, client, back) in deaths.iter().filter(|(at, ..)| *at == step) {
                world.orders.retain(|(it, _)| it.0 != *client);
                world.feed(Event::Gone { client: ClientId(*client) });
                if *back {
                    world.feed(here(*client));
                }
            }
        }
        // Whoever is still away comes back.
        (0..12).for_each(|client| world.feed(here(client)));
        let world = world.finish();
        let status = world.coordinator.status();
        prop_assert!(status.ended && (status.version == 5 || status.failure.is_some()), "{status:?}");
        prop_assert!(world.coordinator.model().iter().all(|x| x.is_finite()));
    }

    /// Nothing that can be said to it makes it panic, or makes more versions than were asked for.
    #[test]
    fn no_event_is_too_odd(events in prop::collection::vec(odd_event(), 0..120), pace in 0usize..3) {
        let mut coordinator = coordinator(described("name = 'fed-avg'", "bandit", [SYNCHRONOUS, SEMI, BUFFERED][pace]));
        for (now, event) in events {
            coordinator.handle(Instant(now), event);
            prop_assert!(coordinator.status().version <= 5);
            prop_assert!(coordinator.model().iter().all(|x| x.is_finite()));
        }
    }
}

fn odd_event() -> impl Strategy<Value = (u64, Event)> {
    let client = || (0u64..4).prop_map(ClientId);
    let id = || (0u64..12).prop_map(AssignmentId);
    let ticket = (0u64..6).prop_map(Ticket);
    let update = (
        prop::collection::vec(-1.0f32..1.0, LENGTH),
        0u64..1000,
        0u32..4,
        any::<f32>(),
    )
        .prop_map(|(numbers, samples, steps, loss)| {
            Box::new(Update {
                frames: frames(&numbers),
                samples,
                steps,
                loss,
            })
        });
    let judgement = (0u64..20, 0u64..20, any::<f32>()).prop_map(|(samples, correct, loss)| Judgement {
        samples,
        correct,
        loss,
    });
    let event = prop_oneof![
        3 => (0u64..4).prop_map(here),
        1 => client().prop_map(|client| Event::Gone { client }),
        4 => (client(), id(), update).prop_map(|(client, assignment, update)| Event::Updated { client, assignment, update }),
        1 => (client(), id(), judgement).prop_map(|(client, assignment, judgement)| Event::Judged { client, assignment, judgement }),
        1 => (client(), id()).prop_map(|(client, assignment)| Event::GaveUp { client, assignment, reason: String::new() }),
        4 => ticket.prop_map(|ticket| Event::Saved { ticket }),
        1 => Just(Event::Tick),
    ];
    (0u64..2_000_000, event)
}
