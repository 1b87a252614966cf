//! The digits themselves, and how they are dealt out. Depends on nothing of the plugin: the study `fed` deals by it too.

use fastrand::Rng;

/// 1,797 digits of 65 bytes each: `tests/data/digits.py` writes them.
pub(crate) static CARRIED: &[u8] = include_bytes!("../../../tests/data/digits.bin");
/// Numbers of a picture.
pub(crate) const PIXELS: usize = 64;
/// Labels there are.
pub(crate) const LABELS: usize = 10;
/// The darkest ink of a pixel.
const INK: u8 = 16;

/// A picture, 0 to 1, with its label.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) pixels: [f32; PIXELS],
    pub(crate) label: usize,
}

/// What is trained on, and what models are judged by: a quarter of the samples.
pub(crate) struct Data {
    pub(crate) train: Vec<Sample>,
    pub(crate) held: Vec<Sample>,
}

/// Records of 64 levels of ink, 0 to 16, and a label; nothing where they are not that.
pub(crate) fn read(file: &[u8]) -> Option<Vec<Sample>> {
    let (records, rest) = file.as_chunks::<{ PIXELS + 1 }>();
    let good = |record: &[u8; PIXELS + 1]| {
        record[PIXELS] < LABELS as u8 && record[..PIXELS].iter().all(|ink| *ink <= INK)
    };
    if records.is_empty() || !rest.is_empty() || !records.iter().all(good) {
        return None;
    }
    let sample = |record: &[u8; PIXELS + 1]| Sample {
        pixels: std::array::from_fn(|i| f32::from(record[i]) / f32::from(INK)),
        label: record[PIXELS].into(),
    };
    Some(records.iter().map(sample).collect())
}

impl Data {
    /// A quarter is held back, the rest is for training.
    pub(crate) fn held_back(mut samples: Vec<Sample>, random: &mut Rng) -> Self {
        random.shuffle(&mut samples);
        let held = samples.split_off(samples.len() * 3 / 4);
        Self { train: samples, held }
    }

    /// One client's share: see [`dealt`].
    pub(crate) fn share(self, index: usize, count: usize, alpha: f64, random: &mut Rng) -> Self {
        Self {
            train: dealt(self.train, count, alpha, random).swap_remove(index),
            held: self.held.into_iter().skip(index).step_by(count).collect(),
        }
    }
}

/// Each label is dealt out by shares drawn from a Dirichlet distribution: the smaller `alpha`, the fewer labels a client has.
/// A client without data would be none: it gets one sample of whoever has most.
pub(crate) fn dealt(train: Vec<Sample>, clients: usize, alpha: f64, random: &mut Rng) -> Vec<Vec<Sample>> {
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
