//! Multinomial logistic regression and a small perceptron, trained by plain gradient descent.

use super::digits::{LABELS, PIXELS, Sample};
use fastrand::Rng;
use karman_fed::{Layout, LayoutError};
use karman_sim::normal;
use karman_tensor::Shape;

/// Layers of `inputs × outputs`, with ReLU between them and softmax at the end. Its numbers are, layer by layer, the weights (a row per
/// output) and the biases.
#[derive(Clone)]
pub(super) struct Net {
    sizes: Vec<usize>,
}

/// What pulls a step besides the gradient.
pub(super) struct Pull<'a> {
    /// FedProx's mu, towards where training began.
    pub(super) proximal: f32,
    /// SCAFFOLD's `c − c_k`, added to each gradient.
    pub(super) drift: Option<&'a [f32]>,
}

/// Memory of one pass: activations and their gradients, layer by layer.
struct Pass {
    activations: Vec<Vec<f32>>,
    deltas: Vec<Vec<f32>>,
}

impl Net {
    /// Multinomial logistic regression: 650 numbers.
    pub(super) fn regression() -> Self {
        Self {
            sizes: vec![PIXELS, LABELS],
        }
    }

    /// One hidden layer of 32: 2,410 numbers.
    pub(super) fn perceptron() -> Self {
        Self {
            sizes: vec![PIXELS, 32, LABELS],
        }
    }

    /// Two hidden layers of 48, for adapters.
    pub(super) fn deep() -> Self {
        Self {
            sizes: vec![PIXELS, 48, 48, LABELS],
        }
    }

    pub(super) fn layout(&self) -> Result<Layout, LayoutError> {
        let shapes = self.layers().flat_map(|(inputs, outputs)| {
            let (inputs, outputs) = (inputs as u32, outputs as u32);
            [Shape::from([outputs, inputs]), Shape::from([outputs])]
        });
        Layout::of_shapes(shapes)
    }

    pub(super) fn length(&self) -> usize {
        self.layers()
            .map(|(inputs, outputs)| (inputs + 1) * outputs)
            .sum()
    }

    /// Inputs and outputs of each layer.
    pub(super) fn layers(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.sizes.windows(2).map(|pair| (pair[0], pair[1]))
    }

    /// Where the weights of each layer begin; its biases follow them.
    pub(super) fn offsets(&self) -> Vec<usize> {
        let ends = self.layers().scan(0, |at, (inputs, outputs)| {
            let start = *at;
            *at += (inputs + 1) * outputs;
            Some(start)
        });
        ends.collect()
    }

    /// Weights by He et al. (2015), biases zero.
    pub(super) fn initial(&self, random: &mut Rng) -> Vec<f32> {
        let mut numbers = Vec::with_capacity(self.length());
        for (inputs, outputs) in self.layers() {
            let width = (2.0 / inputs as f64).sqrt() * if self.sizes.len() == 2 { 0.01 } else { 1.0 };
            numbers.extend((0..inputs * outputs).map(|_| (width * normal(random)) as f32));
            numbers.extend(std::iter::repeat_n(0.0, outputs));
        }
        numbers
    }

    fn pass(&self) -> Pass {
        let zeros = || self.sizes.iter().map(|size| vec![0.0; *size]).collect();
        Pass {
            activations: zeros(),
            deltas: zeros(),
        }
    }

    /// Leaves probabilities in the last activations.
    fn forward(&self, model: &[f32], sample: &Sample, pass: &mut Pass) {
        pass.activations[0].copy_from_slice(&sample.pixels);
        let last = self.sizes.len() - 2;
        let mut at = 0;
        for (layer, (inputs, outputs)) in self.layers().enumerate() {
            let (weights, rest) = model[at..].split_at(inputs * outputs);
            let (before, after) = pass.activations.split_at_mut(layer + 1);
            let (input, output) = (&before[layer], &mut after[0]);
            for ((out, row), bias) in output.iter_mut().zip(weights.chunks_exact(inputs)).zip(rest) {
                let sum = dot(row, input) + bias;
                *out = if layer == last { sum } else { sum.max(0.0) };
            }
            at += (inputs + 1) * outputs;
        }
        softmax(&mut pass.activations[last + 1]);
    }

    /// Adds the gradient of one sample's loss; gives the loss.
    fn backward(&self, model: &[f32], sample: &Sample, pass: &mut Pass, gradient: &mut [f32]) -> f32 {
        self.forward(model, sample, pass);
        let last = self.sizes.len() - 1;
        let loss = -pass.activations[last][sample.label].max(1e-12).ln();
        pass.deltas[last].copy_from_slice(&pass.activations[last]);
        pass.deltas[last][sample.label] -= 1.0;
        let layers: Vec<(usize, usize)> = self.layers().collect();
        for (layer, at) in self.offsets().into_iter().enumerate().rev() {
            let (inputs, outputs) = layers[layer];
            let (before, after) = pass.deltas.split_at_mut(layer + 1);
            let (below, delta, input) = (&mut before[layer], &after[0], &pass.activations[layer]);
            below.fill(0.0);
            let (of_weights, of_biases) = gradient[at..].split_at_mut(inputs * outputs);
            for (o, delta) in delta.iter().enumerate().filter(|(_, delta)| **delta != 0.0) {
                let row = o * inputs..(o + 1) * inputs;
                add(&mut of_weights[row.clone()], *delta, input);
                of_biases[o] += delta;
                if layer > 0 {
                    add(below, *delta, &model[at..][row]);
                }
            }
            if layer > 0 {
                below
                    .iter_mut()
                    .zip(input)
                    .filter(|(_, x)| **x <= 0.0)
                    .for_each(|(delta, _)| *delta = 0.0);
            }
        }
        loss
    }

    /// The mean gradient over samples, and the mean loss.
    pub(super) fn gradient(&self, model: &[f32], samples: &[&Sample]) -> (Vec<f32>, f32) {
        let mut gradient = vec![0.0; self.length()];
        let mut pass = self.pass();
        let loss: f32 = samples
            .iter()
            .map(|sample| self.backward(model, sample, &mut pass, &mut gradient))
            .sum();
        let share = 1.0 / samples.len().max(1) as f32;
        gradient.iter_mut().for_each(|x| *x *= share);
        (gradient, loss * share)
    }

    /// Trains in place; gives the steps taken and the mean loss on the way.
    pub(super) fn train(
        &self,
        model: &mut [f32],
        samples: &[Sample],
        how: &karman_fed::Train,
        pull: &Pull<'_>,
        random: &mut Rng,
    ) -> (u32, f32) {
        let begin = model.to_vec();
        let mut order: Vec<&Sample> = samples.iter().collect();
        let (mut steps, mut losses) = (0, 0.0);
        for _ in 0..how.epochs {
            random.shuffle(&mut order);
            for batch in order.chunks(how.batch as usize) {
                if how.most_steps.is_some_and(|most| steps >= most) {
                    break;
                }
                let (mut gradient, loss) = self.gradient(model, batch);
                if let Some(drift) = pull.drift {
                    gradient.iter_mut().zip(drift).for_each(|(g, c)| *g += c);
                }
                if pull.proximal > 0.0 {
                    let away = model
                        .iter()
                        .zip(&begin)
                        .map(|(w, start)| pull.proximal * (w - start));
                    gradient.iter_mut().zip(away).for_each(|(g, x)| *g += x);
                }
                add(model, -how.learning_rate, &gradient);
                steps += 1;
                losses += loss;
            }
        }
        (steps, losses / steps.max(1) as f32)
    }

    /// The share of samples that it gets right.
    pub(super) fn accuracy(&self, model: &[f32], samples: &[Sample]) -> f64 {
        let mut pass = self.pass();
        let right = samples.iter().filter(|sample| {
            self.forward(model, sample, &mut pass);
            let answers = pass.activations[self.sizes.len() - 1].iter().enumerate();
            answers
                .max_by(|a, b| a.1.total_cmp(b.1))
                .is_some_and(|(label, _)| label == sample.label)
        });
        right.count() as f64 / samples.len().max(1) as f64
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        (0..8).for_each(|i| lanes[i] += a[i] * b[i]);
    }
    lanes.iter().sum::<f32>() + rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum::<f32>()
}

/// `to += factor · of`.
pub(super) fn add(to: &mut [f32], factor: f32, of: &[f32]) {
    to.iter_mut().zip(of).for_each(|(to, of)| *to += factor * of);
}

fn softmax(values: &mut [f32]) {
    let most = values.iter().copied().fold(f32::MIN, f32::max);
    values.iter_mut().for_each(|value| *value = (*value - most).exp());
    let sum: f32 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fed_tables::digits;

    /// Against differences of the loss.
    #[test]
    fn gradients_are_those_of_the_loss() {
        let mut random = Rng::with_seed(1);
        let split = digits::split(&mut random);
        let samples: Vec<&Sample> = split.train.iter().take(5).collect();
        for net in [Net::regression(), Net::perceptron(), Net::deep()] {
            let model = net.initial(&mut random);
            let (gradient, _) = net.gradient(&model, &samples);
            for _ in 0..20 {
                let place = random.usize(..model.len());
                let loss = |by: f32| {
                    let mut moved = model.clone();
                    moved[place] += by;
                    net.gradient(&moved, &samples).1
                };
                let numeric = (loss(1e-2) - loss(-1e-2)) / 2e-2;
                assert!(
                    (numeric - gradient[place]).abs() < 2e-2,
                    "{numeric} against {}",
                    gradient[place]
                );
            }
        }
    }
}
