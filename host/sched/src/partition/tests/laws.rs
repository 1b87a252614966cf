use super::problems::{Shape, brute_force};
use crate::partition::*;
use proptest::prelude::*;

fn shape() -> impl Strategy<Value = Shape> {
    let objective =
        (0.0..2.0, 0.0..0.5).prop_map(|(latency, energy)| Objective::weighing(latency + 0.01, energy, 0.0));
    (
        1..=7_usize,
        1..=3_usize,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        objective,
    )
        .prop_map(|(layers, tiers, branches, tight, uneven, objective)| Shape {
            layers,
            tiers,
            branches,
            objective,
            tight,
            uneven,
        })
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + b.abs())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Without memory limits one cut finds the best of all assignments, whatever the graph.
    #[test]
    fn the_minimum_cut_is_the_best_assignment(shape in shape(), seed: u64) {
        let problem = Shape { tight: false, ..shape }.draw(seed);
        let plan = MinCut.plan(&problem).unwrap();
        prop_assert!(close(plan.cost, brute_force(&problem).unwrap()), "{plan:?}");
        prop_assert_eq!(plan.optimality, Optimality::Proven);
    }

    /// On chains the interval program is exact, with memory limits and for every objective. Only where transfers that share a
    /// link can be the slowest stage does it say how far from the best it may be, and is no farther.
    #[test]
    fn intervals_are_the_best_cuts_of_a_chain(shape in shape(), interval in 0.0..2.0, seed: u64) {
        let objective = Objective { interval, ..shape.objective };
        let problem = Shape { branches: false, objective, ..shape }.draw(seed);
        match (Tiers.plan(&problem), brute_force(&problem)) {
            (Ok(plan), Some(least)) => {
                prop_assert!(plan.cost >= least || close(plan.cost, least), "{} {least}", plan.cost);
                match plan.optimality {
                    Optimality::Proven => prop_assert!(close(plan.cost, least), "{} {least}", plan.cost),
                    Optimality::Within(gap) if shape.uneven && interval > 0.0 && gap.is_finite() => {
                        prop_assert!(plan.cost - gap <= least || close(plan.cost - gap, least), "{plan:?} {least}");
                    }
                    unproven => prop_assert!(false, "{unproven:?}"),
                }
            }
            (Err(_), None) => {}
            (plan, least) => prop_assert!(false, "{plan:?} {least:?}"),
        }
    }

    /// With limits and stages the minimum cut keeps the limits, never claims more than it knows, and is no worse than intervals
    /// would be along the order of the layers where it finds something at all.
    #[test]
    fn multipliers_tell_the_truth(shape in shape(), interval in 0.0..2.0, seed: u64) {
        let problem = Shape { objective: Objective { interval, ..shape.objective }, ..shape }.draw(seed);
        match (MinCut.plan(&problem), brute_force(&problem)) {
            (Ok(plan), Some(least)) => {
                if let Ok(intervals) = Tiers.plan(&problem) {
                    prop_assert!(plan.cost <= intervals.cost * (1.0 + 1e-9));
                }
                let claimed = match plan.optimality {
                    Optimality::Proven => 0.0,
                    Optimality::Within(gap) => gap,
                    Optimality::Unknown => f64::INFINITY,
                };
                prop_assert!(plan.cost <= least + claimed + 1e-6 * (1.0 + least), "{plan:?} {least}");
                prop_assert!(plan.cost >= least - 1e-6 * (1.0 + least));
            }
            (Ok(plan), None) => prop_assert!(false, "{plan:?} breaks a limit"),
            (Err(_), _) => prop_assert!(Tiers.plan(&problem).is_err()),
        }
    }

    /// Two tiers: trying every cut, the interval program, the minimum cut and Neurosurgeon's enumeration agree.
    #[test]
    fn four_ways_to_cut_a_chain_in_two(shape in shape(), seed: u64) {
        let shape = Shape { branches: false, tiers: 2, tight: false, uneven: false, ..shape };
        let problem = Shape { objective: Objective::LATENCY, ..shape }.draw(seed);
        let chain = Chain.plan(&problem).unwrap();
        for policy in [&Tiers as &dyn Partitioner, &MinCut, &Neurosurgeon] {
            let plan = policy.plan(&problem).unwrap();
            prop_assert!(close(plan.cost, chain.cost), "{}", policy.name());
        }
    }

    /// A plan never breaks a limit, and what it predicts is what its assignment is predicted to take.
    #[test]
    fn plans_keep_their_word(shape in shape(), seed: u64) {
        let problem = shape.draw(seed);
        let policies = [&Chain as &dyn Partitioner, &Tiers, &MinCut, &Neurosurgeon, &SingleTier::AllEdge, &SingleTier::AllCloud];
        for plan in policies.iter().filter_map(|policy| policy.plan(&problem).ok()) {
            let prediction = problem.predict(&plan.assignment).unwrap();
            prop_assert_eq!(problem.cost(&prediction), plan.cost);
            prop_assert_eq!(&prediction, &plan.prediction);
            for (used, tier) in prediction.tiers.iter().zip(problem.tiers()) {
                prop_assert!(tier.memory_bytes.is_none_or(|limit| used.memory_bytes <= limit));
            }
            for other in &plan.runners_up {
                if let Lost::Costlier { by, .. } = other.lost {
                    prop_assert!(by >= -1e-9 || plan.optimality != Optimality::Proven, "{plan:?}");
                }
            }
            prop_assert!(!plan.explain(&problem).to_string().is_empty());
        }
    }

    /// A faster link, a faster tier or more memory makes no plan costlier.
    #[test]
    fn better_conditions_cost_no_more(shape in shape(), seed: u64, faster in 1.0..4.0) {
        let problem = Shape { tight: false, ..shape }.draw(seed);
        let before = MinCut.plan(&problem).unwrap().cost;
        let links: Vec<Link> = problem.links().iter().map(|link| Link { rate_mbit_s: link.rate_mbit_s * faster, ..*link }).collect();
        let quicker = problem.under(problem.tiers().to_vec(), links, problem.weights().clone()).unwrap();
        prop_assert!(MinCut.plan(&quicker).unwrap().cost <= before * (1.0 + 1e-9) + 1e-9);
        let mut tiers = problem.tiers().to_vec();
        tiers[0].slowdown /= faster;
        let quicker = problem.under(tiers, problem.links().to_vec(), problem.weights().clone()).unwrap();
        prop_assert!(MinCut.plan(&quicker).unwrap().cost <= before * (1.0 + 1e-9) + 1e-9);
    }

    /// Written and read, a problem and its plan are the same.
    #[test]
    fn problems_and_plans_can_be_written_down(shape in shape(), seed: u64) {
        let problem = shape.draw(seed);
        let bytes = cbor4ii::serde::to_vec(Vec::new(), &problem).unwrap();
        prop_assert_eq!(&cbor4ii::serde::from_slice::<Problem>(&bytes).unwrap(), &problem);
        if let Ok(plan) = MinCut.plan(&problem) {
            let bytes = cbor4ii::serde::to_vec(Vec::new(), &plan).unwrap();
            prop_assert_eq!(cbor4ii::serde::from_slice::<Plan>(&bytes).unwrap(), plan);
        }
    }
}

/// A tensor that three layers on the other side take is sent once.
#[test]
fn a_shared_tensor_crosses_once() {
    let layers = (0..4).map(|index| {
        Layer::measured(
            format!("{index}"),
            &[if index == 0 { 1.0 } else { 100.0 }, 1.0],
            0,
            0,
        )
    });
    let tensor = |from, to: &[usize], wanted_at, bytes| Tensor {
        from,
        to: to.to_vec(),
        wanted_at,
        bytes,
    };
    let tensors = vec![
        tensor(Producer::Held(0), &[0], None, 1_000_000),
        tensor(Producer::Layer(0), &[1, 2, 3], None, 1000),
        tensor(Producer::Layer(3), &[], Some(0), 10),
    ];
    let graph = LayerGraph::new(layers.collect(), tensors).unwrap();
    let link = |from, to| Link {
        from,
        to,
        rate_mbit_s: 1.0,
        latency_ms: 1.0,
        message_ms: 0.0,
    };
    let (tiers, links) = (
        ["edge", "cloud"].map(Tier::new).to_vec(),
        vec![link(0, 1), link(1, 0)],
    );
    let problem = Problem::new(graph, tiers, links, Objective::LATENCY, Weights::Everywhere).unwrap();
    let plan = MinCut.plan(&problem).unwrap();
    assert_eq!(plan.assignment, [0, 1, 1, 1]);
    let up = &plan.prediction.links[0];
    assert_eq!((up.messages, up.bytes), (1, 1000));
}
