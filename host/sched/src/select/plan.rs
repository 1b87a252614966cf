use super::pareto_front;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, constraint, microlp,
    variable,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many resources there are.
pub(crate) const RESOURCES: usize = 3;

/// What a batch of requests has only so much of.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Money.
    Cost,
    /// Requests that may be late: one in twenty, for a limit on the p95.
    Late,
    /// Joules.
    Energy,
}

impl Resource {
    /// All of them, in the order of arrays.
    pub const ALL: [Self; RESOURCES] = [Self::Cost, Self::Late, Self::Energy];

    /// What an excess is measured by at least, where less is left: a request is late or it is not, and the hundredth part of one is not worth any
    /// money.
    pub(crate) const fn least_measure(self) -> f64 {
        match self {
            Self::Late => 1.0,
            Self::Cost | Self::Energy => 0.0,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cost => "cost",
            Self::Late => "latency",
            Self::Energy => "energy",
        })
    }
}

/// What one call by a candidate is worth and takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// Its accuracy.
    pub value: f64,
    /// What it takes of each resource, in the order of [`Resource::ALL`].
    pub takes: [f64; RESOURCES],
}

/// Calls of one task that are to be shared out among its candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// How many, in the mean.
    pub calls: f64,
    /// The candidates.
    pub candidates: Vec<Use>,
}

/// How the calls are shared out.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// For each group the share of its calls that each candidate serves; they come to 1.
    pub shares: Vec<Vec<f64>>,
    /// Right answers of all calls together.
    pub value: f64,
    /// What all calls together take.
    pub takes: [f64; RESOURCES],
}

/// There is no mix.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Nothing is within the limits.
    #[error("no mix of candidates is within the limits")]
    Infeasible,
    /// A number that is none, or a group without candidates.
    #[error("group {group} has no candidates, or a number that is not finite")]
    Input {
        /// The group.
        group: usize,
    },
    /// The solver gave up.
    #[error("the solver: {message}")]
    Solver {
        /// What it said.
        message: String,
    },
}

impl From<ResolutionError> for PlanError {
    fn from(error: ResolutionError) -> Self {
        match error {
            ResolutionError::Infeasible => Self::Infeasible,
            other => Self::Solver {
                message: other.to_string(),
            },
        }
    }
}

/// The most accurate mix within the limits, by linear programming: a program with as many limits has a best answer in which at
/// most that many groups mix at all.
///
/// # Errors
/// [`PlanError::Infeasible`] when there is none.
pub fn best_mix(groups: &[Group], limits: &[Option<f64>; RESOURCES]) -> Result<Mix, PlanError> {
    solve(groups, limits, Over::Nothing)
}

/// Where there is no mix within the limits that leaves all of these reserves and gives so many right answers: the one that takes the smallest
/// part of them, the same of each. Where reserves are so many standard deviations of what is taken, every limit is then as likely to be kept as
/// the others. It may take all of them twice, which is to rely on luck; of several mixes it is the most accurate.
///
/// # Errors
/// [`PlanError::Infeasible`] when it would have to rely on more luck than that.
pub fn safest_mix(
    groups: &[Group],
    limits: &[Option<f64>; RESOURCES],
    reserves: &[f64; RESOURCES],
    right: f64,
) -> Result<Mix, PlanError> {
    solve(groups, limits, Over::Together { reserves, right })
}

/// Where there is no mix within the limits, the one that is over them by the least, each measured by its own limit; of several
/// the more accurate. It gives up one limit rather than a part of each.
///
/// # Errors
/// A number that is not finite.
pub fn nearest_mix(groups: &[Group], limits: &[Option<f64>; RESOURCES]) -> Result<Mix, PlanError> {
    solve(groups, limits, Over::Apart)
}

/// What accuracy weighs beside an excess over limits: enough to part equals.
const TIE: f64 = 1e-3;
/// Up to how many times all reserves [`safest_mix`] takes.
const MOST_OF_RESERVES: f64 = 2.0;

/// How a mix may be over its limits.
#[derive(Clone, Copy)]
enum Over<'a> {
    Nothing,
    /// By the same part of each of these, for so many right answers.
    Together {
        reserves: &'a [f64; RESOURCES],
        right: f64,
    },
    /// By its own part of each limit.
    Apart,
}

impl Over<'_> {
    /// What lies beyond the limit of a resource.
    fn reserve(self, resource: usize) -> f64 {
        match self {
            Self::Together { reserves, .. } => reserves[resource],
            Self::Nothing | Self::Apart => 0.0,
        }
    }

    /// By how many of its units a mix is over each limit; nothing where it may not be.
    fn excess(self, variables: &mut ProblemVariables) -> Option<[Variable; RESOURCES]> {
        match self {
            Self::Nothing => None,
            Self::Together { .. } => {
                let part = variables.add(variable().min(0.0).max(MOST_OF_RESERVES));
                Some([part; RESOURCES])
            }
            Self::Apart => Some([(); RESOURCES].map(|()| variables.add(variable().min(0.0)))),
        }
    }
}

fn solve(groups: &[Group], limits: &[Option<f64>; RESOURCES], over: Over<'_>) -> Result<Mix, PlanError> {
    check(groups, limits)?;
    let mut variables = ProblemVariables::new();
    let fronts: Vec<Vec<usize>> = groups
        .iter()
        .map(|group| pareto_front(&group.candidates))
        .collect();
    let shares: Vec<Vec<Variable>> = fronts
        .iter()
        .map(|front| {
            front
                .iter()
                .map(|_| variables.add(variable().min(0.0).max(1.0)))
                .collect()
        })
        .collect();
    let excess = over.excess(&mut variables);
    let total: f64 = groups.iter().map(|group| group.calls).sum();
    let sum = |of: &dyn Fn(&Use) -> f64| -> Expression {
        let terms = groups.iter().zip(&fronts).zip(&shares);
        terms
            .flat_map(|((group, front), shares)| {
                front.iter().zip(shares).map(|(candidate, share)| {
                    group.calls / total * of(&group.candidates[*candidate]) * *share
                })
            })
            .sum()
    };
    let value = sum(&|candidate| candidate.value);
    let objective = match excess {
        None => value.clone(),
        Some(excess) => TIE * value.clone() - excess.iter().sum::<Expression>(),
    };
    let mut model = variables.maximise(objective).using(microlp);
    for (resource, limit) in limits.iter().enumerate() {
        let Some(limit) = limit else { continue };
        // Rows are scaled by their limit, or by what is taken of a resource of which nothing may be.
        let largest = groups
            .iter()
            .flat_map(|group| group.candidates.iter().map(|candidate| candidate.takes[resource]))
            .fold(0.0, f64::max);
        let reserve = over.reserve(resource);
        let measure = (limit + reserve).max(Resource::ALL[resource].least_measure());
        let scale = (measure / total).max(largest * 1e-6).max(f64::MIN_POSITIVE);
        let unit = match over {
            Over::Together { .. } => reserve / total / scale,
            Over::Nothing | Over::Apart => 1.0,
        };
        let mut takes = sum(&|candidate| candidate.takes[resource] / scale);
        if let Some(excess) = excess {
            takes -= unit * excess[resource];
        }
        model = model.with(constraint!(takes <= limit / total / scale));
    }
    if let Over::Together { right, .. } = over {
        model = model.with(constraint!(value >= right / total));
    }
    for shares in &shares {
        model = model.with(constraint!(shares.iter().sum::<Expression>() == 1.0));
    }
    let solution = model.solve()?;
    Ok(read(groups, &fronts, |group, place| {
        solution.value(shares[group][place])
    }))
}

fn read(groups: &[Group], fronts: &[Vec<usize>], share: impl Fn(usize, usize) -> f64) -> Mix {
    let mut mix = Mix {
        shares: Vec::with_capacity(groups.len()),
        value: 0.0,
        takes: [0.0; RESOURCES],
    };
    for (index, (group, front)) in groups.iter().zip(fronts).enumerate() {
        let mut shares = vec![0.0; group.candidates.len()];
        for (place, candidate) in front.iter().enumerate() {
            // What the solver's tolerance leaves is no share.
            let share = share(index, place);
            shares[*candidate] = if share < 1e-9 { 0.0 } else { share.min(1.0) };
        }
        let whole: f64 = shares.iter().sum();
        for (share, candidate) in shares.iter_mut().zip(&group.candidates) {
            *share /= whole;
            mix.value += group.calls * *share * candidate.value;
            for (taken, takes) in mix.takes.iter_mut().zip(candidate.takes) {
                *taken += group.calls * *share * takes;
            }
        }
        mix.shares.push(shares);
    }
    mix
}

fn check(groups: &[Group], limits: &[Option<f64>; RESOURCES]) -> Result<(), PlanError> {
    for (index, group) in groups.iter().enumerate() {
        let finite = group.candidates.iter().all(|candidate| {
            candidate.value.is_finite()
                && candidate
                    .takes
                    .iter()
                    .all(|takes| takes.is_finite() && *takes >= 0.0)
        });
        if group.candidates.is_empty() || !finite || !(group.calls > 0.0 && group.calls.is_finite()) {
            return Err(PlanError::Input { group: index });
        }
    }
    match limits.iter().flatten().all(|limit| limit.is_finite()) && !groups.is_empty() {
        true => Ok(()),
        false => Err(PlanError::Input { group: groups.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn takes(value: f64, cost: f64, late: f64) -> Use {
        Use {
            value,
            takes: [cost, late, 0.0],
        }
    }

    #[test]
    fn a_budget_between_two_candidates_is_mixed() {
        let group = Group {
            calls: 100.0,
            candidates: vec![takes(0.8, 1.0, 0.0), takes(0.9, 3.0, 0.0)],
        };
        let mix = best_mix(&[group], &[Some(200.0), None, None]).unwrap();
        assert!((mix.shares[0][1] - 0.5).abs() < 1e-6, "{mix:?}");
        assert!((mix.value - 85.0).abs() < 1e-4);
    }

    #[test]
    fn what_cannot_be_kept_is_missed_by_the_least() {
        let group = Group {
            calls: 10.0,
            candidates: vec![takes(0.8, 1.0, 0.0), takes(0.9, 3.0, 0.0), takes(0.85, 1.0, 0.5)],
        };
        let limits = [Some(5.0), Some(5.0), None];
        assert_eq!(
            best_mix(std::slice::from_ref(&group), &limits),
            Err(PlanError::Infeasible)
        );
        let mix = nearest_mix(&[group], &limits).unwrap();
        // Two of them are the cheapest; the more accurate one does not break the other limit.
        assert!((mix.shares[0][2] - 1.0).abs() < 1e-6, "{mix:?}");
    }

    #[test]
    fn what_is_too_tight_for_all_reserves_takes_the_same_part_of_each() {
        let group = Group {
            calls: 100.0,
            candidates: vec![takes(0.9, 1.0, 0.2), takes(0.8, 3.0, 0.0)],
        };
        let groups = std::slice::from_ref(&group);
        // The limits want the second one for a quarter of the calls at most by what it costs, and for half at least by what is late.
        let (limits, reserves) = ([Some(150.0), Some(10.0), None], [100.0, 5.0, 0.0]);
        let mix = safest_mix(groups, &limits, &reserves, 0.0).unwrap();
        let parts = [(mix.takes[0] - 150.0) / 100.0, (mix.takes[1] - 10.0) / 5.0];
        assert!((parts[0] - parts[1]).abs() < 1e-6 && parts[0] > 0.0, "{mix:?}");
        let less = safest_mix(groups, &limits, &reserves.map(|reserve| reserve / 100.0), 0.0);
        assert_eq!(less, Err(PlanError::Infeasible));
    }

    #[test]
    fn an_overdrawn_budget_is_spared() {
        let group = Group {
            calls: 40.0,
            candidates: vec![
                takes(0.76, 0.0, 1e-13),
                takes(0.91, 1e-5, 0.012),
                takes(0.96, 1.6e-3, 0.2),
            ],
        };
        for left in [1e-4, 0.0, -1e-9, -0.02, -3.0] {
            let mix = nearest_mix(std::slice::from_ref(&group), &[Some(0.5), Some(left), None]).unwrap();
            assert!(mix.shares[0][0] > 0.999, "{left}: {mix:?}");
        }
    }

    #[test]
    fn bad_input_is_named() {
        let group = |value| Group {
            calls: 1.0,
            candidates: vec![takes(value, 1.0, 0.0)],
        };
        assert_eq!(
            best_mix(&[group(1.0), group(f64::NAN)], &[None; 3]),
            Err(PlanError::Input { group: 1 })
        );
        assert_eq!(best_mix(&[], &[None; 3]), Err(PlanError::Input { group: 0 }));
        assert_eq!(
            best_mix(&[group(1.0)], &[Some(f64::NAN), None, None]),
            Err(PlanError::Input { group: 1 })
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against every mix on a grid of tenths.
        #[test]
        fn no_mix_on_a_grid_is_better(
            raw in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0, 0.0f64..0.2), 3),
            cost in 0.0f64..1.0,
            late in 0.0f64..0.2,
        ) {
            let candidates: Vec<Use> = raw.iter().map(|(value, cost, late)| takes(*value, *cost, *late)).collect();
            let group = Group { calls: 50.0, candidates: candidates.clone() };
            let best = best_mix(&[group], &[Some(cost * 50.0), Some(late * 50.0), None]);
            for a in 0..=10 {
                for b in 0..=10 - a {
                    let shares = [a, b, 10 - a - b].map(|tenths| f64::from(tenths) / 10.0);
                    let of = |of: &dyn Fn(&Use) -> f64| -> f64 { shares.iter().zip(&candidates).map(|(s, c)| s * of(c)).sum() };
                    if of(&|c| c.takes[0]) <= cost && of(&|c| c.takes[1]) <= late {
                        let value = of(&|c| c.value);
                        let best = best.as_ref().map(|mix| mix.value / 50.0);
                        prop_assert!(best.as_ref().is_ok_and(|best| *best >= value - 1e-6), "{best:?} {value}");
                    }
                }
            }
            if let Ok(mix) = best {
                prop_assert!(mix.takes[0] <= cost * 50.0 + 1e-4 && mix.takes[1] <= late * 50.0 + 1e-4);
            }
        }
    }
}
