//! Which digits this client has.

use crate::digits::{Dealt, INK, LABELS, PIXELS, Record, carried, dealt, held_by, records};
use crate::{Error, Setting, property, refused};
use fastrand::Rng;
use std::path::Path;

/// The operator's own, where that folder is granted: then they are there, or it is an error.
const GRANTED: &str = "/srv/karman/digits";
const FILE: &str = "digits.bin";

/// A picture, 0 to 1, with its label.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) pixels: [f32; PIXELS],
    pub(crate) label: usize,
}

/// What this client trains on.
pub(crate) struct Train {
    pub(crate) samples: Vec<Sample>,
    /// Its places among the carried records, for the next time: nothing where it has a folder of its own.
    pub(crate) places: Vec<u32>,
}

impl From<&Record> for Sample {
    fn from(record: &Record) -> Self {
        Self {
            pixels: std::array::from_fn(|i| f32::from(record[i]) / f32::from(INK)),
            label: record[PIXELS].into(),
        }
    }
}

/// How data are dealt, as the run's description says.
struct Deal {
    split: u64,
    alpha: f64,
    /// Which share of how many.
    share: Option<(usize, usize)>,
}

impl Deal {
    fn of(setting: &Setting) -> Result<Self, Error> {
        let alpha: f64 = number(setting, "alpha", 0.5)?;
        if !(alpha.is_finite() && alpha > 0.0) {
            return Err(refused("alpha", "it is a number above 0"));
        }
        let share = setting.share.as_ref();
        let share = share.map(|share| (share.index as usize, share.count as usize));
        match share {
            Some((index, count)) if index >= count => {
                Err(refused("share", "its index is not below its count"))
            }
            _ => Ok(Self {
                split: number(setting, "split", 0)?,
                alpha,
                share,
            }),
        }
    }

    fn held_back(&self, records: usize) -> (Dealt, Rng) {
        let mut random = Rng::with_seed(self.split);
        (Dealt::held_back(records, &mut random), random)
    }
}

impl Train {
    /// The client's share; `kept` is what [`Train::places`] said the last time, or nothing.
    pub(crate) fn of(setting: &Setting, kept: Vec<u32>) -> Result<Self, Error> {
        let deal = Deal::of(setting)?;
        if let Some(own) = granted()? {
            let own = own_records(&own)?;
            let (Dealt { train, .. }, _) = deal.held_back(own.len());
            return Ok(Self {
                samples: samples(own, &train),
                places: Vec::new(),
            });
        }
        let all = carried();
        let places = match kept.is_empty() {
            false => kept,
            true => {
                let (Dealt { train, .. }, mut random) = deal.held_back(all.len());
                match deal.share {
                    Some((index, count)) => {
                        dealt(all, train, count, deal.alpha, &mut random).swap_remove(index)
                    }
                    None => train,
                }
            }
        };
        match places.iter().all(|place| (*place as usize) < all.len()) {
            true => Ok(Self {
                samples: samples(all, &places),
                places,
            }),
            false => Err(refused("state", "it names records that there are not")),
        }
    }

    /// Entropy of the labels over the greatest possible.
    pub(crate) fn label_entropy(&self) -> f64 {
        let mut counts = [0.0f64; LABELS];
        self.samples.iter().for_each(|sample| counts[sample.label] += 1.0);
        let shares = counts
            .iter()
            .map(|count| count / self.samples.len().max(1) as f64);
        let entropy: f64 = shares.filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum();
        (entropy / (LABELS as f64).ln()).clamp(0.0, 1.0)
    }
}

/// What this client judges models by.
pub(crate) fn held(setting: &Setting) -> Result<Vec<Sample>, Error> {
    let deal = Deal::of(setting)?;
    if let Some(own) = granted()? {
        let own = own_records(&own)?;
        return Ok(samples(own, &deal.held_back(own.len()).0.held));
    }
    let held = deal.held_back(carried().len()).0.held;
    Ok(match deal.share {
        Some((index, count)) => samples(carried(), &held_by(&held, index, count)),
        None => samples(carried(), &held),
    })
}

/// The operator's own file, where there is a folder for it.
fn granted() -> Result<Option<Vec<u8>>, Error> {
    if !Path::new(GRANTED).is_dir() {
        return Ok(None);
    }
    let own = std::fs::read(format!("{GRANTED}/{FILE}"));
    own.map(Some).map_err(|error| refused(FILE, &error.to_string()))
}

fn own_records(file: &[u8]) -> Result<&[Record], Error> {
    records(file).ok_or_else(|| {
        refused(
            FILE,
            "it is not records of 64 levels of ink, 0 to 16, and a label",
        )
    })
}

fn samples(records: &[Record], places: &[u32]) -> Vec<Sample> {
    places
        .iter()
        .map(|place| Sample::from(&records[*place as usize]))
        .collect()
}

fn number<T: std::str::FromStr>(setting: &Setting, name: &str, default: T) -> Result<T, Error> {
    property(setting, name).map_or(Ok(default), |text| {
        text.parse().map_err(|_| refused(name, "it is not such a number"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digits::CARRIED;

    fn setting(index: u32, count: u32, alpha: &str) -> Setting {
        crate::learner::setting(index, count, &[("alpha", alpha)])
    }

    fn train(index: u32, count: u32, alpha: &str) -> Train {
        Train::of(&setting(index, count, alpha), Vec::new()).unwrap()
    }

    #[test]
    fn what_is_carried_is_records() {
        assert_eq!(records(CARRIED).map(<[_]>::len), Some(1797));
    }

    #[test]
    fn shares_are_all_of_it_and_nothing_twice() {
        for alpha in ["0.1", "0.5", "100"] {
            let shares: Vec<Train> = (0..7).map(|i| train(i, 7, alpha)).collect();
            assert!(shares.iter().all(|share| !share.samples.is_empty()));
            let mut places: Vec<u32> = shares.iter().flat_map(|share| share.places.clone()).collect();
            let held: usize = (0..7).map(|i| held(&setting(i, 7, alpha)).unwrap().len()).sum();
            assert_eq!(places.len() + held, 1797);
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len() + held, 1797);
        }
    }

    #[test]
    fn a_share_that_was_kept_is_the_one_that_was_dealt() {
        let first = train(3, 100, "0.5");
        let again = Train::of(&setting(3, 100, "0.5"), first.places.clone()).unwrap();
        let seen = |train: &Train| -> Vec<_> {
            train
                .samples
                .iter()
                .map(|one| (one.pixels.map(f32::to_bits), one.label))
                .collect()
        };
        assert_eq!(seen(&again), seen(&first));
        assert!(Train::of(&setting(3, 100, "0.5"), vec![1797]).is_err());
    }

    #[test]
    fn the_smaller_alpha_the_fewer_labels() {
        let entropy =
            |alpha: &str| -> f64 { (0..7).map(|i| train(i, 7, alpha).label_entropy()).sum::<f64>() / 7.0 };
        assert!(
            entropy("0.1") < 0.75 && entropy("100") > 0.95,
            "{} {}",
            entropy("0.1"),
            entropy("100")
        );
    }

    #[test]
    fn what_is_no_share_is_refused() {
        assert!(Train::of(&setting(7, 7, "0.5"), Vec::new()).is_err());
        assert!(held(&setting(7, 7, "0.5")).is_err());
        for alpha in ["0", "-1", "NaN", "much"] {
            assert!(Train::of(&setting(0, 7, alpha), Vec::new()).is_err(), "{alpha}");
        }
    }
}
