use super::{Extent, Layer, QuantisedError};

/// Expansion, output channels, repetitions and first stride of the inverted residual blocks.
const BLOCKS: [[usize; 4]; 7] = [
    [1, 16, 1, 1],
    [6, 24, 2, 2],
    [6, 32, 3, 2],
    [6, 64, 4, 2],
    [6, 96, 3, 1],
    [6, 160, 3, 2],
    [6, 320, 1, 1],
];

/// The layers of MobileNetV2 (Sandler et al. 2018, arXiv 1801.04381, table 2) for square pictures of this side, with batch
/// normalisation fused into the convolutions: 52 of them, 10 additions, a mean, a fully connected layer.
///
/// # Errors
/// [`QuantisedError`] when the side or the number of classes is 0 or too large.
pub fn mobilenet_v2(side: usize, classes: usize) -> Result<Vec<Layer>, QuantisedError> {
    let mut layers = Vec::new();
    let mut at = Extent::new(3, side, side)?;
    let mut push = |layer: Layer| {
        let output = layer.output();
        layers.push(layer);
        (output, layers.len())
    };
    (at, _) = push(Layer::convolution(at, 32, [3, 3], 2, 1, 1)?);
    let mut activation = 1;
    for [expansion, channels, repetitions, first_stride] in BLOCKS {
        for repetition in 0..repetitions {
            let (input, inputs) = (activation, at);
            let stride = if repetition == 0 { first_stride } else { 1 };
            if expansion > 1 {
                (at, _) = push(Layer::convolution(at, at.channels * expansion, [1, 1], 1, 0, 1)?);
            }
            (at, _) = push(Layer::convolution(
                at,
                at.channels,
                [3, 3],
                stride,
                1,
                at.channels,
            )?);
            (at, activation) = push(Layer::convolution(at, channels, [1, 1], 1, 0, 1)?);
            if stride == 1 && inputs.channels == channels {
                (at, activation) = push(Layer::add(at, input));
            }
        }
    }
    (at, _) = push(Layer::convolution(at, 1280, [1, 1], 1, 0, 1)?);
    (at, _) = push(Layer::average_pool(at));
    push(Layer::linear(at, classes)?);
    Ok(layers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantised::Operator;

    #[test]
    fn it_has_the_published_size() {
        let layers = mobilenet_v2(224, 1000).unwrap();
        let count = |fits: fn(&Operator) -> bool| layers.iter().filter(|l| fits(l.operator())).count();
        assert_eq!(count(|o| matches!(o, Operator::Convolution { .. })), 53);
        assert_eq!(count(|o| matches!(o, Operator::Add { .. })), 10);
        let convolutions = || {
            layers
                .iter()
                .filter(|l| matches!(l.operator(), Operator::Convolution { .. }))
        };
        let operations: u64 = convolutions().map(|l| l.operations(&l.output().whole())).sum();
        // The paper rounds to 300 million multiplications and 3.4 million parameters.
        assert_eq!(operations, 300_774_272);
        let weights: u64 = layers
            .iter()
            .map(|l| l.weight_bytes(&(0..l.output().channels)))
            .sum();
        // 3,487,816 weights and biases; the 18,056 biases have four bytes.
        assert_eq!(weights, 3_487_816 + 3 * 18_056);
    }
}
