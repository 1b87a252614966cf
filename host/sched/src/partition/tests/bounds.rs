//! Weights that an SLO gives.

use super::problems::Shape;
use crate::partition::*;
use karman_types::Slo;
use proptest::prelude::*;
use std::time::Duration;

fn shape(layers: usize, tiers: usize) -> Shape {
    Shape {
        layers,
        tiers,
        branches: false,
        objective: Objective::LATENCY,
        tight: false,
        uneven: false,
    }
}

fn keeps(bounds: &Bounds, plan: &Plan) -> bool {
    bounds.used(&plan.prediction).iter().all(BoundUse::is_kept)
}

#[test]
fn an_slo_says_what_one_request_may_take() {
    let slo = Slo {
        accuracy: Some(0.9),
        latency_p95: Some(Duration::from_millis(250)),
        cost: Some(1.0),
        energy: Some(40.0),
        ..Slo::over(200)
    };
    let bounds = Bounds::of(&slo);
    assert_eq!(bounds.latency_ms, Some(250.0));
    // 40 J for 200 of them.
    assert_eq!(bounds.energy_mj, Some(200.0));
    let weights = bounds.objective().unwrap();
    assert_eq!(weights, Objective::weighing(1.0 / 250.0, 1.0 / 200.0, 0.0));
    assert_eq!(Bounds::of(&Slo::over(200)).objective(), Ok(Objective::LATENCY));
    let nothing = Bounds::of(&Slo {
        energy: Some(0.0),
        ..slo
    });
    assert!(matches!(
        nothing.plan(&Tiers, &shape(4, 2).draw(1)),
        Err(PlanError::Problem(ProblemError::Number {
            field: "energy_mj",
            ..
        }))
    ));
}

#[test]
fn one_bound_is_planned_for_as_such_and_what_breaks_it_says_so() {
    let problem = shape(6, 3).draw(7);
    let fastest = Tiers.plan(&problem).unwrap();
    let latency_ms = fastest.prediction.latency_ms / 2.0;
    let bounds = Bounds {
        latency_ms: Some(latency_ms),
        ..Bounds::default()
    };
    let (judged, plan) = bounds.plan(&Tiers, &problem).unwrap();
    assert_eq!(plan.assignment, fastest.assignment);
    assert_eq!(judged.objective().energy, 0.0);
    let used = bounds.used(&plan.prediction);
    assert!(!used[0].is_kept() && used.len() == 1);
    assert!(used[0].to_string().ends_with("broken"), "{}", used[0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Where some weights on a grid have a plan that keeps both bounds, so has what is found, and it is never over them by more than the
    /// plan of equal shares.
    #[test]
    fn what_can_be_kept_is_kept(
        layers in 2..=7_usize,
        tiers in 2..=3_usize,
        seed: u64,
        (fast, frugal) in (0.0f64..1.2, 0.0f64..1.2),
    ) {
        const STEPS: u32 = 32;
        let problem = shape(layers, tiers).draw(seed);
        let by = |objective| Tiers.plan(&problem.judged_by(objective).unwrap()).unwrap();
        let (quick, sparing) = (by(Objective::LATENCY).prediction, by(Objective::ENERGY).prediction);
        let between = |from: f64, to: f64, share: f64| from + share * (to - from);
        let (latency_ms, energy_mj) = (
            between(quick.latency_ms, sparing.latency_ms, fast) * (1.0 + 1e-9),
            between(sparing.energy_mj, quick.energy_mj, frugal) * (1.0 + 1e-9),
        );
        let bounds = Bounds { latency_ms: Some(latency_ms), energy_mj: Some(energy_mj), least: None };
        let weighing = |of_latency: f64| {
            by(Objective::weighing(of_latency / latency_ms, (1.0 - of_latency) / energy_mj, 0.0))
        };
        let (judged, plan) = bounds.plan(&Tiers, &problem).unwrap();
        // It is what the policy says of the problem that comes with it.
        prop_assert_eq!(&Tiers.plan(&judged).unwrap(), &plan);
        let mut on_grid = (1..STEPS).map(|step| weighing(f64::from(step) / f64::from(STEPS)));
        if on_grid.any(|other| keeps(&bounds, &other)) {
            prop_assert!(keeps(&bounds, &plan), "{:?}", bounds.used(&plan.prediction));
        }
        let over = |plan: &Plan| {
            let used = bounds.used(&plan.prediction);
            used.iter().map(|used| used.takes / used.at_most).fold(0.0, f64::max)
        };
        prop_assert!(over(&plan) <= over(&weighing(0.5)));
    }

    /// No weights on a grid lead to a plan that keeps the bound and takes less; and where none keeps it, to none that comes nearer.
    #[test]
    fn what_is_to_be_least_is_least_within_the_bound(
        layers in 2..=7_usize,
        tiers in 2..=3_usize,
        seed: u64,
        share in 0.0f64..1.2,
    ) {
        const STEPS: u32 = 32;
        let problem = shape(layers, tiers).draw(seed);
        let by = |objective| Tiers.plan(&problem.judged_by(objective).unwrap()).unwrap();
        let ends = [by(Objective::LATENCY).prediction, by(Objective::ENERGY).prediction];
        for (least, bounded) in [(Bounded::Energy, Bounded::Latency), (Bounded::Latency, Bounded::Energy)] {
            let taken = ends.each_ref().map(|end| bounded.taken(end));
            let (from, to) = (taken[0].min(taken[1]), taken[0].max(taken[1]));
            let within = |bound: f64| match bounded {
                Bounded::Latency => Bounds { latency_ms: Some(bound), energy_mj: None, least: Some(least) },
                Bounded::Energy => Bounds { latency_ms: None, energy_mj: Some(bound), least: Some(least) },
            };
            let bound = (from + share * (to - from)) * (1.0 + 1e-9);
            let bounds = within(bound);
            let (judged, plan) = bounds.plan(&Tiers, &problem).unwrap();
            prop_assert_eq!(&Tiers.plan(&judged).unwrap(), &plan);
            prop_assert!(keeps(&bounds, &plan), "{:?}", bounds.used(&plan.prediction));
            let unit = least.taken(&ends[0]).min(least.taken(&ends[1]));
            for step in 0..=STEPS {
                let of_bounded = f64::from(step) / f64::from(STEPS);
                let weights = (of_bounded / bound, (1.0 - of_bounded) / unit);
                let other = by(match bounded {
                    Bounded::Latency => Objective::weighing(weights.0, weights.1, 0.0),
                    Bounded::Energy => Objective::weighing(weights.1, weights.0, 0.0),
                });
                if keeps(&bounds, &other) {
                    prop_assert!(least.taken(&plan.prediction) <= least.taken(&other.prediction) * (1.0 + 1e-9));
                }
            }
            let (_, nearest) = within(from / 2.0).plan(&Tiers, &problem).unwrap();
            prop_assert!(bounded.taken(&nearest.prediction) <= from * (1.0 + 1e-9));
        }
    }
}
