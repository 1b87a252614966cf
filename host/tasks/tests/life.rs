//! What must hold whatever goes wrong, tried on several nodes in virtual time.

mod world;

use proptest::prelude::*;
use world::{NODES, World};

/// A minute of mishaps and then peace: every acknowledged task has ended by then.
fn live(seed: u64, mishaps: usize) -> World {
    let mut world = World::new(seed);
    let mut rng = fastrand::Rng::with_seed(!seed);
    for _ in 0..mishaps {
        if rng.u8(..3) > 0 {
            world.submit(rng.usize(..NODES));
        } else {
            world.mishap();
        }
        world.run(rng.u64(..700));
    }
    world.heal();
    for _ in 0..60 {
        world.run(1_000);
        world.reconcile();
    }
    world.checks.kept_their_word();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_work_ends_once(seed in any::<u64>(), mishaps in 1usize..120) {
        live(seed, mishaps);
    }
}

#[test]
fn the_same_seed_is_the_same_life() {
    let (one, other) = (live(7, 80), live(7, 80));
    assert_eq!(one.checks.outcomes, other.checks.outcomes);
    assert!(one.kept == other.kept);
}

/// The properties would hold in an empty world, too.
#[test]
fn much_happens() {
    let worlds: Vec<_> = (0..24).map(|seed| live(seed, 100)).collect();
    let outcomes = || worlds.iter().flat_map(|world| world.checks.outcomes.values());
    let count = |name: &str| {
        outcomes()
            .filter(|outcome| format!("{outcome:?}").starts_with(name))
            .count()
    };
    for kind in ["Done", "Failed", "Expired", "Cancelled"] {
        assert!(count(kind) > 10, "{kind}: {}", count(kind));
    }
    assert!(worlds.iter().map(|world| world.kept.refused_stale()).sum::<u64>() > 10);
}
