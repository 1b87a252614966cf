use super::*;
use crate::Processor;
use crate::strategy::Strategy;
use karman_tensor::arithmetic::{FixedSum, Grid, Term, squared_distances};
use proptest::prelude::{Strategy as Values, prop, prop_assert, prop_assert_eq, proptest};

fn facts(client: u64, weight: u64, steps: u32) -> Facts {
    Facts {
        client: ClientId(client),
        assignment: AssignmentId(client),
        samples: weight,
        weight,
        steps,
        loss: 1.0,
        staleness: 0,
    }
}

/// This update, from nobody in particular.
const fn alone(update: &[f32]) -> Aggregate<'_> {
    Aggregate {
        version: 0,
        update,
        updates: &[],
        facts: &[],
        population: 1,
    }
}

/// The aggregate of a streaming rule, and the model after its step.
fn stepped(
    strategy: &mut dyn Strategy,
    model: &[f32],
    updates: &[Vec<f32>],
    facts: &[Facts],
    population: usize,
) -> Vec<f32> {
    let mut sum = FixedSum::new(updates[0].len(), Grid::new(1e6, updates.len() as u32).unwrap());
    for (values, facts) in updates.iter().zip(facts) {
        let factor = strategy.factor(facts);
        assert!(factor > 0.0 && factor <= facts.weight as f64);
        sum.add(&[Term { values, factor }]).unwrap();
    }
    let weight: u64 = facts.iter().map(|facts| facts.weight).sum();
    let update = sum.divided_by(weight as f64);
    let mut model = model.to_vec();
    strategy
        .step(
            &mut model,
            &Aggregate {
                facts,
                population,
                ..alone(&update)
            },
        )
        .unwrap();
    model
}

fn close(a: &[f32], b: &[f64], within: f64) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| (f64::from(*a) - b).abs() <= within * (1.0 + b.abs()))
}

/// Honest updates around one point, and lies anywhere.
fn with_liars(needs: fn(usize) -> usize) -> impl Values<Value = (Vec<Vec<f32>>, Vec<Vec<f32>>)> {
    (0usize..3, 0usize..4).prop_flat_map(move |(liars, more)| {
        let honest = needs(liars) - liars + more;
        let near = prop::collection::vec(prop::collection::vec(0.9f32..1.1, 4), honest);
        let anywhere = prop::collection::vec(prop::collection::vec(-100.0f32..100.0, 4), liars);
        (near, anywhere)
    })
}

/// All updates, the lies spread among the honest ones.
fn mixed(honest: &[Vec<f32>], lies: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mut all = honest.to_vec();
    for (i, lie) in lies.iter().enumerate() {
        all.insert((i * 3) % (all.len() + 1), lie.clone());
    }
    all
}

fn views(arrays: &[Vec<f32>]) -> Vec<&[f32]> {
    arrays.iter().map(Vec::as_slice).collect()
}

proptest! {
    #[test]
    fn the_mean_of_equal_updates_is_that_update(
        update in prop::collection::vec(-10.0f32..10.0, 1..8), weights in prop::collection::vec(1u64..1000, 1..12),
    ) {
        let updates = vec![update.clone(); weights.len()];
        let facts: Vec<Facts> = weights.iter().enumerate().map(|(i, w)| facts(i as u64, *w, 3)).collect();
        let zeros = vec![0.0; update.len()];
        let expected: Vec<f64> = update.iter().map(|x| f64::from(*x)).collect();
        for strategy in [&mut FedAvg::default() as &mut dyn Strategy, &mut FedProx::default(), &mut FedNova::default()] {
            let model = stepped(strategy, &zeros, &updates, &facts, 100);
            prop_assert!(close(&model, &expected, 1e-6), "{}: {model:?} instead of {update:?}", strategy.name());
        }
        for strategy in [&mut Median {} as &mut dyn Strategy, &mut TrimmedMean::default()] {
            let combined = strategy.combine(&views(&updates), &Processor).unwrap();
            prop_assert_eq!(&combined, &update, "{}", strategy.name());
        }
    }

    /// Nova's own formula, number by number.
    #[test]
    fn nova_averages_per_step(
        clients in prop::collection::vec((-10.0f32..10.0, 1u64..100, 1u32..50), 1..10),
    ) {
        let updates: Vec<Vec<f32>> = clients.iter().map(|(x, ..)| vec![*x]).collect();
        let all: Vec<Facts> = clients.iter().enumerate().map(|(i, (_, w, a))| facts(i as u64, *w, *a)).collect();
        let total: f64 = clients.iter().map(|(_, w, _)| *w as f64).sum();
        let steps: f64 = clients.iter().map(|(_, w, a)| *w as f64 / total * f64::from(*a)).sum();
        let mean: f64 = clients.iter().map(|(x, w, a)| *w as f64 / total * f64::from(*x) / f64::from(*a)).sum();
        let model = stepped(&mut FedNova::default(), &[0.0], &updates, &all, 100);
        prop_assert!(close(&model, &[steps * mean], 1e-5), "{model:?} instead of {}", steps * mean);
    }

    /// Of what one declares no more than a hundred times the median counts.
    #[test]
    fn a_huge_number_of_steps_multiplies_what_others_have_learnt_by_no_more_than_a_bound(honest in 2usize..20) {
        let clients = 0..=honest as u64;
        let all: Vec<Facts> = clients.map(|i| facts(i, 10, if i == 0 { u32::MAX } else { 10 })).collect();
        let updates: Vec<Vec<f32>> = all.iter().map(|of| vec![if of.client.0 == 0 { 0.0 } else { 0.1 }]).collect();
        let model = stepped(&mut FedNova::default(), &[0.0], &updates, &all, 100);
        let count = honest as f32 + 1.0;
        let most = 0.1 * (100.0 + honest as f32) / count;
        prop_assert!(model[0] > 0.0 && model[0] < most * 1.01, "{model:?}, {most}");
    }

    /// Against the formulas of the papers for one number.
    #[test]
    fn steps_of_the_server_are_those_of_the_papers(changes in prop::collection::vec(-2.0f32..2.0, 1..12)) {
        type Rule = fn(f64, f64) -> f64;
        let rules: [(Box<dyn Strategy>, f64, f64, Rule); 3] = [
            (Box::new(FedAdam::default()), 0.1, 0.9, |v, d| 0.99 * v + 0.01 * d * d),
            (Box::new(FedYogi::default()), 0.01, 0.9, |v, d| v - 0.01 * d * d * (v - d * d).signum()),
            (Box::new(FedAdagrad::default()), 0.1, 0.0, |v, d| v + d * d),
        ];
        for (mut strategy, rate, beta, rule) in rules {
            let (mut w, mut m, mut v) = (0.5f64, 0.0f64, 1e-6f64);
            let mut model = vec![0.5f32];
            for change in &changes {
                let update = [*change];
                strategy.step(&mut model, &alone(&update)).unwrap();
                let d = f64::from(*change);
                m = beta * m + (1.0 - beta) * d;
                v = rule(v, d);
                w += rate * m / (v.sqrt() + 1e-3);
            }
            prop_assert!(close(&model, &[w], 1e-3), "{}: {model:?} instead of {w}", strategy.name());
        }
        let (mut momentum, mut model) = (FedAvgM::new(0.5, 0.9), vec![0.0f32]);
        let (mut w, mut v) = (0.0, 0.0);
        for change in &changes {
            momentum.step(&mut model, &alone(&[*change])).unwrap();
            v = 0.9 * v + f64::from(*change);
            w += 0.5 * v;
        }
        prop_assert!(close(&model, &[w], 1e-4));
    }

    /// What Krum picks lies near an honest update: of its n - f - 2 neighbours at least one is honest, and its score is no worse
    /// than that of an honest one.
    #[test]
    fn krum_stays_near_the_honest((honest, lies) in with_liars(|f| 2 * f + 3)) {
        let all = mixed(&honest, &lies);
        let picked = Krum { liars: lies.len(), keep: 1 }.combine(&views(&all), &Processor).unwrap();
        prop_assert!(all.contains(&picked));
        let neighbours = all.len() - lies.len() - 2;
        let widest = squared_distances(&views(&honest)).into_iter().fold(0.0, f64::max);
        let nearest = honest.iter().map(|it| squared_distances(&[it, &picked])[1]).fold(f64::MAX, f64::min);
        prop_assert!(nearest <= neighbours as f64 * widest + 1e-6, "{picked:?} is {nearest} away");
    }

    /// A lie that is farther away than all of them together is never picked.
    #[test]
    fn krum_never_picks_a_far_lie((honest, lies) in with_liars(|f| 2 * f + 3)) {
        let lies: Vec<Vec<f32>> = lies.iter().map(|lie| lie.iter().map(|x| 1000.0 + x).collect()).collect();
        let all = mixed(&honest, &lies);
        let keep = honest.len();
        let one = Krum { liars: lies.len(), keep: 1 }.combine(&views(&all), &Processor).unwrap();
        prop_assert!(honest.contains(&one));
        let several = Krum { liars: lies.len(), keep }.combine(&views(&all), &Processor).unwrap();
        prop_assert!(several.iter().all(|x| (0.9..=1.1).contains(x)), "{several:?}");
    }

    /// The median of those chosen is between honest ones, and so many of these are near it that no lie that counts is farther.
    #[test]
    fn bulyan_stays_near_the_honest((honest, lies) in with_liars(|f| 4 * f + 3)) {
        let all = mixed(&honest, &lies);
        let combined = Bulyan { liars: lies.len() }.combine(&views(&all), &Processor).unwrap();
        for (i, x) in combined.iter().enumerate() {
            let column = || honest.iter().map(|it| it[i]);
            let (low, high) = (column().fold(f32::MAX, f32::min), column().fold(f32::MIN, f32::max));
            let width = high - low;
            prop_assert!((low - width..=high + width).contains(x), "{x} is far from {low}..{high}");
        }
    }
}

#[test]
fn below_its_bound_a_rule_is_not_defined() {
    let updates = vec![vec![1.0f32]; 6];
    let error = Krum { liars: 2, keep: 1 }
        .combine(&views(&updates), &Processor)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Krum is not defined for 6 updates of which 2 may lie: it needs 7"
    );
    let error = Bulyan { liars: 1 }
        .combine(&views(&updates), &Processor)
        .unwrap_err();
    assert!(matches!(error, StrategyError::NotDefined { needs: 7, .. }));
    assert!(
        Krum {
            liars: usize::MAX,
            keep: 1
        }
        .combine(&views(&updates), &Processor)
        .is_err()
    );
}

#[test]
fn a_trimmed_mean_drops_the_share_it_says() {
    let updates: Vec<Vec<f32>> = [9.0, 1.0, 2.0, 3.0, -90.0, 4.0, 5.0, 90.0, 80.0, -80.0]
        .map(|x| vec![x])
        .into();
    let trimmed = TrimmedMean { share: 0.3 }
        .combine(&views(&updates), &Processor)
        .unwrap();
    assert_eq!(trimmed, [3.5]);
}

#[test]
fn scaffold_moves_its_variate_by_the_share_that_took_part() {
    let mut scaffold = Scaffold::default();
    assert_eq!(scaffold.begin().control, None);
    // One row of change, one of variates: two clients of eight.
    let updates = [vec![1.0, 4.0], vec![3.0, 8.0]];
    let model = stepped(
        &mut scaffold,
        &[0.0],
        &updates,
        &[facts(1, 1, 1), facts(2, 1, 1)],
        8,
    );
    assert_eq!(model, [2.0]);
    assert_eq!(scaffold.begin().control.as_deref(), Some(&[1.5f32][..]));
}

/// Adds the updates up, and counts its rounds; or gives what is no version.
#[derive(Debug)]
struct Adds {
    gives: fn(Vec<f32>) -> Result<Vec<f32>, String>,
}

impl Aggregator for Adds {
    fn name(&self) -> &str {
        "adds"
    }

    fn aggregate(&self, round: &Round<'_>) -> Result<Made, String> {
        let mut model = round.model.to_vec();
        for (update, facts) in round.updates.iter().zip(round.facts) {
            descend(&mut model, facts.weight as f64, update);
        }
        let rounds = round.state.first().copied().unwrap_or_default();
        Ok(Made {
            model: (self.gives)(model)?,
            state: vec![rounds + 1],
        })
    }
}

#[test]
fn what_a_plugin_brings_gets_every_update_and_has_its_state_again() {
    let mut brought = Brought::new(Box::new(Adds { gives: Ok }));
    assert_eq!((brought.name(), brought.gather()), ("adds", Gather::Each));
    let (updates, facts) = (
        [vec![1.0, 0.0], vec![0.0, 2.0]],
        [facts(1, 10, 1), facts(2, 3, 1)],
    );
    let aggregate = Aggregate {
        updates: &updates,
        facts: &facts,
        ..alone(&[])
    };
    let mut model = vec![1.0, 1.0];
    brought.step(&mut model, &aggregate).unwrap();
    assert_eq!((&model[..], brought.save()), (&[11.0, 7.0][..], vec![1]));
    let mut other = Brought::new(Box::new(Adds { gives: Ok }));
    other.load(&brought.save()).unwrap();
    for strategy in [&mut brought, &mut other] {
        strategy.step(&mut model, &aggregate).unwrap();
        assert_eq!(strategy.save(), [2]);
    }
}

#[test]
fn what_a_plugin_gives_that_is_no_version_is_named_and_changes_nothing() {
    type Gives = fn(Vec<f32>) -> Result<Vec<f32>, String>;
    let cases: [(Gives, &str); 3] = [
        (|_| Err("it trapped".into()), "it trapped"),
        (
            |mut model| {
                model.pop();
                Ok(model)
            },
            "its model has 1 numbers instead of 2",
        ),
        (
            |mut model| {
                model[1] = f32::NAN;
                Ok(model)
            },
            "number 1 of its model is NaN",
        ),
    ];
    for (gives, why) in cases {
        let mut brought = Brought::new(Box::new(Adds { gives }));
        brought.load(&[7]).unwrap();
        let mut model = vec![1.0, 1.0];
        let (updates, facts) = ([vec![1.0, 0.0]], [facts(1, 10, 1)]);
        let aggregate = Aggregate {
            version: 4,
            updates: &updates,
            facts: &facts,
            ..alone(&[])
        };
        let error = brought.step(&mut model, &aggregate).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the strategy `adds` made no version 5: {why}")
        );
        assert_eq!((&model[..], brought.save()), (&[1.0, 1.0][..], vec![7]));
    }
}

#[test]
fn weights_follow_their_policy() {
    let weights = |policy: WeightPolicy| [1, 50, 1_000_000].map(|samples| policy.weight(samples));
    assert_eq!(weights(WeightPolicy::Uniform), [1, 1, 1]);
    assert_eq!(weights(WeightPolicy::Capped(100)), [1, 50, 100]);
    assert_eq!(weights(WeightPolicy::Samples), [1, 50, 1_000_000]);
}
