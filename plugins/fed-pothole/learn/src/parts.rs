//! What the net is put together from: blocks of two convolutions, and gates that decide what of a level goes across.

use crate::layers::{Arrays, Conv, Norm, Normed, rectified, through_rectified};
use crate::vectors::add;

/// Samples that a convolution takes in.
const REACH: usize = 7;

/// Twice: convolution, normalisation, what is below zero becomes zero.
#[derive(Debug)]
pub(crate) struct Block {
    convs: [Conv; 2],
    norms: [Norm; 2],
}

/// What a [`Block`] leaves for the way back.
#[derive(Debug)]
pub(crate) struct Passed {
    input: Vec<f32>,
    middle: Vec<f32>,
    normed: [Normed; 2],
    /// What comes out.
    pub(crate) out: Vec<f32>,
}

/// Additive attention: `share = sigmoid(mark · relu(of_skip · skip + of_deep · deep))`, one share for each sample, by which the
/// channels that go across are multiplied.
#[derive(Debug)]
pub(crate) struct Gate {
    of_skip: Conv,
    of_deep: Conv,
    mark: Conv,
}

/// What a [`Gate`] leaves for the way back.
#[derive(Debug)]
pub(crate) struct Gated {
    inner: Vec<f32>,
    shares: Vec<f32>,
    /// What comes out.
    pub(crate) out: Vec<f32>,
}

impl Block {
    pub(crate) fn new(arrays: &mut Arrays, name: &str, takes: usize, gives: usize, dilation: usize) -> Self {
        let mut conv = |at: usize, takes: usize| {
            let conv = Conv::plain(
                arrays,
                &format!("{name}.conv{at}"),
                [gives, takes, REACH],
                dilation,
            );
            let norm = Norm::new(arrays, &format!("{name}.norm{at}"), gives);
            (conv, norm)
        };
        let ((first, first_norm), (second, second_norm)) = (conv(0, takes), conv(1, gives));
        Self {
            convs: [first, second],
            norms: [first_norm, second_norm],
        }
    }

    pub(crate) fn forward(&self, model: &[f32], input: Vec<f32>, length: usize) -> Passed {
        let [first, second] = &self.convs;
        let (out, first_normed) = self.norms[0].forward(model, first.forward(model, &input, length), length);
        let middle = rectified(out);
        let (out, second_normed) =
            self.norms[1].forward(model, second.forward(model, &middle, length), length);
        Passed {
            input,
            middle,
            normed: [first_normed, second_normed],
            out: rectified(out),
        }
    }

    /// Adds the gradient of its own numbers to `sum`; gives how the loss changes with its input.
    pub(crate) fn backward(
        &self,
        model: &[f32],
        passed: &Passed,
        slopes: Vec<f32>,
        length: usize,
        sum: &mut [f32],
    ) -> Vec<f32> {
        let [first, second] = &self.convs;
        let slopes = through_rectified(slopes, &passed.out);
        let slopes = self.norms[1].backward(model, &passed.normed[1], slopes, length, sum);
        let slopes = second.backward(model, &passed.middle, &slopes, length, sum);
        let slopes = through_rectified(slopes, &passed.middle);
        let slopes = self.norms[0].backward(model, &passed.normed[0], slopes, length, sum);
        first.backward(model, &passed.input, &slopes, length, sum)
    }
}

impl Gate {
    /// Between so many channels that go across and so many that come from below.
    pub(crate) fn new(arrays: &mut Arrays, name: &str, skip: usize, deep: usize) -> Self {
        let inner = skip / 2;
        Self {
            of_skip: Conv::pointwise(arrays, &format!("{name}.skip"), inner, skip),
            of_deep: Conv::plain(arrays, &format!("{name}.deep"), [inner, deep, 1], 1),
            mark: Conv::pointwise(arrays, &format!("{name}.mark"), 1, inner),
        }
    }

    pub(crate) fn forward(&self, model: &[f32], skip: &[f32], deep: &[f32], length: usize) -> Gated {
        let mut inner = self.of_skip.forward(model, skip, length);
        add(&mut inner, &self.of_deep.forward(model, deep, length), 1.0);
        let inner = rectified(inner);
        let mut shares = self.mark.forward(model, &inner, length);
        shares
            .iter_mut()
            .for_each(|score| *score = 1.0 / (1.0 + (-*score).exp()));
        let mut out = skip.to_vec();
        for row in out.chunks_mut(length) {
            row.iter_mut()
                .zip(&shares)
                .for_each(|(value, share)| *value *= share);
        }
        Gated { inner, shares, out }
    }

    /// As [`Block::backward`]: how the loss changes with what goes across, and with what comes from below.
    pub(crate) fn backward(
        &self,
        model: &[f32],
        gated: &Gated,
        (skip, deep): (&[f32], &[f32]),
        mut slopes: Vec<f32>,
        sum: &mut [f32],
    ) -> (Vec<f32>, Vec<f32>) {
        let length = gated.shares.len();
        let mut of_scores = vec![0.0; length];
        for (row, values) in slopes.chunks_mut(length).zip(skip.chunks(length)) {
            for (((slope, value), share), of_score) in
                row.iter_mut().zip(values).zip(&gated.shares).zip(&mut of_scores)
            {
                *of_score += *slope * value * share * (1.0 - share);
                *slope *= share;
            }
        }
        let of_inner = self.mark.backward(model, &gated.inner, &of_scores, length, sum);
        let of_inner = through_rectified(of_inner, &gated.inner);
        let of_skip = self.of_skip.backward(model, skip, &of_inner, length, sum);
        add(&mut slopes, &of_skip, 1.0);
        let of_deep = self.of_deep.backward(model, deep, &of_inner, length, sum);
        (slopes, of_deep)
    }
}
