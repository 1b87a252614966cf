use super::Layer;
use super::convolution::Shape;
use super::network::RowView;
use std::ops::Range;

/// Channels that are summed side by side: few enough for the registers of a small processor.
const SIDE_BY_SIDE: usize = 16;

/// One row of some channels of a depthwise convolution. `finish` makes 8 bits of a channel's sum of products.
#[allow(
    clippy::too_many_arguments,
    reason = "one inner loop; a struct for its operands would only rename them"
)]
pub(super) fn row(
    layer: &Layer,
    shape: &Shape,
    weights: &[i8],
    zero: i8,
    taps: &[Option<RowView<'_>>],
    channels: &Range<usize>,
    out: &mut [i8],
    finish: impl Fn(usize, i32) -> i8,
) {
    let (total, width) = (layer.output().channels, layer.input().width);
    let columns = shape.window[1];
    for (column, out) in out.chunks_exact_mut(channels.len()).enumerate() {
        for (block, out) in out.chunks_mut(SIDE_BY_SIDE).enumerate() {
            let first = channels.start + block * SIDE_BY_SIDE;
            let block = first..first + out.len();
            let mut sums = [0i32; SIDE_BY_SIDE];
            for (dy, tap) in taps.iter().enumerate() {
                for dx in 0..columns {
                    let weights = &weights[(dy * columns + dx) * total..][block.clone()];
                    let x = (column * shape.stride + dx).checked_sub(shape.padding);
                    match (tap, x) {
                        (Some(view), Some(x)) if x < width => {
                            let products = weights.iter().zip(view.cell(x, &block));
                            for (sum, (w, v)) in sums.iter_mut().zip(products) {
                                *sum += i32::from(*w) * i32::from(*v);
                            }
                        }
                        _ => {
                            for (sum, w) in sums.iter_mut().zip(weights) {
                                *sum += i32::from(*w) * i32::from(zero);
                            }
                        }
                    }
                }
            }
            for (at, out) in out.iter_mut().enumerate() {
                *out = finish(first + at, sums[at]);
            }
        }
    }
}
