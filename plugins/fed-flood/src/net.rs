//! The model on board: three convolutions of 3×3 that keep the size of a tile, with ReLU between them. What comes out is a score for
//! each pixel, above 0 where there is water.

use crate::data::{AREA, BANDS, Sample, TILE};
use crate::vectors::{add, dot};

/// Weights of a kernel from side to side.
const REACH: usize = 3;
/// A row of a tile with the zeros beside it.
const WIDE: usize = TILE + 2;
/// A channel with the zeros around it.
const PADDED: usize = WIDE * WIDE;

/// A convolution: how many channels go in and come out.
struct Layer {
    name: &'static str,
    takes: usize,
    gives: usize,
}

/// Their names are those of the model's file.
const LAYERS: [Layer; 3] = [
    Layer {
        name: "layer0",
        takes: BANDS,
        gives: 8,
    },
    Layer {
        name: "layer2",
        takes: 8,
        gives: 8,
    },
    Layer {
        name: "layer4",
        takes: 8,
        gives: 1,
    },
];

/// Numbers of the model.
pub(crate) const LENGTH: usize = {
    let (mut length, mut at) = (0, 0);
    while at < LAYERS.len() {
        length += LAYERS[at].length();
        at += 1;
    }
    length
};

impl Layer {
    const fn weights(&self) -> usize {
        self.gives * self.takes * REACH * REACH
    }

    const fn length(&self) -> usize {
        self.weights() + self.gives
    }
}

/// Name and shape of each array, in order.
pub(crate) fn arrays() -> Vec<(String, Vec<u32>)> {
    let each = LAYERS.iter().flat_map(|layer| {
        let (takes, gives) = (layer.takes as u32, layer.gives as u32);
        let weights = vec![gives, takes, REACH as u32, REACH as u32];
        [
            (format!("{}.weight", layer.name), weights),
            (format!("{}.bias", layer.name), vec![gives]),
        ]
    });
    each.collect()
}

/// Room for one tile on its way through the model and back.
pub(crate) struct Way {
    /// What goes into each layer, with zeros around it, and last the scores.
    values: Vec<Vec<f32>>,
    /// How the loss changes with what goes into a layer.
    slopes: Vec<Vec<f32>>,
}

impl Default for Way {
    fn default() -> Self {
        let room = || {
            let channels = LAYERS.iter().map(|layer| layer.takes).chain([1]);
            channels.map(|channels| vec![0.0; channels * PADDED]).collect()
        };
        Self {
            values: room(),
            slopes: room(),
        }
    }
}

impl Way {
    /// The scores of a tile, row by row.
    pub(crate) fn scores(&mut self, model: &[f32], image: &[f32]) -> impl Iterator<Item = f32> {
        for (channel, pixels) in image.chunks(AREA).enumerate() {
            for (row, pixels) in pixels.chunks(TILE).enumerate() {
                self.values[0][inside(channel, row)..][..TILE].copy_from_slice(pixels);
            }
        }
        let mut rest = model;
        for (at, layer) in LAYERS.iter().enumerate() {
            let (own, more) = rest.split_at(layer.length());
            rest = more;
            let (before, after) = self.values.split_at_mut(at + 1);
            forward(layer, own, &before[at], &mut after[0]);
            if at + 1 < LAYERS.len() {
                after[0].iter_mut().for_each(|value| *value = value.max(0.0));
            }
        }
        let scores = &self.values[LAYERS.len()];
        (0..AREA).map(move |at| scores[inside(0, at / TILE) + at % TILE])
    }

    /// Adds the gradient of the mean loss of a tile's pixels, `share` times; gives that loss.
    pub(crate) fn gradient(&mut self, model: &[f32], sample: &Sample, share: f32, sum: &mut [f32]) -> f32 {
        let scores: Vec<f32> = self.scores(model, &sample.image).collect();
        let mut losses = 0.0;
        for (at, (score, water)) in scores.iter().zip(&sample.water).enumerate() {
            let wet = f32::from(u8::from(*water));
            losses += loss(*score, *water);
            let slope = (sigmoid(*score) - wet) * share / AREA as f32;
            self.slopes[LAYERS.len()][inside(0, at / TILE) + at % TILE] = slope;
        }
        let mut end = LENGTH;
        for (at, layer) in LAYERS.iter().enumerate().rev() {
            let start = end - layer.length();
            let (before, after) = self.slopes.split_at_mut(at + 1);
            if at + 1 < LAYERS.len() {
                // What ReLU has cut off leads no way back.
                let passed = after[0].iter_mut().zip(&self.values[at + 1]);
                passed
                    .filter(|(_, value)| **value <= 0.0)
                    .for_each(|(slope, _)| *slope = 0.0);
            }
            learn(layer, &self.values[at], &after[0], &mut sum[start..end]);
            // Nothing learns what the pixels should have been.
            if at > 0 {
                backward(layer, &model[start..end], &after[0], &mut before[at]);
            }
            end = start;
        }
        losses / AREA as f32
    }

    /// Pixels that the model and the truth call water, and those that either does; the mean loss.
    pub(crate) fn judge(&mut self, model: &[f32], samples: &[Sample]) -> (u64, u64, f32) {
        let (mut both, mut either, mut losses) = (0, 0, 0.0);
        for sample in samples {
            for (score, water) in self.scores(model, &sample.image).zip(&sample.water) {
                let found = score > 0.0;
                both += u64::from(found && *water);
                either += u64::from(found || *water);
                losses += loss(score, *water);
            }
        }
        (both, either, losses / (samples.len() * AREA).max(1) as f32)
    }
}

fn sigmoid(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

fn loss(score: f32, water: bool) -> f32 {
    let share = if water { sigmoid(score) } else { sigmoid(-score) };
    -share.max(1e-7).ln()
}

/// Where a row of a channel begins, behind the zeros before it.
const fn inside(channel: usize, row: usize) -> usize {
    channel * PADDED + (row + 1) * WIDE + 1
}

/// The weights of a layer with where they lie: which channels they lead from and to, and how far apart pixels are.
fn kernel(layer: &Layer) -> impl Iterator<Item = (usize, usize, usize, isize)> {
    let (takes, each) = (layer.takes, REACH * REACH);
    (0..layer.weights()).map(move |at| {
        let (to, from) = (at / each / takes, at / each % takes);
        let (down, across) = (at % each / REACH, at % REACH);
        let shift = (down as isize - 1) * WIDE as isize + across as isize - 1;
        (at, from, to, shift)
    })
}

/// Rows of one channel beside those of another that lie this far from them.
fn rows(from: usize, to: usize, shift: isize) -> impl Iterator<Item = (usize, usize)> {
    (0..TILE).map(move |row| (inside(from, row).wrapping_add_signed(shift), inside(to, row)))
}

fn forward(layer: &Layer, own: &[f32], values: &[f32], out: &mut [f32]) {
    let (weights, biases) = own.split_at(layer.weights());
    for (channel, bias) in biases.iter().enumerate() {
        (0..TILE).for_each(|row| out[inside(channel, row)..][..TILE].fill(*bias));
    }
    for (at, from, to, shift) in kernel(layer) {
        for (there, here) in rows(from, to, shift) {
            add(&mut out[here..][..TILE], &values[there..][..TILE], weights[at]);
        }
    }
}

/// The gradient of a layer's own numbers.
fn learn(layer: &Layer, values: &[f32], slopes: &[f32], sum: &mut [f32]) {
    let (weights, biases) = sum.split_at_mut(layer.weights());
    for (at, from, to, shift) in kernel(layer) {
        let each =
            rows(from, to, shift).map(|(there, here)| dot(&values[there..][..TILE], &slopes[here..][..TILE]));
        weights[at] += each.sum::<f32>();
    }
    for (channel, bias) in biases.iter_mut().enumerate() {
        let each = (0..TILE).map(|row| slopes[inside(channel, row)..][..TILE].iter().sum::<f32>());
        *bias += each.sum::<f32>();
    }
}

/// How the loss changes with what went into a layer. What falls on the zeros around it is of no use, and taken away again.
fn backward(layer: &Layer, own: &[f32], slopes: &[f32], before: &mut [f32]) {
    before.fill(0.0);
    for (at, from, to, shift) in kernel(layer) {
        for (there, here) in rows(from, to, shift) {
            add(&mut before[there..][..TILE], &slopes[here..][..TILE], own[at]);
        }
    }
    for channel in before.chunks_mut(PADDED) {
        channel[..WIDE].fill(0.0);
        channel[PADDED - WIDE..].fill(0.0);
        for row in channel.chunks_mut(WIDE) {
            (row[0], row[WIDE - 1]) = (0.0, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn drawn(seed: u64) -> Vec<f32> {
        let mut random = Rng::with_seed(seed);
        (0..LENGTH).map(|_| 0.4 * (random.f32() - 0.5)).collect()
    }

    fn sample() -> Sample {
        let mut random = Rng::with_seed(7);
        Sample {
            image: (0..BANDS * AREA).map(|_| random.f32()).collect(),
            water: (0..AREA).map(|_| random.bool()).collect(),
        }
    }

    #[test]
    fn it_is_as_long_as_the_file_has_it() {
        let numbers = arrays()
            .iter()
            .map(|(_, shape)| shape.iter().product::<u32>())
            .sum::<u32>();
        assert_eq!((LENGTH, numbers), (881, 881));
    }

    /// Against a convolution that is written down as it is defined.
    #[test]
    fn scores_are_those_of_the_definition() {
        let (model, sample) = (drawn(1), sample());
        let mut values: Vec<f64> = sample.image.iter().map(|value| f64::from(*value)).collect();
        let mut start = 0;
        for (at, layer) in LAYERS.iter().enumerate() {
            let own = &model[start..start + layer.length()];
            start += layer.length();
            let mut out = vec![0.0; layer.gives * AREA];
            for (to, row, column) in
                (0..layer.gives * AREA).map(|at| (at / AREA, at % AREA / TILE, at % TILE))
            {
                let mut score = f64::from(own[layer.weights() + to]);
                for (from, down, across) in (0..layer.takes * 9).map(|at| (at / 9, at % 9 / 3, at % 3)) {
                    let (y, x) = (row + down, column + across);
                    if (1..=TILE).contains(&y) && (1..=TILE).contains(&x) {
                        let weight = own[((to * layer.takes + from) * 3 + down) * 3 + across];
                        score += f64::from(weight) * values[from * AREA + (y - 1) * TILE + x - 1];
                    }
                }
                let is_last = at + 1 == LAYERS.len();
                out[to * AREA + row * TILE + column] = if is_last { score } else { score.max(0.0) };
            }
            values = out;
        }
        let mut way = Way::default();
        // Twice, for what is left of one tile must not be in the next.
        for _ in 0..2 {
            for (score, defined) in way.scores(&model, &sample.image).zip(&values) {
                assert!((f64::from(score) - defined).abs() < 1e-4, "{score} {defined}");
            }
        }
    }

    /// Against differences of the loss.
    #[test]
    fn gradients_are_those_of_the_loss() {
        let (model, sample, mut way) = (drawn(2), sample(), Way::default());
        let mut gradient = vec![0.0; LENGTH];
        way.gradient(&model, &sample, 1.0, &mut gradient);
        let mut random = Rng::with_seed(3);
        for _ in 0..60 {
            let place = random.usize(..LENGTH);
            let mut moved = |by: f32| {
                let mut moved = model.clone();
                moved[place] += by;
                f64::from(way.gradient(&moved, &sample, 1.0, &mut vec![0.0; LENGTH]))
            };
            let numeric = (moved(4e-3) - moved(-4e-3)) / 8e-3;
            let error = (numeric - f64::from(gradient[place])).abs();
            assert!(error < 2e-3, "{place}: {numeric} {}", gradient[place]);
        }
    }
}
