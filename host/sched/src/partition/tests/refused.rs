//! Input that makes no sense is refused by name.

use super::problems::Shape;
use crate::partition::*;

fn problem() -> Problem {
    let shape = Shape {
        layers: 4,
        tiers: 3,
        branches: false,
        objective: Objective::LATENCY,
        tight: false,
        uneven: false,
    };
    shape.draw(1)
}

fn changed(change: impl FnOnce(&mut Vec<Tier>, &mut Vec<Link>, &mut Weights)) -> ProblemError {
    let problem = problem();
    let (mut tiers, mut links) = (problem.tiers().to_vec(), problem.links().to_vec());
    let mut weights = problem.weights().clone();
    change(&mut tiers, &mut links, &mut weights);
    problem.under(tiers, links, weights).unwrap_err()
}

#[test]
fn numbers_that_are_none() {
    for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let number = |error: ProblemError, expected: &str| {
            assert!(
                matches!(&error, ProblemError::Number { field, .. } if *field == expected),
                "{error}"
            );
        };
        number(changed(|tiers, _, _| tiers[1].slowdown = bad), "slowdown");
        number(changed(|_, links, _| links[0].rate_mbit_s = bad), "rate_mbit_s");
        if bad != 0.0 {
            number(changed(|tiers, _, _| tiers[2].power.idle_w = bad), "idle_w");
            number(changed(|_, links, _| links[0].latency_ms = bad), "latency_ms");
            let layer = Layer::measured("x", &[bad], 0, 0);
            assert!(matches!(
                LayerGraph::chain(vec![layer], 1, &[1]),
                Err(GraphError::Time { layer: 0, .. })
            ));
        }
        assert!(Objective::within(Some(bad), None, None).is_err());
    }
}

#[test]
fn lengths_and_indices() {
    assert!(matches!(
        changed(|tiers, _, _| tiers.clear()),
        ProblemError::Tiers(0)
    ));
    assert!(matches!(
        changed(|tiers, links, _| {
            links.clear();
            tiers.truncate(7);
            tiers.resize(7, tiers[0].clone());
        }),
        ProblemError::Tiers(7)
    ));
    assert!(matches!(
        changed(|_, links, _| links[0].to = 3),
        ProblemError::NoSuchTier {
            tier: 3,
            tiers: 3,
            ..
        }
    ));
    assert!(matches!(
        changed(|_, links, _| links[0].to = links[0].from),
        ProblemError::Link { .. }
    ));
    assert!(matches!(
        changed(|_, links, _| links.push(links[0])),
        ProblemError::Link { .. }
    ));
    let held = vec![vec![true; 4]; 2];
    assert!(matches!(
        changed(|_, _, weights| *weights = Weights::Only { held }),
        ProblemError::Length {
            have: 2,
            expected: 3,
            ..
        }
    ));
    let short = LayerGraph::chain(vec![Layer::measured("x", &[1.0], 0, 0)], 1, &[1]).unwrap();
    let problem = problem();
    let error = Problem::new(
        short,
        problem.tiers().to_vec(),
        problem.links().to_vec(),
        Objective::LATENCY,
        Weights::Everywhere,
    );
    assert!(matches!(
        error,
        Err(ProblemError::Length {
            have: 1,
            expected: 3,
            ..
        })
    ));
}

#[test]
fn graphs_that_are_none() {
    assert_eq!(LayerGraph::new(vec![], vec![]), Err(GraphError::NoLayers));
    let layers = || {
        vec![
            Layer::measured("a", &[1.0], 0, 0),
            Layer::measured("b", &[1.0], 0, 0),
        ]
    };
    let tensor = |from, to| Tensor {
        from: Producer::Layer(from),
        to: vec![to],
        wanted_at: None,
        bytes: 1,
    };
    let cycle = LayerGraph::new(layers(), vec![tensor(0, 1), tensor(1, 0)]);
    assert!(matches!(cycle, Err(GraphError::Cycle { .. })));
    let itself = LayerGraph::new(layers(), vec![tensor(1, 1)]);
    assert_eq!(itself, Err(GraphError::Cycle { layer: 1 }));
    let nowhere = LayerGraph::new(layers(), vec![tensor(0, 2)]);
    assert_eq!(nowhere, Err(GraphError::NoSuchLayer { tensor: 0, layer: 2 }));
    assert!(matches!(
        LayerGraph::chain(layers(), 1, &[1]),
        Err(GraphError::Lengths {
            layers: 2,
            outputs: 1
        })
    ));
    let text = r#"{ "layers": [], "tensors": [] }"#;
    assert!(serde_json::from_str::<LayerGraph>(text).is_err());
}

#[test]
fn objectives_without_meaning() {
    let problem = problem();
    let with = |objective| {
        let tiers = problem.tiers().iter().cloned();
        let unpowered = tiers.map(|tier| Tier {
            power: Power::default(),
            ..tier
        });
        Problem::new(
            problem.graph().clone(),
            unpowered.collect(),
            problem.links().to_vec(),
            objective,
            Weights::Everywhere,
        )
    };
    assert_eq!(
        with(Objective::weighing(0.0, 0.0, 0.0)),
        Err(ProblemError::NoObjective)
    );
    assert_eq!(with(Objective::ENERGY), Err(ProblemError::NoPower));
    assert_eq!(Objective::within(None, None, None), Ok(Objective::LATENCY));
}

/// What nobody can hold is refused with the limit it breaks, not planned anyway.
#[test]
fn a_network_too_big_for_everybody() {
    let problem = problem();
    let mut tiers = problem.tiers().to_vec();
    for tier in &mut tiers {
        tier.memory_bytes = Some(1);
    }
    let problem = problem
        .under(tiers, problem.links().to_vec(), Weights::Everywhere)
        .unwrap();
    for policy in [
        &Chain as &dyn Partitioner,
        &Tiers,
        &MinCut,
        &Neurosurgeon,
        &SingleTier::AllEdge,
    ] {
        let error = policy.plan(&problem).unwrap_err();
        assert!(
            matches!(error, PlanError::Infeasible(Infeasible::Memory { limit: 1, .. })),
            "{error}"
        );
    }
}

#[test]
fn a_cut_that_does_not_fit_is_not_pinned() {
    let problem = problem();
    let pinned = |ends: &[usize]| Pinned { ends: ends.to_vec() }.plan(&problem);
    for (ends, tiers) in [
        (&[][..], [0, 0, 0, 0]),
        (&[3], [0, 0, 0, 1]),
        (&[1, 3], [0, 1, 1, 2]),
        (&[0, 0], [2, 2, 2, 2]),
        (&[2, 2], [0, 0, 2, 2]),
    ] {
        assert_eq!(pinned(ends).unwrap().assignment, tiers, "{ends:?}");
    }
    for ends in [&[1, 2, 3][..], &[5], &[3, 1]] {
        let refused = pinned(ends).unwrap_err();
        assert!(
            matches!(refused, PlanError::NotForThis { policy: "pinned", .. }),
            "{refused}"
        );
    }
}
