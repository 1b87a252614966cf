use super::*;
use proptest::prelude::*;

/// The steps at which a client may cease to answer; at the last one it never does.
const LEAVES: [Step; 6] = [
    Step::Keys,
    Step::Shares,
    Step::Mask,
    Step::Consistency,
    Step::Unmask,
    Step::Done,
];

/// Runs a round in which the client at each position answers the steps before the one it leaves at.
fn run(graph: Graph, leaves: &[Step], seed: u64) -> (World, Result<SecureSum, Failure>) {
    let mut world = World::new(leaves.len(), graph, seed, |position| {
        leaves[usize::from(position)] > Step::Keys
    });
    loop {
        match world.close() {
            Ok(None) => {}
            Ok(Some(sum)) => return (world, Ok(sum)),
            Err(failure) => return (world, Err(failure)),
        }
        let leaves = |node| leaves[usize::from(world.session.roster().position(node).unwrap())];
        let when: BTreeMap<_, _> = world.vectors.keys().map(|node| (*node, leaves(*node))).collect();
        world.deliver(|node, step| step < when[&node]);
    }
}

/// The sum is that of exactly those whose vectors were sent, element by element.
fn assert_exact(world: &World, leaves: &[Step], sum: &SecureSum) {
    let sent = |position: &Position| leaves[usize::from(*position)] > Step::Mask;
    let survivors: Vec<_> = (0..leaves.len() as Position)
        .filter(sent)
        .map(|one| world.node(one))
        .collect();
    assert_eq!(sum.survivors, survivors, "{leaves:?}");
    assert_eq!(sum.elements, world.plain_sum(&survivors), "{leaves:?}");
    assert_eq!(sum.faults, [], "{leaves:?}");
}

/// All ways in which `clients` clients may each do one of these.
fn patterns(clients: u32, of: &[Step]) -> impl Iterator<Item = Vec<Step>> {
    let all = of.len().pow(clients);
    (0..all).map(move |number| {
        (0..clients)
            .map(|place| of[number / of.len().pow(place) % of.len()])
            .collect()
    })
}

#[test]
fn the_sum_is_exact_whenever_enough_are_left_whoever_leaves_whenever() {
    let mut sums = 0;
    for leaves in patterns(4, &LEAVES) {
        let (world, result) = run(Graph::Complete, &leaves, 3);
        let left_after = |step: Step| leaves.iter().filter(|leave| **leave > step).count();
        let enough = left_after(Step::Unmask) >= threshold(4);
        match result {
            Ok(sum) => {
                assert!(enough, "{leaves:?}");
                assert_exact(&world, &leaves, &sum);
                sums += 1;
            }
            Err(failure) => assert!(!enough, "{leaves:?}: {failure}"),
        }
    }
    // All four stay, or three and one leaves in five ways.
    assert_eq!(sums, 1 + 4 * 5);
}

#[test]
fn the_sum_on_a_ring_is_exact_in_all_patterns_up_to_the_threshold() {
    // Five holders each, of which four are needed: any one client may be gone anywhere, and more where they are not neighbours.
    let graph = Graph::Ring(Degree::Of(4));
    let mut gone = [0; 8];
    for leaves in patterns(7, &[Step::Mask, Step::Done]) {
        let count = leaves.iter().filter(|leave| **leave == Step::Mask).count();
        match run(graph, &leaves, 4) {
            (world, Ok(sum)) => {
                assert_exact(&world, &leaves, &sum);
                gone[count] += 1;
            }
            (_, Err(failure)) => assert!(count > 1, "{leaves:?}: {failure}"),
        }
    }
    assert_eq!(gone[..2], [1, 7]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn larger_rounds_are_exact_too(
        seed in any::<u64>(), clients in 12_usize..32, ring in any::<bool>(), share in 0.0_f64..0.12,
    ) {
        let graph = if ring { Graph::Ring(Degree::Logarithmic) } else { Graph::Complete };
        let mut random = fastrand::Rng::with_seed(seed);
        let leaves: Vec<_> = (0..clients)
            .map(|_| if random.f64() < share { LEAVES[random.usize(..5)] } else { Step::Done })
            .collect();
        let gone = leaves.iter().filter(|leave| **leave != Step::Done).count();
        let (world, result) = run(graph, &leaves, seed);
        let holders = graph.degree(clients - gone) + 1;
        match result {
            Ok(sum) => assert_exact(&world, &leaves, &sum),
            Err(failure) => prop_assert!(gone > holders - threshold(holders), "{failure}"),
        }
    }
}

/// Two masks for each of those who are left, and one of their own: of five clients one drops out.
#[test]
fn the_time_that_unmasking_takes_is_known_before() {
    let mut world = World::new(5, Graph::Complete, 1, |_| true);
    let last = world.node(4);
    let vector = 5.0 * 4.0;
    let seconds = |masks: f64| std::time::Duration::from_secs_f64(2.0 * masks * vector / 10.0);
    let expected = [5.0, 5.0, 5.0, 4.0 + 4.0, 4.0 + 4.0].map(seconds);
    let mut known = vec![world.server.unmasking(10.0)];
    while world.server.step() != Step::Unmask {
        world.close().unwrap();
        known.push(world.server.unmasking(10.0));
        world.deliver(|node, step| node != last || step < Step::Mask);
    }
    assert_eq!(known, expected);
    assert!(world.close().unwrap().is_some());
    assert_eq!(
        World::up_to(5, Graph::Complete, Step::Mask).server.unmasking(0.0),
        std::time::Duration::MAX
    );
}

#[test]
fn too_few_clients_are_a_failure_with_its_reason() {
    let leaves = [Step::Done, Step::Done, Step::Unmask, Step::Unmask];
    let failure = run(Graph::Complete, &leaves, 1).1.unwrap_err();
    assert!(
        matches!(failure, Failure::TooFewShares { have: 2, need: 3, .. }),
        "{failure}"
    );
    for (step, stay) in [(Step::Mask, 2), (Step::Keys, 1)] {
        let leaves = [0, 1, 2, 3].map(|client| if client < stay { Step::Done } else { step });
        let failure = run(Graph::Complete, &leaves, 1).1.unwrap_err();
        let (have, need) = (stay, 3);
        assert_eq!(failure, Failure::TooFew { step, have, need });
    }
}
