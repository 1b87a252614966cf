//! Pictures of digits, and which of them this client has.

use crate::{Error, Setting, property, refused};
use fastrand::Rng;

/// 1,797 digits of 65 bytes each: `tests/data/digits.py` writes them.
static CARRIED: &[u8] = include_bytes!("../../../tests/data/digits.bin");
/// The operator's own, where that folder is granted.
const GRANTED: &str = "/var/lib/karman/digits/digits.bin";

/// Numbers of a picture.
pub(crate) const PIXELS: usize = 64;
/// Labels there are.
pub(crate) const LABELS: usize = 10;

/// A picture, 0 to 1, with its label.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) pixels: [f32; PIXELS],
    pub(crate) label: usize,
}

/// What a client trains on, and what it judges models by.
pub(crate) struct Data {
    pub(crate) train: Vec<Sample>,
    pub(crate) held: Vec<Sample>,
}

impl Data {
    pub(crate) fn of(setting: &Setting) -> Result<Self, Error> {
        let split: u64 = number(setting, "split", 0)?;
        let alpha: f64 = number(setting, "alpha", 0.5)?;
        if !(alpha.is_finite() && alpha > 0.0) {
            return Err(refused("alpha", "it is a number above 0"));
        }
        let mut random = Rng::with_seed(split);
        if let Ok(own) = std::fs::read(GRANTED) {
            return Ok(Self::held_back(read(&own)?, &mut random));
        }
        let all = Self::held_back(read(CARRIED)?, &mut random);
        let Some(share) = &setting.share else {
            return Ok(all);
        };
        let (index, count) = (share.index as usize, share.count as usize);
        if index >= count {
            return Err(refused("share", "its index is not below its count"));
        }
        Ok(Self {
            train: dealt(all.train, count, alpha, &mut random).swap_remove(index),
            held: all.held.into_iter().skip(index).step_by(count).collect(),
        })
    }

    /// A quarter is held back, the rest is for training.
    fn held_back(mut samples: Vec<Sample>, random: &mut Rng) -> Self {
        random.shuffle(&mut samples);
        let held = samples.split_off(samples.len() * 3 / 4);
        Self { train: samples, held }
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

fn read(file: &[u8]) -> Result<Vec<Sample>, Error> {
    let (records, rest) = file.as_chunks::<{ PIXELS + 1 }>();
    let good = |record: &[u8; PIXELS + 1]| {
        record[PIXELS] < LABELS as u8 && record[..PIXELS].iter().all(|ink| *ink <= 16)
    };
    if records.is_empty() || !rest.is_empty() || !records.iter().all(good) {
        return Err(refused(
            "digits.bin",
            "it is not records of 64 levels of ink, 0 to 16, and a label",
        ));
    }
    let sample = |record: &[u8; PIXELS + 1]| Sample {
        pixels: std::array::from_fn(|i| f32::from(record[i]) / 16.0),
        label: record[PIXELS].into(),
    };
    Ok(records.iter().map(sample).collect())
}

/// Each label is dealt out by shares drawn from a Dirichlet distribution: the smaller `alpha`, the fewer labels a client has.
/// A client without data would be none: it gets one sample of whoever has most.
fn dealt(train: Vec<Sample>, clients: usize, alpha: f64, random: &mut Rng) -> Vec<Vec<Sample>> {
    let mut shards = vec![Vec::new(); clients];
    let mut labels = vec![Vec::new(); LABELS];
    for sample in train {
        labels[sample.label].push(sample);
    }
    for samples in labels {
        let count = samples.len() as f64;
        let mut samples = samples.into_iter();
        let (mut sum, mut given) = (0.0, 0);
        for (shard, share) in shards.iter_mut().zip(dirichlet(alpha, clients, random)) {
            sum += share;
            let until = ((sum * count).round() as usize).max(given);
            shard.extend(samples.by_ref().take(until - given));
            given = until;
        }
    }
    while let Some(empty) = shards.iter().position(Vec::is_empty) {
        let richest = (0..clients)
            .max_by_key(|client| shards[*client].len())
            .unwrap_or(empty);
        match shards[richest].len() {
            0 | 1 => break,
            _ => shards[empty] = shards[richest].pop().into_iter().collect(),
        }
    }
    shards
}

fn dirichlet(alpha: f64, count: usize, random: &mut Rng) -> Vec<f64> {
    let draws: Vec<f64> = (0..count).map(|_| gamma(alpha, random)).collect();
    let sum: f64 = draws.iter().sum();
    match sum > 0.0 {
        true => draws.into_iter().map(|draw| draw / sum).collect(),
        // Every draw was too small to be told from 0: one client has it all.
        false => {
            let one = random.usize(..count);
            (0..count)
                .map(|client| f64::from(u8::from(client == one)))
                .collect()
        }
    }
}

/// Marsaglia and Tsang (2000); below 1 by the power of a uniform number.
fn gamma(shape: f64, random: &mut Rng) -> f64 {
    if shape < 1.0 {
        let uniform = random.f64().max(f64::MIN_POSITIVE);
        return gamma(shape + 1.0, random) * uniform.powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && random.f64().max(f64::MIN_POSITIVE).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Box and Muller.
pub(crate) fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * random.f64().max(f64::MIN_POSITIVE).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
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
