//! When chunks of one's own leave.

use super::*;

#[test]
fn nothing_of_its_own_leaves_a_client_through_a_strict_gate_before_it_has_its_cover() {
    let strict = settings(Gate::Strict, Scheduler::GreedyFastestFirst);
    let mut world = World::new(strict, 14);
    world.warm_up(&[]);
    let mut others = [0; 14];
    for slot in &world.slots {
        for one in &slot.told {
            let hidden = others[usize::from(one.from)] + strict.on_offer >= strict.cover(14);
            assert!(
                one.ground != Ground::Unprotected && (one.ground != Ground::Offered || hidden),
                "{one:?}"
            );
        }
        slot.arrived
            .iter()
            .for_each(|(client, _)| others[usize::from(*client)] += 1);
    }
    assert!(world.peers.iter().all(|peer| peer.unprotected() == 0));
}

/// Without a spray there is nothing but own chunks to begin with: a strict gate lets nothing move, and says so.
#[test]
fn a_cover_that_cannot_be_reached_ends_in_a_void_promise() {
    let none = SwarmSettings {
        spray: 0.0,
        patience: 40,
        cover: Cover::OfSwarm(0.3),
        ..settings(Gate::Strict, Scheduler::GreedyFastestFirst)
    };
    let mut world = World::new(none, 10);
    world.warm_up(&[]);
    assert_eq!(world.coordinator.phase(), Phase::Swarming { covered: false });
    assert!(world.slots.iter().all(|slot| slot.told.is_empty()));

    let fallback = SwarmSettings {
        gate: Gate::Fallback,
        ..none
    };
    let mut world = World::new(fallback, 10);
    world.warm_up(&[]);
    assert_eq!(world.coordinator.phase(), Phase::Swarming { covered: true });
    assert!(
        world.peers.iter().any(|peer| peer.unprotected() > 0),
        "and it is counted"
    );
}
