//! Convolutions of square maps, as products of matrices: each pixel's window is a column.

use crate::product::{Panels, WIDE, multiply};

/// What a convolution is, with half a kernel of zeros around its input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Geometry {
    pub(crate) channels_in: usize,
    pub(crate) channels_out: usize,
    pub(crate) side: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) groups: usize,
}

impl Geometry {
    /// Rows and columns of a map of the output.
    pub(crate) fn out_side(&self) -> usize {
        (self.side + 2 * (self.kernel / 2) - self.kernel) / self.stride + 1
    }

    fn padded(&self) -> usize {
        self.side + 2 * (self.kernel / 2)
    }
}

/// A convolution of one item: channel by channel, row by row. The weights are those of ONNX: output channel, input channel of
/// its group, row, column.
#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
pub(crate) fn convolve(shape: &Geometry, weights: &[f32], input: &[f32]) -> Vec<f32> {
    let pixels = shape.out_side() * shape.out_side();
    let channels = shape.channels_in / shape.groups;
    let inner = channels * shape.kernel * shape.kernel;
    let mut windows = Panels::new(inner, pixels);
    let mut out = vec![0.0; shape.channels_out * pixels];
    let padded = pad(shape, input);
    let maps = padded.chunks_exact(channels * shape.padded() * shape.padded());
    let groups = maps.zip(weights.chunks_exact(shape.channels_out / shape.groups * inner));
    let outs = out.chunks_exact_mut(shape.channels_out / shape.groups * pixels);
    for ((maps, weights), out) in groups.zip(outs) {
        gather(shape, maps, &mut windows);
        multiply(weights, &windows, out);
    }
    out
}

/// The input with its border of zeros.
fn pad(shape: &Geometry, input: &[f32]) -> Vec<f32> {
    let (border, wide) = (shape.kernel / 2, shape.padded());
    if border == 0 {
        return input.to_vec();
    }
    let mut padded = vec![0.0; shape.channels_in * wide * wide];
    let maps = padded.chunks_exact_mut(wide * wide);
    for (padded, map) in maps.zip(input.chunks_exact(shape.side * shape.side)) {
        let rows = padded.chunks_exact_mut(wide).skip(border);
        for (padded, row) in rows.zip(map.chunks_exact(shape.side)) {
            padded[border..border + shape.side].copy_from_slice(row);
        }
    }
    padded
}

/// The windows of the pixels, [`WIDE`] of them a panel.
fn gather(shape: &Geometry, maps: &[f32], windows: &mut Panels) {
    let (wide, side, kernel) = (shape.padded(), shape.out_side(), shape.kernel);
    let taps = maps
        .chunks_exact(wide * wide)
        .flat_map(move |map| (0..kernel * kernel).map(move |tap| &map[tap / kernel * wide + tap % kernel..]));
    for panel in 0..windows.count() {
        let mut begins = [0; WIDE];
        for (lane, begin) in begins.iter_mut().enumerate() {
            // Beyond the last pixel anything will do: those sums are not kept.
            let pixel = (panel * WIDE + lane).min(side * side - 1);
            *begin = pixel / side * shape.stride * wide + pixel % side * shape.stride;
        }
        windows.fill(panel, taps.clone().map(|map| begins.map(|begin| map[begin])));
    }
}
