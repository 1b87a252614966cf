//! The digits, and how clients come to share them unequally.

use super::draws;
use fastrand::Rng;

/// 64 levels of ink and the label, digit after digit: `tests/data/digits.py` writes it.
static FILE: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/digits.bin"
));

/// Numbers of one picture.
pub(super) const PIXELS: usize = 64;
/// Labels there are.
pub(super) const LABELS: usize = 10;

/// A picture, 0 to 1, with its label.
#[derive(Clone)]
pub(super) struct Sample {
    pub(super) pixels: [f32; PIXELS],
    pub(super) label: usize,
}

/// A quarter is held back, the rest is for training; which is which the seed decides.
pub(super) struct Split {
    pub(super) train: Vec<Sample>,
    pub(super) held: Vec<Sample>,
}

pub(super) fn split(random: &mut Rng) -> Split {
    let mut all: Vec<Sample> = FILE.as_chunks::<65>().0.iter().map(sample).collect();
    random.shuffle(&mut all);
    let held = all.split_off(all.len() * 3 / 4);
    Split { train: all, held }
}

fn sample(record: &[u8; PIXELS + 1]) -> Sample {
    Sample {
        pixels: std::array::from_fn(|i| f32::from(record[i]) / 16.0),
        label: record[PIXELS].into(),
    }
}

/// Each label is dealt out by shares drawn from a Dirichlet distribution: the smaller `alpha`, the fewer labels a client has.
pub(super) fn by_label(train: Vec<Sample>, clients: usize, alpha: f64, random: &mut Rng) -> Vec<Vec<Sample>> {
    let mut shards = vec![Vec::new(); clients];
    let mut labels = vec![Vec::new(); LABELS];
    for sample in train {
        labels[sample.label].push(sample);
    }
    for samples in labels {
        deal(samples, &draws::dirichlet(alpha, clients, random), &mut shards);
    }
    fill_empty(shards)
}

/// Clients have very different amounts of the same mixture.
pub(super) fn by_quantity(
    train: Vec<Sample>,
    clients: usize,
    alpha: f64,
    random: &mut Rng,
) -> Vec<Vec<Sample>> {
    let mut shards = vec![Vec::new(); clients];
    deal(train, &draws::dirichlet(alpha, clients, random), &mut shards);
    fill_empty(shards)
}

/// All clients have as much, of the same mixture.
pub(super) fn equal(train: Vec<Sample>, clients: usize) -> Vec<Vec<Sample>> {
    let mut shards = vec![Vec::new(); clients];
    for (i, sample) in train.into_iter().enumerate() {
        shards[i % clients].push(sample);
    }
    shards
}

fn deal(samples: Vec<Sample>, shares: &[f64], shards: &mut [Vec<Sample>]) {
    let count = samples.len() as f64;
    let mut samples = samples.into_iter();
    let (mut sum, mut dealt) = (0.0, 0);
    for (shard, share) in shards.iter_mut().zip(shares) {
        sum += share;
        let until = ((sum * count).round() as usize).max(dealt);
        shard.extend(samples.by_ref().take(until - dealt));
        dealt = until;
    }
    // What rounding has left over.
    if let Some(last) = shards.last_mut() {
        last.extend(samples);
    }
}

/// A client without data is none: it gets one sample of the client that has most.
fn fill_empty(mut shards: Vec<Vec<Sample>>) -> Vec<Vec<Sample>> {
    while let Some(empty) = shards.iter().position(Vec::is_empty) {
        let richest = (0..shards.len())
            .max_by_key(|i| shards[*i].len())
            .unwrap_or(empty);
        match shards[richest].pop() {
            Some(sample) => shards[empty].push(sample),
            None => break,
        }
    }
    shards
}

/// Entropy of a client's labels over the greatest possible.
pub(super) fn label_entropy(shard: &[Sample]) -> f64 {
    let mut counts = [0.0f64; LABELS];
    shard.iter().for_each(|sample| counts[sample.label] += 1.0);
    let share = |count: &f64| count / shard.len().max(1) as f64;
    let entropy: f64 = counts
        .iter()
        .map(share)
        .filter(|p| *p > 0.0)
        .map(|p| -p * p.ln())
        .sum();
    (entropy / (LABELS as f64).ln()).clamp(0.0, 1.0)
}
