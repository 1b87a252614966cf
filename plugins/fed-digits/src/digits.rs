//! The digits themselves, and how they are dealt out. Depends on nothing of the plugin: the study `fed` deals by it too.

use fastrand::Rng;

/// 1,797 digits of 65 bytes each: `tests/data/digits.py` writes them.
pub(crate) static CARRIED: &[u8] = include_bytes!("../../../tests/data/digits.bin");
/// Numbers of a picture.
pub(crate) const PIXELS: usize = 64;
/// Labels there are.
pub(crate) const LABELS: usize = 10;
/// The darkest ink of a pixel.
pub(crate) const INK: u8 = 16;

/// The ink of a picture, and its label.
pub(crate) type Record = [u8; PIXELS + 1];

/// What is trained on, and what models are judged by: a quarter of the records. Each is the place of its record.
pub(crate) struct Dealt {
    pub(crate) train: Vec<u32>,
    pub(crate) held: Vec<u32>,
}

/// Records of 64 levels of ink, 0 to 16, and a label; nothing where they are not that.
pub(crate) fn records(file: &[u8]) -> Option<&[Record]> {
    let (records, rest) = file.as_chunks::<{ PIXELS + 1 }>();
    let good =
        |record: &Record| record[PIXELS] < LABELS as u8 && record[..PIXELS].iter().all(|ink| *ink <= INK);
    (!records.is_empty() && rest.is_empty() && records.iter().all(good)).then_some(records)
}

/// The records that the plugin carries: nobody changes them, so nobody looks again whether they are some (a test does).
pub(crate) fn carried() -> &'static [Record] {
    CARRIED.as_chunks().0
}

impl Dealt {
    /// A quarter of so many records is held back, the rest is for training.
    pub(crate) fn held_back(records: usize, random: &mut Rng) -> Self {
        let mut train: Vec<_> = (0..records as u32).collect();
        shuffle(&mut train, random);
        let held = train.split_off(train.len() * 3 / 4);
        Self { train, held }
    }
}

/// What one of `count` clients judges models by. Nothing is drawn for it, so it costs next to nothing.
pub(crate) fn held_by(held: &[u32], index: usize, count: usize) -> Vec<u32> {
    held.iter().copied().skip(index).step_by(count).collect()
}

/// Each label is dealt out by shares drawn from a Dirichlet distribution: the smaller `alpha`, the fewer labels a client has.
/// A client without data would be none: it gets one record of whoever has most. Shares are drawn for all clients, which takes longer
/// than a short training: a client keeps its own.
pub(crate) fn dealt(
    records: &[Record],
    train: Vec<u32>,
    clients: usize,
    alpha: f64,
    random: &mut Rng,
) -> Vec<Vec<u32>> {
    let mut shards = vec![Vec::new(); clients];
    let mut labels = vec![Vec::new(); LABELS];
    for place in train {
        labels[usize::from(records[place as usize][PIXELS])].push(place);
    }
    for places in labels {
        let count = places.len() as f64;
        let mut places = places.into_iter();
        let (mut sum, mut given) = (0.0, 0);
        for (shard, share) in shards.iter_mut().zip(dirichlet(alpha, clients, random)) {
            sum += share;
            let until = ((sum * count).round() as usize).max(given);
            shard.extend(places.by_ref().take(until - given));
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

/// Fisher and Yates. Its numbers have 32 bits on every machine: `fastrand` draws indices by the machine's width, and a plugin
/// would deal otherwise than the node that it runs on.
fn shuffle<T>(row: &mut [T], random: &mut Rng) {
    for last in (1..row.len()).rev() {
        row.swap(last, random.u32(..=last as u32) as usize);
    }
}

fn dirichlet(alpha: f64, count: usize, random: &mut Rng) -> Vec<f64> {
    let draws: Vec<f64> = (0..count).map(|_| gamma(alpha, random)).collect();
    let sum: f64 = draws.iter().sum();
    match sum > 0.0 {
        true => draws.into_iter().map(|draw| draw / sum).collect(),
        // Every draw was too small to be told from 0: one client has it all.
        false => {
            let one = random.u32(..count as u32) as usize;
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
