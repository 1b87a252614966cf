use super::{Kind, Ladder, Operator, Runner};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The ceilings of one runner on one machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Roofline(BTreeMap<Kind, Ladder>);

impl Roofline {
    /// From operators and the seconds that each took.
    pub fn new(times: impl IntoIterator<Item = (Operator, f64)>) -> Self {
        let mut rungs: BTreeMap<Kind, Vec<(f64, f64)>> = BTreeMap::new();
        for (operator, seconds) in times {
            let kind = operator.kind();
            let work = match kind.goes_by_bytes() {
                true => operator.bytes(),
                false => operator.flops(),
            };
            rungs.entry(kind).or_default().push((work, seconds));
        }
        Self(
            rungs
                .into_iter()
                .map(|(kind, rungs)| (kind, rungs.into()))
                .collect(),
        )
    }

    /// How long an operator would take; `None` where no operator of its kind was timed.
    pub fn seconds(&self, operator: &Operator) -> Option<f64> {
        let kind = operator.kind();
        let own = self.0.get(&kind)?;
        if kind.goes_by_bytes() {
            return own.seconds(operator.bytes());
        }
        let arithmetic = own.seconds(operator.flops())?;
        // Weights are read as fast as one row times a matrix reads them, and not faster.
        let memory = self
            .0
            .get(&Kind::Vector)
            .and_then(|ladder| ladder.seconds(operator.bytes()));
        Some(memory.map_or(arithmetic, |memory| arithmetic.max(memory)))
    }
}

/// The measured speed of one machine.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct MachineProfile {
    /// Where, and with what: times of another machine, another version or other [probes](Operator::probes_digest) say nothing here.
    pub machine: String,
    /// The runners that were there.
    pub runners: BTreeMap<Runner, Roofline>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The runner that should run it.
    pub runner: Runner,
    /// How long that would take.
    pub seconds: f64,
    /// The others that could, and how long they would take, the fastest first.
    pub others: Vec<(Runner, f64)>,
}

impl MachineProfile {
    /// From measurements: which runner ran which operator, in how many seconds.
    pub fn new(machine: impl Into<String>, times: impl IntoIterator<Item = (Runner, Operator, f64)>) -> Self {
        let mut of_each: BTreeMap<Runner, Vec<(Operator, f64)>> = BTreeMap::new();
        for (runner, operator, seconds) in times {
            of_each.entry(runner).or_default().push((operator, seconds));
        }
        let runners = of_each
            .into_iter()
            .map(|(runner, times)| (runner, Roofline::new(times)));
        Self {
            machine: machine.into(),
            runners: runners.collect(),
        }
    }

    /// The one of these that should run an operator: the one that would be done first; of two that would be done at once, the one that
    /// [`Runner::ALL`] names first. `None` where none of them is known to run such operators.
    pub fn choose(&self, operator: &Operator, available: &[Runner]) -> Option<Choice> {
        let known = Runner::ALL
            .into_iter()
            .filter(|runner| available.contains(runner));
        let mut predicted: Vec<(Runner, f64)> = known
            .filter_map(|runner| Some((runner, self.runners.get(&runner)?.seconds(operator)?)))
            .collect();
        predicted.sort_by(|(_, one), (_, two)| one.total_cmp(two));
        let mut predicted = predicted.into_iter();
        let (runner, seconds) = predicted.next()?;
        Some(Choice {
            runner,
            seconds,
            others: predicted.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Convolution;
    use super::*;
    use proptest::prelude::*;

    /// A profile with times for each runner that were drawn, not measured.
    fn drawn(factors: &[f64]) -> MachineProfile {
        let probes = Operator::probes();
        let times = Runner::ALL.into_iter().enumerate().flat_map(|(index, runner)| {
            probes.iter().enumerate().map(move |(at, probe)| {
                let factor = factors[(7 * at + 3 * index) % factors.len()];
                (
                    runner,
                    *probe,
                    1e-6 + factor * (probe.flops() / 1e10 + probe.bytes() / 1e10),
                )
            })
        });
        MachineProfile::new("drawn", times.collect::<Vec<_>>())
    }

    fn operator() -> impl Strategy<Value = Operator> {
        let convolution = (1..40_u32, 1..40_u32, 1..30_u32, 1..6_u32, 1..3_u32).prop_map(
            |(channels_in, channels_out, side, kernel, stride)| {
                Operator::convolution([channels_in, channels_out, side, kernel, stride], 1)
            },
        );
        prop_oneof![
            (1..300_u32, 1..600_u32, 1..600_u32).prop_map(|(rows, inner, columns)| Operator::MatMul {
                rows,
                inner,
                columns
            }),
            convolution,
            (1..2_000_000_u32).prop_map(|elements| Operator::Relu { elements }),
            (1..2_000_000_u32).prop_map(|elements| Operator::Add { elements }),
        ]
    }

    /// The same with more to do, of the same kind.
    fn larger(operator: Operator, by: u32) -> Operator {
        match operator {
            Operator::MatMul { rows, inner, columns } => Operator::MatMul {
                rows,
                inner,
                columns: columns * by,
            },
            Operator::Convolution(shape) => Operator::Convolution(Convolution {
                channels_out: shape.channels_out * by,
                ..shape
            }),
            Operator::Relu { elements } => Operator::Relu {
                elements: elements * by,
            },
            Operator::Add { elements } => Operator::Add {
                elements: elements * by,
            },
        }
    }

    proptest! {
        #[test]
        fn more_of_the_same_never_takes_less(
            factors in prop::collection::vec(0.1..10.0_f64, 1..20),
            operator in operator(),
            by in 1..6_u32,
        ) {
            let profile = drawn(&factors);
            let larger = larger(operator, by);
            prop_assert_eq!(operator.kind(), larger.kind());
            for roofline in profile.runners.values() {
                let (less, more) = (roofline.seconds(&operator).unwrap(), roofline.seconds(&larger).unwrap());
                prop_assert!(less <= more * (1.0 + 1e-9), "{operator}: {less}, {larger}: {more}");
            }
        }

        #[test]
        fn the_least_of_those_that_are_there_is_chosen(
            factors in prop::collection::vec(0.1..10.0_f64, 1..20),
            operator in operator(),
            available in prop::sample::subsequence(Runner::ALL.to_vec(), 0..=3),
        ) {
            let profile = drawn(&factors);
            let Some(choice) = profile.choose(&operator, &available) else {
                prop_assert!(available.is_empty());
                return Ok(());
            };
            prop_assert!(available.contains(&choice.runner));
            prop_assert_eq!(profile.runners[&choice.runner].seconds(&operator), Some(choice.seconds));
            prop_assert_eq!(choice.others.len(), available.len() - 1);
            for (other, seconds) in &choice.others {
                prop_assert!(available.contains(other) && *other != choice.runner);
                prop_assert!(choice.seconds <= *seconds);
            }
        }
    }

    #[test]
    fn who_was_not_timed_is_not_chosen() {
        let relu = Operator::Relu { elements: 100 };
        let product = Operator::MatMul {
            rows: 1,
            inner: 8,
            columns: 8,
        };
        let times = [
            (Runner::Tract, relu, 1e-6),
            (Runner::WasmSimd, product, 1e-3),
            (Runner::WasmSimd, relu, 1e-5),
        ];
        let profile = MachineProfile::new("two", times);
        let chosen = |operator| profile.choose(operator, &Runner::ALL).map(|choice| choice.runner);
        assert_eq!(chosen(&relu), Some(Runner::Tract));
        assert_eq!(chosen(&product), Some(Runner::WasmSimd));
        assert_eq!(chosen(&Operator::Add { elements: 100 }), None);
    }

    #[test]
    fn a_profile_that_was_kept_decides_the_same() {
        let profile = drawn(&[0.3, 1.0, 2.5, 0.7, 4.0]);
        let kept = serde_json::to_string(&profile).unwrap();
        let kept: MachineProfile = serde_json::from_str(&kept).unwrap();
        assert_eq!(kept.machine, profile.machine);
        for probe in Operator::probes() {
            let chosen =
                |profile: &MachineProfile| profile.choose(&probe, &Runner::ALL).map(|choice| choice.runner);
            assert!(chosen(&kept).is_some(), "{probe}");
            assert_eq!(chosen(&kept), chosen(&profile), "{probe}");
        }
    }

    #[test]
    fn weights_are_not_read_faster_than_memory_gives_them() {
        let product = |rows| Operator::MatMul {
            rows,
            inner: 1000,
            columns: 1000,
        };
        // Arithmetic that costs nothing.
        let roofline = Roofline::new([(product(1), 1e-3), (product(100), 1e-9)]);
        assert!(roofline.seconds(&product(50)).unwrap() >= 1e-3);
    }
}
