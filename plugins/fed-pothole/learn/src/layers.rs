//! The layers of the net, forward and backward. Values are channels of one length, one after the other in a row.

use crate::vectors::{add, dot};
use std::ops::Range;

/// Channels that are normalised together.
const GROUP: usize = 4;
/// What keeps a division from one by nothing.
const LEAST: f32 = 1e-5;

/// The arrays of a model in one row, while its layers take theirs.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    /// Name and shape of each, in order.
    pub(crate) named: Vec<(String, Vec<u32>)>,
    /// Numbers of all.
    pub(crate) length: usize,
}

/// A convolution that keeps the length: what lies beyond the ends is zero.
#[derive(Debug)]
pub(crate) struct Conv {
    takes: usize,
    gives: usize,
    reach: usize,
    dilation: usize,
    weights: Range<usize>,
    biases: Range<usize>,
}

/// Groups of channels are brought to mean 0 and spread 1, and each channel then to a spread and mean of its own.
#[derive(Debug)]
pub(crate) struct Norm {
    scales: Range<usize>,
    shifts: Range<usize>,
}

/// What a [`Norm`] leaves for the way back.
#[derive(Debug)]
pub(crate) struct Normed {
    /// With mean 0 and spread 1.
    unit: Vec<f32>,
    /// What each group was divided by, inverted.
    inverse: Vec<f32>,
}

impl Arrays {
    fn take(&mut self, name: String, shape: &[usize]) -> Range<usize> {
        let start = self.length;
        self.length += shape.iter().product::<usize>();
        let shape = shape.iter().map(|side| *side as u32).collect();
        self.named.push((name, shape));
        start..self.length
    }
}

impl Conv {
    /// Without biases: a [`Norm`] follows, or something that has its own is added.
    pub(crate) fn plain(arrays: &mut Arrays, name: &str, sides: [usize; 3], dilation: usize) -> Self {
        let [gives, takes, reach] = sides;
        Self {
            takes,
            gives,
            reach,
            dilation,
            weights: arrays.take(format!("{name}.weight"), &sides),
            biases: 0..0,
        }
    }

    /// Of one sample at a time.
    pub(crate) fn pointwise(arrays: &mut Arrays, name: &str, gives: usize, takes: usize) -> Self {
        Self {
            biases: arrays.take(format!("{name}.bias"), &[gives]),
            ..Self::plain(arrays, name, [gives, takes, 1], 1)
        }
    }

    pub(crate) fn forward(&self, model: &[f32], input: &[f32], length: usize) -> Vec<f32> {
        let mut out = vec![0.0; self.gives * length];
        for (row, bias) in out.chunks_mut(length).zip(&model[self.biases.clone()]) {
            row.fill(*bias);
        }
        let padded = self.padded(input, length);
        let each = self.takes * self.reach;
        for (row, weights) in out
            .chunks_mut(length)
            .zip(model[self.weights.clone()].chunks(each))
        {
            let from = padded.chunks(self.wide(length)).zip(weights.chunks(self.reach));
            from.for_each(|(from, weights)| slide(row, from, weights, self.dilation));
        }
        out
    }

    /// Adds the gradient of its own numbers to `sum`; gives how the loss changes with its input.
    pub(crate) fn backward(
        &self,
        model: &[f32],
        input: &[f32],
        slopes: &[f32],
        length: usize,
        sum: &mut [f32],
    ) -> Vec<f32> {
        let padded = self.padded(input, length);
        for (place, own) in sum[self.weights.clone()].iter_mut().enumerate() {
            let (pair, tap) = (place / self.reach, place % self.reach);
            let (to, from) = (pair / self.takes, pair % self.takes);
            let start = from * self.wide(length) + tap * self.dilation;
            *own += dot(&padded[start..start + length], &slopes[to * length..][..length]);
        }
        for (own, row) in sum[self.biases.clone()].iter_mut().zip(slopes.chunks(length)) {
            *own += row.iter().sum::<f32>();
        }
        // What goes forth by one tap comes back by the one across from it.
        let mut back = model[self.weights.clone()].to_vec();
        back.chunks_mut(self.reach).for_each(<[f32]>::reverse);
        let padded = self.padded(slopes, length);
        let mut before = vec![0.0; self.takes * length];
        for (from, weights) in padded
            .chunks(self.wide(length))
            .zip(back.chunks(self.takes * self.reach))
        {
            let rows = before.chunks_mut(length).zip(weights.chunks(self.reach));
            rows.for_each(|(row, weights)| slide(row, from, weights, self.dilation));
        }
        before
    }

    /// A row with what lies beyond its ends.
    const fn wide(&self, length: usize) -> usize {
        length + (self.reach - 1) * self.dilation
    }

    /// Rows with the zeros beyond their ends.
    fn padded(&self, rows: &[f32], length: usize) -> Vec<f32> {
        let (wide, ahead) = (self.wide(length), self.reach / 2 * self.dilation);
        let mut padded = vec![0.0; rows.len() / length * wide];
        for (to, row) in padded.chunks_mut(wide).zip(rows.chunks(length)) {
            to[ahead..ahead + length].copy_from_slice(row);
        }
        padded
    }
}

/// Adds to each sample of a row those of another from there on, `dilation` apart, times `weights`.
fn slide(row: &mut [f32], other: &[f32], weights: &[f32], dilation: usize) {
    match (weights.try_into(), dilation) {
        (Ok(weights), 1) => slide_seven::<7>(row, other, weights),
        (Ok(weights), 4) => slide_seven::<25>(row, other, weights),
        _ => (weights.iter().enumerate())
            .for_each(|(tap, weight)| add(row, &other[tap * dilation..][..row.len()], *weight)),
    }
}

/// [`slide`] in one pass over the row, of which compilers make vector instructions: `SPAN` samples from the first to the last of seven.
fn slide_seven<const SPAN: usize>(row: &mut [f32], other: &[f32], weights: &[f32; 7]) {
    for (sum, values) in row.iter_mut().zip(other.array_windows::<SPAN>()) {
        let each = weights.iter().zip(values.iter().step_by((SPAN - 1) / 6));
        *sum += each.map(|(weight, value)| weight * value).sum::<f32>();
    }
}

impl Norm {
    /// The channels are a multiple of four.
    pub(crate) fn new(arrays: &mut Arrays, name: &str, channels: usize) -> Self {
        Self {
            scales: arrays.take(format!("{name}.scale"), &[channels]),
            shifts: arrays.take(format!("{name}.bias"), &[channels]),
        }
    }

    pub(crate) fn forward(&self, model: &[f32], mut values: Vec<f32>, length: usize) -> (Vec<f32>, Normed) {
        let mut inverse = Vec::with_capacity(values.len() / (GROUP * length));
        for group in values.chunks_mut(GROUP * length) {
            let count = group.len() as f32;
            let mean = group.iter().sum::<f32>() / count;
            group.iter_mut().for_each(|value| *value -= mean);
            let spread = group.iter().map(|value| value * value).sum::<f32>() / count;
            let by = 1.0 / (spread + LEAST).sqrt();
            group.iter_mut().for_each(|value| *value *= by);
            inverse.push(by);
        }
        let unit = values.clone();
        let own = model[self.scales.clone()].iter().zip(&model[self.shifts.clone()]);
        for (row, (scale, shift)) in values.chunks_mut(length).zip(own) {
            row.iter_mut().for_each(|value| *value = scale * *value + shift);
        }
        (values, Normed { unit, inverse })
    }

    /// As [`Conv::backward`]. With `u` the values of mean 0 and spread 1 and `d` what the loss changes by with each of them, the
    /// input's are `(d − mean(d) − u · mean(d · u)) / spread`, means over the group.
    pub(crate) fn backward(
        &self,
        model: &[f32],
        normed: &Normed,
        mut slopes: Vec<f32>,
        length: usize,
        sum: &mut [f32],
    ) -> Vec<f32> {
        let rows = || slopes.chunks(length).zip(normed.unit.chunks(length));
        for (own, (row, unit)) in sum[self.scales.clone()].iter_mut().zip(rows()) {
            *own += dot(row, unit);
        }
        for (own, (row, _)) in sum[self.shifts.clone()].iter_mut().zip(rows()) {
            *own += row.iter().sum::<f32>();
        }
        for (row, scale) in slopes.chunks_mut(length).zip(&model[self.scales.clone()]) {
            row.iter_mut().for_each(|slope| *slope *= scale);
        }
        let groups = slopes.chunks_mut(GROUP * length);
        let units = normed.unit.chunks(GROUP * length).zip(&normed.inverse);
        for (group, (unit, inverse)) in groups.zip(units) {
            let count = group.len() as f32;
            let (mean, along) = (group.iter().sum::<f32>() / count, dot(group, unit) / count);
            for (slope, unit) in group.iter_mut().zip(unit) {
                *slope = inverse * (*slope - mean - unit * along);
            }
        }
        slopes
    }
}

/// What is below zero becomes zero.
pub(crate) fn rectified(mut values: Vec<f32>) -> Vec<f32> {
    values.iter_mut().for_each(|value| *value = value.max(0.0));
    values
}

/// Nothing leads back through what has become zero.
pub(crate) fn through_rectified(mut slopes: Vec<f32>, out: &[f32]) -> Vec<f32> {
    for (slope, out) in slopes.iter_mut().zip(out) {
        if *out <= 0.0 {
            *slope = 0.0;
        }
    }
    slopes
}

/// Half as long: the greater of each two.
pub(crate) fn halved(values: &[f32]) -> Vec<f32> {
    let pairs = values.as_chunks::<2>().0.iter();
    pairs.map(|[one, other]| one.max(*other)).collect()
}

/// The way back through [`halved`] leads to the greater.
pub(crate) fn through_halved(slopes: &[f32], values: &[f32]) -> Vec<f32> {
    let pairs = values.as_chunks::<2>().0.iter().zip(slopes);
    let each = pairs.flat_map(|([one, other], slope)| match one >= other {
        true => [*slope, 0.0],
        false => [0.0, *slope],
    });
    each.collect()
}

/// Twice as long: each value twice.
pub(crate) fn doubled(values: &[f32]) -> Vec<f32> {
    values.iter().flat_map(|value| [*value; 2]).collect()
}

/// The way back through [`doubled`].
pub(crate) fn through_doubled(slopes: &[f32]) -> Vec<f32> {
    let pairs = slopes.as_chunks::<2>().0.iter();
    pairs.map(|[one, other]| one + other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn drawn(count: usize, random: &mut Rng) -> Vec<f32> {
        (0..count).map(|_| 2.0 * random.f32() - 1.0).collect()
    }

    /// Against a convolution that is written down as it is defined.
    #[test]
    fn a_convolution_is_that_of_the_definition() {
        let mut random = Rng::with_seed(1);
        for (dilation, length) in [(1, 20), (4, 32), (4, 6)] {
            let mut arrays = Arrays::default();
            let conv = Conv::plain(&mut arrays, "conv", [3, 2, 7], dilation);
            let (model, input) = (drawn(arrays.length, &mut random), drawn(2 * length, &mut random));
            let out = conv.forward(&model, &input, length);
            for (place, given) in out.iter().enumerate() {
                let (to, at) = (place / length, place % length);
                let mut defined = 0.0;
                for (from, tap) in (0..14).map(|each| (each / 7, each % 7)) {
                    let there = (at + tap * dilation).checked_sub(3 * dilation);
                    if let Some(there) = there.filter(|there| *there < length) {
                        defined += model[(to * 2 + from) * 7 + tap] * input[from * length + there];
                    }
                }
                assert!((given - defined).abs() < 1e-5, "{place}: {given} {defined}");
            }
        }
    }

    /// A loss that is a fixed sum of what comes out, against differences of it.
    fn check(
        length: usize,
        input: &[f32],
        model: &[f32],
        layer: impl Fn(&[f32], &[f32]) -> Vec<f32>,
        back: impl Fn(&[f32], &mut [f32]) -> Vec<f32>,
    ) {
        let mut random = Rng::with_seed(length as u64);
        let wanted = drawn(layer(model, input).len(), &mut random);
        let loss = |model: &[f32], input: &[f32]| -> f64 {
            let out = layer(model, input);
            let each = out.iter().zip(&wanted);
            each.map(|(out, wanted)| f64::from(*out) * f64::from(*wanted))
                .sum()
        };
        let mut sum = vec![0.0; model.len()];
        let before = back(&wanted, &mut sum);
        let moved = |numbers: &[f32], place: usize, by: f32| {
            let mut moved = numbers.to_vec();
            moved[place] += by;
            moved
        };
        let agree = |what: &str, place: usize, numeric: f64, slope: f32| {
            let bound = 0.01 * numeric.abs() + 5e-3;
            assert!(
                (numeric - f64::from(slope)).abs() < bound,
                "{what} {place}: {numeric} {slope}"
            );
        };
        for (place, slope) in sum.iter().enumerate() {
            let numeric = loss(&moved(model, place, 1e-2), input) - loss(&moved(model, place, -1e-2), input);
            agree("own", place, numeric / 2e-2, *slope);
        }
        for (place, slope) in before.iter().enumerate() {
            let numeric = loss(model, &moved(input, place, 1e-2)) - loss(model, &moved(input, place, -1e-2));
            agree("input", place, numeric / 2e-2, *slope);
        }
    }

    #[test]
    fn the_way_back_through_a_convolution_is_its_slope() {
        let mut random = Rng::with_seed(2);
        for length in [5, 24] {
            let mut arrays = Arrays::default();
            let conv = Conv::plain(&mut arrays, "conv", [3, 2, 7], 2);
            let (model, input) = (drawn(arrays.length, &mut random), drawn(2 * length, &mut random));
            let forward = |model: &[f32], input: &[f32]| conv.forward(model, input, length);
            let back = |slopes: &[f32], sum: &mut [f32]| conv.backward(&model, &input, slopes, length, sum);
            check(length, &input, &model, forward, back);
            let mut arrays = Arrays::default();
            let conv = Conv::pointwise(&mut arrays, "point", 3, 2);
            let model = drawn(arrays.length, &mut random);
            let forward = |model: &[f32], input: &[f32]| conv.forward(model, input, length);
            let back = |slopes: &[f32], sum: &mut [f32]| conv.backward(&model, &input, slopes, length, sum);
            check(length, &input, &model, forward, back);
        }
    }

    #[test]
    fn the_way_back_through_a_normalisation_is_its_slope() {
        let (length, mut random) = (6, Rng::with_seed(3));
        let mut arrays = Arrays::default();
        let norm = Norm::new(&mut arrays, "norm", 8);
        let (model, input) = (drawn(arrays.length, &mut random), drawn(8 * length, &mut random));
        let forward = |model: &[f32], input: &[f32]| norm.forward(model, input.to_vec(), length).0;
        let (_, normed) = norm.forward(&model, input.clone(), length);
        for unit in normed.unit.chunks(GROUP * length) {
            let count = unit.len() as f32;
            assert!((unit.iter().sum::<f32>() / count).abs() < 1e-5);
            assert!((dot(unit, unit) / count - 1.0).abs() < 1e-3);
        }
        let back =
            |slopes: &[f32], sum: &mut [f32]| norm.backward(&model, &normed, slopes.to_vec(), length, sum);
        check(length, &input, &model, forward, back);
    }

    #[test]
    fn lengths_go_down_and_up_and_back() {
        let values = [1.0, 3.0, 2.0, -2.0];
        assert_eq!(halved(&values), [3.0, 2.0]);
        assert_eq!(through_halved(&[0.5, 0.25], &values), [0.0, 0.5, 0.25, 0.0]);
        assert_eq!(doubled(&[1.0, 2.0]), [1.0, 1.0, 2.0, 2.0]);
        assert_eq!(through_doubled(&values), [4.0, 0.0]);
        let rectified = rectified(vec![-1.0, 2.0]);
        assert_eq!(rectified, [0.0, 2.0]);
        assert_eq!(through_rectified(vec![5.0, 5.0], &rectified), [0.0, 5.0]);
    }
}
