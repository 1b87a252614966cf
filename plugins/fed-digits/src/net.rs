//! The two models: their arrays, their answers, their gradients.

use crate::data::Sample;
use crate::digits::{LABELS, PIXELS, normal};
use crate::{Error, Setting, property, refused};
use fastrand::Rng;

/// Pictures are so wide and high.
const SIDE: usize = 8;
/// Filters of the convolution, each of `REACH` by `REACH`.
const FILTERS: usize = 16;
const REACH: usize = 3;
/// Width of what a filter gives, and of what is left when maxima of 2×2 are taken.
const MAP: usize = SIDE - REACH + 1;
const POOLED: usize = MAP / 2;
const FEATURES: usize = FILTERS * POOLED * POOLED;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Net {
    /// Multinomial logistic regression.
    Regression,
    /// Convolution, ReLU, maxima of 2×2, one dense layer.
    Convolution,
}

/// What the convolution leaves for the way back.
struct Maps {
    /// What goes into the dense layer.
    features: [f32; FEATURES],
    /// Where each of them came from: row and column of its maximum.
    origin: [(u8, u8); FEATURES],
}

impl Net {
    pub(crate) fn of(setting: &Setting) -> Result<Self, Error> {
        match property(setting, "model").unwrap_or("regression") {
            "regression" => Ok(Self::Regression),
            "convolution" => Ok(Self::Convolution),
            _ => Err(refused("model", "it is `regression` or `convolution`")),
        }
    }

    /// Name and shape of each array, in order.
    pub(crate) fn arrays(self) -> Vec<(&'static str, Vec<u32>)> {
        let dense = |inputs: usize| {
            [
                ("dense.weight", vec![LABELS as u32, inputs as u32]),
                ("dense.bias", vec![LABELS as u32]),
            ]
        };
        match self {
            Self::Regression => dense(PIXELS).into(),
            Self::Convolution => {
                let filters = (
                    "convolution.weight",
                    vec![FILTERS as u32, REACH as u32, REACH as u32],
                );
                let biases = ("convolution.bias", vec![FILTERS as u32]);
                [filters, biases].into_iter().chain(dense(FEATURES)).collect()
            }
        }
    }

    /// Numbers of the model.
    pub(crate) fn length(self) -> usize {
        self.dense_at() + LABELS * (self.inputs() + 1)
    }

    /// Weights by He et al. (2015), biases zero; the regression starts from nothing.
    pub(crate) fn initial(self, seed: u64) -> Vec<f32> {
        let mut model = vec![0.0; self.length()];
        if self == Self::Convolution {
            let mut random = Rng::with_seed(seed);
            let mut draw = |numbers: &mut [f32], inputs: usize| {
                let width = (2.0 / inputs as f64).sqrt();
                numbers
                    .iter_mut()
                    .for_each(|number| *number = (width * normal(&mut random)) as f32);
            };
            draw(&mut model[..FILTERS * REACH * REACH], REACH * REACH);
            let at = self.dense_at();
            draw(&mut model[at..at + LABELS * FEATURES], FEATURES);
        }
        model
    }

    /// Adds the gradient of the mean loss over these samples to `gradient`; gives the loss.
    pub(crate) fn gradient(self, model: &[f32], samples: &[&Sample], gradient: &mut [f32]) -> f32 {
        let share = 1.0 / samples.len().max(1) as f32;
        let one = |sample: &&Sample| match self {
            Self::Regression => {
                let mut delta = answer(model, &sample.pixels);
                let loss = error(&mut delta, sample.label, share);
                back(gradient, &sample.pixels, &delta);
                loss
            }
            Self::Convolution => convolution_gradient(model, sample, share, gradient),
        };
        samples.iter().map(one).sum::<f32>() * share
    }

    /// How many samples it gets right, and the mean loss.
    pub(crate) fn judge(self, model: &[f32], samples: &[Sample]) -> (u64, f32) {
        let (mut correct, mut loss) = (0, 0.0);
        for sample in samples {
            let probabilities = match self {
                Self::Regression => answer(model, &sample.pixels),
                Self::Convolution => answer(&model[self.dense_at()..], &maps(model, sample).features),
            };
            loss -= probabilities[sample.label].max(1e-12).ln();
            let best = (0..LABELS).max_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
            correct += u64::from(best == Some(sample.label));
        }
        (correct, loss / samples.len().max(1) as f32)
    }

    /// Where the dense layer begins.
    pub(crate) fn dense_at(self) -> usize {
        match self {
            Self::Regression => 0,
            Self::Convolution => FILTERS * (REACH * REACH + 1),
        }
    }

    /// What goes into a label of the dense layer.
    pub(crate) fn inputs(self) -> usize {
        match self {
            Self::Regression => PIXELS,
            Self::Convolution => FEATURES,
        }
    }
}

/// Probabilities of the labels: softmax of a dense layer whose biases follow its weights.
fn answer(dense: &[f32], inputs: &[f32]) -> [f32; LABELS] {
    let biases = &dense[LABELS * inputs.len()..];
    let mut values: [f32; LABELS] = std::array::from_fn(|label| {
        let row = &dense[label * inputs.len()..][..inputs.len()];
        dot(row, inputs) + biases[label]
    });
    let most = values.iter().copied().fold(f32::MIN, f32::max);
    values.iter_mut().for_each(|value| *value = (*value - most).exp());
    let sum: f32 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
    values
}

/// Turns probabilities into `share` times the gradient of the loss before the softmax; gives the loss.
fn error(probabilities: &mut [f32; LABELS], label: usize, share: f32) -> f32 {
    let loss = -probabilities[label].max(1e-12).ln();
    probabilities[label] -= 1.0;
    probabilities.iter_mut().for_each(|delta| *delta *= share);
    loss
}

/// The dense layer's part of the gradient.
fn back(gradient: &mut [f32], inputs: &[f32], delta: &[f32; LABELS]) {
    let (weights, biases) = gradient.split_at_mut(LABELS * inputs.len());
    for (label, delta) in delta.iter().enumerate() {
        let row = &mut weights[label * inputs.len()..][..inputs.len()];
        row.iter_mut()
            .zip(inputs)
            .for_each(|(sum, input)| *sum += delta * input);
        biases[label] += delta;
    }
}

fn maps(model: &[f32], sample: &Sample) -> Maps {
    let biases = &model[FILTERS * REACH * REACH..][..FILTERS];
    let mut maps = Maps {
        features: [0.0; FEATURES],
        origin: [(0, 0); FEATURES],
    };
    for filter in 0..FILTERS {
        let weights = &model[filter * REACH * REACH..][..REACH * REACH];
        for feature in 0..POOLED * POOLED {
            let at = filter * POOLED * POOLED + feature;
            let (row, column) = (feature / POOLED * 2, feature % POOLED * 2);
            for (row, column) in [
                (row, column),
                (row, column + 1),
                (row + 1, column),
                (row + 1, column + 1),
            ] {
                let sum: f32 = (0..REACH)
                    .map(|y| {
                        let pixels = &sample.pixels[(row + y) * SIDE + column..][..REACH];
                        let weights = &weights[y * REACH..][..REACH];
                        pixels
                            .iter()
                            .zip(weights)
                            .map(|(pixel, weight)| pixel * weight)
                            .sum::<f32>()
                    })
                    .sum();
                // ReLU: what is not above 0 leaves 0, and no way back.
                if sum + biases[filter] > maps.features[at] {
                    maps.features[at] = sum + biases[filter];
                    maps.origin[at] = (row as u8, column as u8);
                }
            }
        }
    }
    maps
}

fn convolution_gradient(model: &[f32], sample: &Sample, share: f32, gradient: &mut [f32]) -> f32 {
    let maps = maps(model, sample);
    let (_, dense) = model.split_at(Net::Convolution.dense_at());
    let (of_filters, of_dense) = gradient.split_at_mut(Net::Convolution.dense_at());
    let mut delta = answer(dense, &maps.features);
    let loss = error(&mut delta, sample.label, share);
    back(of_dense, &maps.features, &delta);
    let (of_weights, of_biases) = of_filters.split_at_mut(FILTERS * REACH * REACH);
    for (at, (feature, origin)) in maps.features.iter().zip(maps.origin).enumerate() {
        if *feature <= 0.0 {
            continue;
        }
        let filter = at / (POOLED * POOLED);
        let below: f32 = (0..LABELS)
            .map(|label| delta[label] * dense[label * FEATURES + at])
            .sum();
        for y in 0..REACH {
            let pixels =
                &sample.pixels[(usize::from(origin.0) + y) * SIDE + usize::from(origin.1)..][..REACH];
            let weights = &mut of_weights[(filter * REACH + y) * REACH..][..REACH];
            weights
                .iter_mut()
                .zip(pixels)
                .for_each(|(sum, pixel)| *sum += below * pixel);
        }
        of_biases[filter] += below;
    }
    loss
}

/// In lanes, so that the compiler may take vector instructions.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 4];
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    for (a, b) in a.iter().zip(b) {
        (0..4).for_each(|i| lanes[i] += a[i] * b[i]);
    }
    lanes.iter().sum::<f32>() + rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Train;

    /// Against differences of the loss.
    #[test]
    fn gradients_are_those_of_the_loss() {
        let setting = Setting {
            run: String::new(),
            share: None,
            properties: Vec::new(),
        };
        let all = Train::of(&setting, Vec::new()).unwrap().samples;
        let samples: Vec<&Sample> = all.iter().take(5).collect();
        let mut random = Rng::with_seed(1);
        for net in [Net::Regression, Net::Convolution] {
            let model: Vec<f32> = net
                .initial(3)
                .iter()
                .map(|w| w + 0.1 * normal(&mut random) as f32)
                .collect();
            let loss = |model: &[f32]| net.gradient(model, &samples, &mut vec![0.0; model.len()]);
            let mut gradient = vec![0.0; model.len()];
            net.gradient(&model, &samples, &mut gradient);
            for _ in 0..40 {
                let place = random.usize(..model.len());
                let moved = |by: f32| {
                    let mut moved = model.clone();
                    moved[place] += by;
                    loss(&moved)
                };
                let numeric = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                assert!(
                    (numeric - gradient[place]).abs() < 1e-2,
                    "{net:?} {place}: {numeric} {}",
                    gradient[place]
                );
            }
        }
    }
}
