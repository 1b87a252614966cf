//! Clients that are in view at times.

use super::*;
use crate::select::NotEligible;
use std::time::Duration;

/// Rounds of two of three clients, whose training is taken to last 20 s.
const TEXT: &str = "rounds = 3\nstart-with = 2\n[pace]\nmode = 'synchronous'\nclients = 2\nminimum = 2\n\
                    [eligibility]\ntraining = '20 s'\n[evaluation]\nevery = 0\n";

/// Client 2 is in view then.
fn passes(windows: &[(u64, u64)]) -> Windows {
    let window = |(start, end): &(u64, u64)| Window {
        start: Instant(*start),
        end: Instant(*end),
        bytes_per_second: None,
    };
    Windows::from([(ClientId(2), windows.iter().map(window).collect())])
}

fn passed_over(world: &World) -> Vec<(u64, NotEligible)> {
    let passed = |action: &Action| match action {
        Action::PassedOver { client, why } => Some((client.0, *why)),
        _ => None,
    };
    world.seen.iter().filter_map(passed).collect()
}

fn asked(world: &World) -> Vec<u64> {
    let mut asked: Vec<u64> = world.orders.iter().map(|(client, _)| client.0).collect();
    asked.sort_unstable();
    asked
}

/// A run that knows when client 2 is in view before it hears of it, and then of these.
fn world(windows: &[(u64, u64)], clients: &[u64]) -> World {
    let mut world = World::new(coordinator(run(TEXT)), 0, 1);
    world.feed(Event::Planned {
        windows: passes(windows),
    });
    world.events.extend(clients.iter().map(|client| here(*client)));
    world.feed_all();
    world
}

#[test]
fn who_goes_out_of_view_too_soon_is_not_asked_and_it_is_told_once() {
    let mut world = world(&[(0, 10_000)], &[2, 0, 1]);
    assert_eq!(asked(&world), [0, 1]);
    let told = passed_over(&world);
    let [(2, NotEligible::View { in_view, needed })] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(needed, Duration::from_secs(20));
    assert!(in_view < Duration::from_secs(10), "{in_view:?}");
    // The next round is without it as well, and nobody has to hear that again.
    while world.coordinator.status().version < 2 {
        assert!(world.step());
    }
    assert_eq!(passed_over(&world).len(), 1);
    assert!(
        world
            .reports()
            .iter()
            .all(|round| round.clients == [ClientId(0), ClientId(1)])
    );
}

#[test]
fn a_run_waits_for_a_pass_that_is_long_enough() {
    let mut world = world(&[(0, 10_000), (60_000, 65_000), (100_000, 130_000)], &[0, 2]);
    assert!(world.orders.is_empty());
    for (start, long_enough) in [(60_000, false), (100_000, true)] {
        assert_eq!(world.coordinator.next_timeout(), Some(Instant(start)));
        // Fed 7 ms later.
        world.now = Instant(start);
        world.feed(Event::Tick);
        world.feed_all();
        assert_eq!(world.orders.len(), if long_enough { 2 } else { 0 });
    }
    assert_eq!(asked(&world), [0, 2]);
    assert_eq!(
        passed_over(&world).len(),
        1,
        "the reason was the same all the time"
    );
}

#[test]
fn plans_change() {
    let mut world = world(&[(60_000, 65_000)], &[0, 2]);
    assert!(world.orders.is_empty());
    // With an empty plan it is never in view; without any it always is.
    world.feed(Event::Planned { windows: passes(&[]) });
    assert_eq!(world.coordinator.next_timeout(), None);
    world.feed(Event::Planned {
        windows: Windows::new(),
    });
    world.feed_all();
    assert_eq!(asked(&world), [0, 2]);
}

#[test]
fn after_a_restart_what_was_planned_before_does_not_count() {
    let world = world(&[(0, 3_600_000)], &[0, 2]);
    assert_eq!(asked(&world), [0, 2]);
    let (_, checkpoint) = world.checkpoints.last().unwrap().clone();
    // The order of before goes out all the same; it was sent when there was time enough.
    let mut again = World::new(resume(checkpoint), 0, 1);
    again.now = world.now;
    again.feed(Event::Severed {
        windows: passes(&[(3_600_000, 3_700_000)]),
    });
    again.feed_all();
    assert_eq!(asked(&again), [0, 2]);
    while again.coordinator.status().version < 1 {
        assert!(again.step());
    }
    again.feed_all();
    assert!(again.orders.is_empty(), "client 2 is out of view now");
    assert_eq!(again.coordinator.next_timeout(), Some(Instant(3_600_000)));
}

#[test]
fn who_is_out_of_view_is_not_asked_to_judge() {
    let text = TEXT.replace("every = 0", "clients = 3");
    let mut world = World::new(coordinator(run(&text)), 3, 1);
    world.feed(Event::Planned {
        windows: passes(&[(900_000, 960_000)]),
    });
    let mut judges = Vec::new();
    while world.coordinator.status().version < 1 {
        assert!(world.step());
    }
    world.feed_all();
    for (client, order) in &world.orders {
        if order.work == Work::Evaluate {
            judges.push(client.0);
        }
    }
    judges.sort_unstable();
    assert_eq!(judges, [0, 1]);
}
