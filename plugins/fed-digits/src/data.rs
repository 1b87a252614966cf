//! Which digits this client has.

use crate::digits::{CARRIED, Dealt, INK, LABELS, PIXELS, Record, records};
use crate::{Error, Setting, property, refused};
use fastrand::Rng;
use std::path::Path;

/// The operator's own, where that folder is granted: then they are there, or it is an error.
const GRANTED: &str = "/var/lib/karman/digits";
const FILE: &str = "digits.bin";

/// A picture, 0 to 1, with its label.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) pixels: [f32; PIXELS],
    pub(crate) label: usize,
}

/// What this client trains on, and what it judges models by.
pub(crate) struct Data {
    pub(crate) train: Vec<Sample>,
    pub(crate) held: Vec<Sample>,
}

impl From<&Record> for Sample {
    fn from(record: &Record) -> Self {
        Self {
            pixels: std::array::from_fn(|i| f32::from(record[i]) / f32::from(INK)),
            label: record[PIXELS].into(),
        }
    }
}

impl From<Dealt<'_>> for Data {
    fn from(dealt: Dealt<'_>) -> Self {
        let samples = |records: Vec<&Record>| records.into_iter().map(Sample::from).collect();
        Self {
            train: samples(dealt.train),
            held: samples(dealt.held),
        }
    }
}

impl Data {
    pub(crate) fn of(setting: &Setting) -> Result<Self, Error> {
        let split: u64 = number(setting, "split", 0)?;
        let alpha: f64 = number(setting, "alpha", 0.5)?;
        if !(alpha.is_finite() && alpha > 0.0) {
            return Err(refused("alpha", "it is a number above 0"));
        }
        let wrong = || {
            refused(
                FILE,
                "it is not records of 64 levels of ink, 0 to 16, and a label",
            )
        };
        let mut random = Rng::with_seed(split);
        if Path::new(GRANTED).is_dir() {
            let own = std::fs::read(format!("{GRANTED}/{FILE}"))
                .map_err(|error| refused(FILE, &error.to_string()))?;
            let own = records(&own).ok_or_else(wrong)?;
            return Ok(Dealt::held_back(own, &mut random).into());
        }
        let all = Dealt::held_back(records(CARRIED).ok_or_else(wrong)?, &mut random);
        let Some(share) = &setting.share else {
            return Ok(all.into());
        };
        let (index, count) = (share.index as usize, share.count as usize);
        match index < count {
            true => Ok(all.share(index, count, alpha, &mut random).into()),
            false => Err(refused("share", "its index is not below its count")),
        }
    }

    /// Entropy of the labels over the greatest possible.
    pub(crate) fn label_entropy(&self) -> f64 {
        let mut counts = [0.0f64; LABELS];
        self.train.iter().for_each(|sample| counts[sample.label] += 1.0);
        let shares = counts.iter().map(|count| count / self.train.len().max(1) as f64);
        let entropy: f64 = shares.filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum();
        (entropy / (LABELS as f64).ln()).clamp(0.0, 1.0)
    }
}

fn number<T: std::str::FromStr>(setting: &Setting, name: &str, default: T) -> Result<T, Error> {
    property(setting, name).map_or(Ok(default), |text| {
        text.parse().map_err(|_| refused(name, "it is not such a number"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::karman::federated::types::Share;

    fn setting(index: u32, count: u32, alpha: &str) -> Setting {
        Setting {
            run: "test".into(),
            share: Some(Share { index, count }),
            properties: vec![("alpha".into(), alpha.into())],
        }
    }

    #[test]
    fn shares_are_all_of_it_and_nothing_twice() {
        for alpha in ["0.1", "0.5", "100"] {
            let shares: Vec<Data> = (0..7).map(|i| Data::of(&setting(i, 7, alpha)).unwrap()).collect();
            assert!(
                shares
                    .iter()
                    .all(|share| !share.train.is_empty() && !share.held.is_empty())
            );
            let total: usize = shares
                .iter()
                .map(|share| share.train.len() + share.held.len())
                .sum();
            assert_eq!(total, 1797);
        }
    }

    #[test]
    fn the_smaller_alpha_the_fewer_labels() {
        let entropy = |alpha: &str| -> f64 {
            (0..7)
                .map(|i| Data::of(&setting(i, 7, alpha)).unwrap().label_entropy())
                .sum::<f64>()
                / 7.0
        };
        assert!(
            entropy("0.1") < 0.75 && entropy("100") > 0.95,
            "{} {}",
            entropy("0.1"),
            entropy("100")
        );
    }

    #[test]
    fn what_is_no_share_is_refused() {
        assert!(Data::of(&setting(7, 7, "0.5")).is_err());
        for alpha in ["0", "-1", "NaN", "much"] {
            assert!(Data::of(&setting(0, 7, alpha)).is_err(), "{alpha}");
        }
    }
}
