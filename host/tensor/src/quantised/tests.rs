//! The kernels against the definition of what they compute, value by value.

use super::*;
use proptest::prelude::*;
use std::ops::Range;

fn bits(seed: u64) -> impl FnMut() -> u32 {
    let mut random = fastrand::Rng::with_seed(seed);
    move || random.u32(..)
}

/// A convolution by its definition, in whole numbers of 64 bits, with the real factors.
struct Definition {
    weights: Vec<i8>,
    bias: Vec<i32>,
    factors: Vec<f64>,
    input_zero: i8,
    output: Range8,
}

impl Definition {
    fn value(&self, layer: &Layer, input: &[i8], channel: usize, row: usize, column: usize) -> f64 {
        let Operator::Convolution {
            window,
            stride,
            padding,
            groups,
        } = *layer.operator()
        else {
            unreachable!()
        };
        let extent = layer.input();
        let (inputs, outputs) = (extent.channels / groups, layer.output().channels / groups);
        let mut sum = i64::from(self.bias[channel]);
        for (dy, dx) in (0..window[0]).flat_map(|dy| (0..window[1]).map(move |dx| (dy, dx))) {
            let y = (row * stride + dy)
                .checked_sub(padding)
                .filter(|y| *y < extent.height);
            let x = (column * stride + dx)
                .checked_sub(padding)
                .filter(|x| *x < extent.width);
            let (Some(y), Some(x)) = (y, x) else { continue };
            for ci in 0..inputs {
                let weight = match layer.is_depthwise() && groups > 1 {
                    true => self.weights[(dy * window[1] + dx) * layer.output().channels + channel],
                    false => self.weights[((channel * window[0] + dy) * window[1] + dx) * inputs + ci],
                };
                let value = input[(y * extent.width + x) * extent.channels + channel / outputs * inputs + ci];
                sum += i64::from(weight) * (i64::from(value) - i64::from(self.input_zero));
            }
        }
        let real = f64::from(self.output.zero) + sum as f64 * self.factors[channel];
        real.clamp(self.output.low.into(), self.output.high.into())
    }
}

fn convolutions() -> impl Strategy<Value = Layer> {
    (
        1usize..4,
        1usize..8,
        1usize..8,
        1usize..4,
        1usize..4,
        0usize..4,
        1usize..5,
    )
        .prop_map(|(channels, height, width, size, stride, kind, outputs)| {
            let window = [size.min(height), size.min(width)];
            let padding = (window[0].min(window[1])) / 2;
            let (channels, outputs, groups) = match kind {
                0 => (channels * 9, channels * 9, channels * 9),
                1 => (channels * 2, outputs * 2, 2),
                _ => (channels, outputs, 1),
            };
            let input = Extent::new(channels, height, width).unwrap();
            Layer::convolution(input, outputs, window, stride, padding, groups).unwrap()
        })
}

proptest! {
    #[test]
    fn a_convolution_is_what_its_definition_says(layer in convolutions(), seed: u64, input_zero: i8, relu: bool) {
        let mut random = fastrand::Rng::with_seed(seed);
        let outputs = layer.output().channels;
        let products = layer.operations(&Part::new(0..1, 0..1)) as usize / layer.output().width;
        let definition = Definition {
            weights: (0..outputs * products).map(|_| random.i8(..)).collect(),
            bias: (0..outputs).map(|_| random.i32(-5000..5000)).collect(),
            factors: (0..outputs).map(|_| 0.001 + random.f64() * 0.01).collect(),
            input_zero,
            output: if relu { Range8::RELU6 } else { Range8 { zero: 3, low: -100, high: 90 } },
        };
        let rescale = definition.factors.iter().map(|factor| Rescale::new(*factor).unwrap()).collect();
        let convolution = Convolution::new(
            &layer, definition.weights.clone(), &definition.bias, rescale, input_zero, definition.output,
        ).unwrap();
        let network = Network::new(vec![layer.clone()], vec![Parameters::Convolution(convolution)]).unwrap();
        let input: Vec<i8> = (0..layer.input().elements()).map(|_| random.i8(..)).collect();
        let answer = network.run(&input).unwrap();
        let extent = layer.output();
        for (place, value) in answer.iter().enumerate() {
            let (cell, channel) = (place / extent.channels, place % extent.channels);
            let exact = definition.value(&layer, &input, channel, cell / extent.width, cell % extent.width);
            // Rounding to nearest, and the 31 bits of a factor.
            prop_assert!((f64::from(*value) - exact).abs() <= 0.5001, "{value} instead of {exact}");
        }
    }

    #[test]
    fn a_maximum_is_the_largest_value_under_its_window(layer in convolutions(), seed: u64, zero: i8, relu: bool) {
        let Operator::Convolution { window, stride, padding, .. } = *layer.operator() else { unreachable!() };
        let extent = layer.input();
        let layer = Layer::max_pool(extent, window, stride, padding).unwrap();
        let (given, output) = (layer.output(), Range8 { low: if relu { zero } else { i8::MIN }, ..Range8::full(zero) });
        let parameters = Parameters::MaxPool(MaxPool::new(1.0, zero, output).unwrap());
        let network = Network::new(vec![layer], vec![parameters]).unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let input: Vec<i8> = (0..extent.elements()).map(|_| random.i8(..)).collect();
        let inside = |at: usize, most: usize| at.checked_sub(padding).filter(|at| *at < most);
        for (place, value) in network.run(&input).unwrap().iter().enumerate() {
            let (cell, channel) = (place / given.channels, place % given.channels);
            let (row, column) = (cell / given.width * stride, cell % given.width * stride);
            let under = (row..row + window[0]).filter_map(|y| inside(y, extent.height)).flat_map(|y| {
                let columns = (column..column + window[1]).filter_map(|x| inside(x, extent.width));
                columns.map(move |x| (y * extent.width + x) * extent.channels + channel)
            });
            prop_assert_eq!(*value, under.map(|at| input[at]).max().unwrap().max(output.low));
        }
    }

    #[test]
    fn sums_over_parts_of_the_input_make_the_whole(
        channels in 2usize..9, outputs in 1usize..6, size in 1usize..4, at in 1usize..8, seed: u64,
    ) {
        let input = Extent::new(channels, 5, 4).unwrap();
        let layer = Layer::convolution(input, outputs, [size, size], 1, size / 2, 1).unwrap();
        let network = Network::generated(vec![layer.clone()], bits(seed)).unwrap();
        let mut random = bits(seed ^ 1);
        let values: Vec<i8> = (0..input.elements()).map(|_| random() as i8).collect();
        let whole = network.run(&values).unwrap();
        let row_length = input.width * channels;
        let cut = at.min(channels - 1);
        let all = 0..outputs;
        for row in 0..layer.output().height {
            let mut sums = vec![0; layer.output().width * outputs];
            let mut scratch = vec![0; network.scratch(0)];
            let taps: Vec<_> = layer.window(row).map(|row| {
                let row = usize::try_from(row).ok()?;
                RowView::new(values.chunks_exact(row_length).nth(row)?, &(0..channels)).ok()
            }).collect();
            for part in [cut..channels, 0..cut] {
                network.add_sums(0, &taps, &all, &part, &mut scratch, &mut sums).unwrap();
            }
            let mut out = vec![0; sums.len()];
            network.finish(0, &all, &sums, &mut out).unwrap();
            prop_assert_eq!(&out[..], &whole[row * out.len()..][..out.len()]);
        }
    }
}

#[test]
fn a_mean_and_an_addition_round_once() {
    let input = Extent::new(2, 2, 2).unwrap();
    let pool = AveragePool::new(input, 1.0, -1, Range8::full(-1)).unwrap();
    let network = Network::new(
        vec![Layer::average_pool(input)],
        vec![Parameters::AveragePool(pool)],
    )
    .unwrap();
    // Means of 2.5, which rounds up, and of -3.
    assert_eq!(network.run(&[1, -3, 2, -3, 3, -2, 4, -4]).unwrap(), [3, -3]);

    let add = Add::new([0.5, 2.0], [1, -1], Range8::full(0)).unwrap();
    let network = Network::new(vec![Layer::add(input, 0)], vec![Parameters::Add(add)]).unwrap();
    // (x - 1) / 2 + 2 (x + 1), bounded by 8 bits.
    assert_eq!(
        network.run(&[0, 1, 2, 3, -1, -128, 127, 7]).unwrap(),
        [2, 4, 7, 9, -1, -128, 127, 19]
    );
}

#[test]
fn a_maximum_that_is_scaled_rounds_once() {
    let input = Extent::new(1, 1, 4).unwrap();
    let pool = MaxPool::new(0.5, 1, Range8::full(-1)).unwrap();
    let layer = Layer::max_pool(input, [1, 2], 2, 0).unwrap();
    let network = Network::new(vec![layer], vec![Parameters::MaxPool(pool)]).unwrap();
    // (8 - 1) / 2 - 1, which rounds up, and (-3 - 1) / 2 - 1.
    assert_eq!(network.run(&[8, -100, -4, -3]).unwrap(), [3, -3]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let input = Extent::new(2, 3, 3).unwrap();
    let layer = Layer::convolution(input, 2, [1, 1], 1, 0, 1).unwrap();
    let rescale = vec![Rescale::new(0.1).unwrap(); 2];
    let new = |weights: usize, bias: &[i32], output| {
        Convolution::new(&layer, vec![1; weights], bias, rescale.clone(), 0, output)
    };
    let full = Range8::full(0);
    assert!(matches!(
        new(3, &[0, 0], full),
        Err(QuantisedError::Length { field: "weights", .. })
    ));
    assert!(matches!(
        new(4, &[0], full),
        Err(QuantisedError::Length { field: "biases", .. })
    ));
    assert_eq!(
        new(4, &[0, i32::MAX], full),
        Err(QuantisedError::Overflow { channel: 1 })
    );
    let upside_down = Range8 {
        zero: 0,
        low: 1,
        high: 0,
    };
    assert_eq!(
        new(4, &[0, 0], upside_down),
        Err(QuantisedError::Bounds { low: 1, high: 0 })
    );
    assert!(Add::new([0.5, f64::NAN], [0, 0], full).is_err());
    assert!(AveragePool::new(Extent::new(1, 65_535, 65_535).unwrap(), 1.0, 0, full).is_err());

    let parameters = Parameters::Convolution(new(4, &[0, 0], full).unwrap());
    let other = Layer::convolution(input, 5, [1, 1], 1, 0, 1).unwrap();
    assert!(
        Network::new(vec![other], vec![parameters.clone()]).is_err(),
        "weights of another layer"
    );
    assert!(matches!(
        Network::new(vec![Layer::average_pool(input)], vec![parameters.clone()]),
        Err(QuantisedError::Kind { layer: 0 })
    ));
    assert_eq!(Network::new(Vec::new(), Vec::new()), Err(QuantisedError::Empty));
    let far = Layer::add(layer.output(), 2);
    assert!(matches!(
        Network::generated(vec![layer.clone(), far], bits(1)),
        Err(QuantisedError::Reach { layer: 1, other: 2 })
    ));
    let network = Network::new(vec![layer], vec![parameters]).unwrap();
    assert!(network.run(&[0; 17]).is_err());
    let row = [0; 6];
    let view = |channels: Range<usize>| RowView::new(&row, &channels).unwrap();
    let mut out = [0; 6];
    assert!(
        network
            .row(0, &[Some(view(0..1))], None, &(0..2), &mut [], &mut out)
            .is_err(),
        "a channel is missing"
    );
    assert!(network.row(0, &[], None, &(0..2), &mut [], &mut out).is_err());
    assert!(network.row(1, &[], None, &(0..2), &mut [], &mut out).is_err());
    assert!(
        network
            .row(0, &[Some(view(0..2))], None, &(1..3), &mut [], &mut out)
            .is_err()
    );
    assert!(
        network
            .row(0, &[Some(view(0..2))], None, &(0..2), &mut [], &mut out)
            .is_ok()
    );
}
