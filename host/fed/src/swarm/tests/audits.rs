//! Whether the coordinator kept to its word.

use super::*;
use proptest::prelude::*;

#[test]
fn an_honest_round_passes_its_audit_and_each_lie_is_found() {
    let mut world = World::new(settings(Gate::Fallback, Scheduler::GreedyFastestFirst), 12);
    world.warm_up(&[]);
    assert_eq!(audit(&world.record()), Ok(()));

    let mut lie = world.record();
    lie.seed = [4; 32];
    assert_eq!(audit(&lie), Err(Violation::Seed));
    lie.commitment = Coordinator::commitment(&lie.seed);
    assert!(audit(&lie).is_err(), "another seed has another overlay");

    let slot = world
        .slots
        .iter()
        .position(|slot| slot.told.iter().any(|one| one.ground == Ground::Cover))
        .unwrap();
    let with = |change: &dyn Fn(&mut Vec<Transfer>)| {
        let mut slots = world.slots.clone();
        change(&mut slots[slot].told);
        audit(&Record {
            slots: &slots,
            ..world.record()
        })
        .unwrap_err()
    };
    let first = world.slots[slot].told[0];
    assert!(matches!(
        with(&|told| told[0].from = first.to),
        Violation::Overlay { .. }
    ));
    assert!(matches!(
        with(&|told| told[0].chunk = u32::MAX),
        Violation::Unknown { .. }
    ));
    let own = world.coordinator.update_of(first.to).unwrap() * 25;
    assert!(matches!(
        with(&|told| told[0].chunk = own),
        Violation::Repeated { .. }
    ));
    assert!(matches!(
        with(&|told| told.extend(vec![first; 40])),
        Violation::Budget { .. }
    ));
    assert_eq!(
        with(&|told| {
            told.pop();
        }),
        Violation::Schedule { slot }
    );
    let foreign = |told: &mut Vec<Transfer>| {
        let held = (0..12 * 25).find(|chunk| {
            let before: Vec<_> = world.slots[..slot]
                .iter()
                .flat_map(|slot| &slot.arrived)
                .collect();
            let has = |client: Client| {
                before.contains(&&(client, *chunk))
                    || world.coordinator.update_of(client).unwrap() == chunk / 25
            };
            !has(first.from) && !has(first.to)
        });
        told[0].chunk = held.unwrap();
    };
    assert!(matches!(with(&foreign), Violation::NotHeld { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// No link carries more than it can, nothing is sent twice, nobody sends what it has not: whatever the settings.
    #[test]
    fn the_audit_of_any_honest_round_finds_nothing(
        clients in 3_usize..16, gate in 0_usize..5, scheduler in 0_usize..4, spray in 0.0_f64..0.5, on_offer in 1_u32..4,
    ) {
        let gate = [Gate::Strict, Gate::Fallback, Gate::Blended, Gate::Throttled, Gate::Open][gate];
        let scheduler = [
            Scheduler::GreedyFastestFirst,
            Scheduler::RandomFastestFirst,
            Scheduler::RandomFifo,
            Scheduler::Flooding,
        ][scheduler];
        let settings = SwarmSettings { spray, on_offer, patience: 60, ..settings(gate, scheduler) };
        let mut world = World::new(settings, clients);
        world.warm_up(&[]);
        prop_assert_eq!(audit(&world.record()), Ok(()));
    }
}
