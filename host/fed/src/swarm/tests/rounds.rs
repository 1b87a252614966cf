//! Whole rounds: what everybody comes to, also where some fall silent; settings that make none.

use super::*;

#[test]
fn everybody_rebuilds_everything_and_gets_the_same_mean_bit_by_bit() {
    for scheduler in [
        Scheduler::GreedyFastestFirst,
        Scheduler::RandomFastestFirst,
        Scheduler::RandomFifo,
        Scheduler::Flooding,
    ] {
        let mut world = World::new(settings(Gate::Fallback, scheduler), 14);
        world.warm_up(&[]);
        assert_eq!(
            world.coordinator.phase(),
            Phase::Swarming { covered: true },
            "{scheduler:?}"
        );
        let cover = world.settings.cover(14);
        assert!(world.peers.iter().all(|peer| peer.held().len() >= cover));
        world.swarm(&[]);
        let (rebuilt, mean) = world.mean(0);
        assert_eq!(rebuilt, 14);
        for client in 1..14 {
            assert_eq!(world.mean(client), (14, mean.clone()), "{scheduler:?}");
        }
        let exact: f64 = (0..14).map(|client| f64::from(update(client)[7])).sum::<f64>() / 14.0;
        assert!((f64::from(mean[7]) - exact).abs() < 1e-4);
    }
}

#[test]
fn clients_that_fall_silent_hold_nobody_up() {
    let mut world = World::new(settings(Gate::Fallback, Scheduler::GreedyFastestFirst), 14);
    let silent = [3, 9];
    world.warm_up(&silent);
    assert_eq!(world.coordinator.phase(), Phase::Swarming { covered: true });
    world.swarm(&silent);
    let means: Vec<_> = (0..14)
        .filter(|client| !silent.contains(client))
        .map(|client| world.mean(usize::from(client)))
        .collect();
    assert!(means.iter().all(|mean| *mean == means[0]));
    assert_eq!(means[0].0, 12, "all updates but those of the two");
}

#[test]
fn settings_that_make_no_round_are_refused() {
    let good = settings(Gate::Strict, Scheduler::Flooding);
    let links = [Link { up: 1, down: 1 }; 3];
    let digests = [1, 2, 3].map(|n: u8| Digest::of(&[n]));
    let make =
        |settings, links: &[Link], digests: &[Digest]| Coordinator::new(settings, links, digests, SEED).err();
    assert_eq!(make(good, &links, &digests), None);
    let share = make(
        SwarmSettings {
            spray: f64::NAN,
            ..good
        },
        &links,
        &digests,
    );
    assert!(matches!(share, Some(SwarmError::Share { what: "spray", .. })));
    assert_eq!(
        make(SwarmSettings { lags: 0, ..good }, &links, &digests),
        Some(SwarmError::Zero("lags"))
    );
    assert_eq!(
        make(good, &links[..1], &digests[..1]),
        Some(SwarmError::Clients { clients: 1 })
    );
    assert_eq!(
        make(good, &links, &digests[..2]),
        Some(SwarmError::Clients { clients: 2 })
    );
    assert_eq!(
        make(good, &links, &[digests[0], digests[1], digests[0]]),
        Some(SwarmError::Repeated)
    );
    let slow = [links[0], Link { up: 0, down: 3 }, links[0]];
    assert_eq!(make(good, &slow, &digests), Some(SwarmError::Link(1)));
}
