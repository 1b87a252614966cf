use crate::convolution::Geometry;
use crate::operator::Operator;

/// Whole numbers small enough that sums of their products are exact in any order.
fn some(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 37 + 11) % 13) as f32 - 6.0).collect()
}

fn made(described: &str, weights: Vec<f32>) -> Operator {
    Operator::read(described, weights).unwrap_or_else(|wrong| panic!("{described}: {wrong}"))
}

#[test]
fn products_are_those_of_the_definition() {
    for (rows, inner, columns) in [
        (1, 1, 1),
        (1, 9, 17),
        (3, 5, 8),
        (4, 16, 16),
        (7, 11, 13),
        (9, 3, 24),
    ] {
        let (left, weights) = (some(rows * inner), some(inner * columns));
        let mut expected = vec![0.0; rows * columns];
        for row in 0..rows {
            for column in 0..columns {
                let products = (0..inner).map(|at| left[row * inner + at] * weights[at * columns + column]);
                expected[row * columns + column] = products.sum();
            }
        }
        let operator = made(&format!("matmul {inner} {columns}"), weights);
        assert_eq!(operator.run(left), Ok(expected), "{rows}x{inner}x{columns}");
    }
}

/// By the definition: for each output pixel, the sum over what its window covers.
fn convolved(shape: &Geometry, weights: &[f32], input: &[f32]) -> Vec<f32> {
    let (side, kernel, out_side) = (shape.side, shape.kernel, shape.out_side());
    let per_group = (
        shape.channels_in / shape.groups,
        shape.channels_out / shape.groups,
    );
    let mut out = Vec::new();
    for channel in 0..shape.channels_out {
        let first = channel / per_group.1 * per_group.0;
        for pixel in 0..out_side * out_side {
            let (row, column) = (pixel / out_side * shape.stride, pixel % out_side * shape.stride);
            let mut sum = 0.0;
            for from in 0..per_group.0 {
                for tap in 0..kernel * kernel {
                    let (y, x) = (row + tap / kernel, column + tap % kernel);
                    let inside = |at: usize| (kernel / 2..kernel / 2 + side).contains(&at);
                    if inside(y) && inside(x) {
                        let (y, x) = (y - kernel / 2, x - kernel / 2);
                        let weight = weights[(channel * per_group.0 + from) * kernel * kernel + tap];
                        sum += weight * input[((first + from) * side + y) * side + x];
                    }
                }
            }
            out.push(sum);
        }
    }
    out
}

#[test]
fn convolutions_are_those_of_the_definition() {
    for (channels_in, channels_out, side, kernel, stride, groups) in [
        (1, 1, 1, 1, 1, 1),
        (3, 5, 7, 3, 1, 1),
        (4, 8, 9, 1, 1, 1),
        (4, 6, 8, 3, 2, 2),
        (6, 6, 5, 3, 1, 6),
        (2, 3, 6, 5, 2, 1),
        (3, 4, 11, 7, 3, 1),
    ] {
        let shape = Geometry {
            channels_in,
            channels_out,
            side,
            kernel,
            stride,
            groups,
        };
        let weights = some(channels_out * channels_in / groups * kernel * kernel);
        let input = some(channels_in * side * side);
        let expected = convolved(&shape, &weights, &input);
        let described = format!("conv {channels_in} {channels_out} {side} {kernel} {stride} {groups}");
        assert_eq!(made(&described, weights).run(input), Ok(expected), "{described}");
    }
}

#[test]
fn elements_are_cut_at_zero_and_added() {
    for count in [1, 4, 7, 64] {
        let cut: Vec<f32> = some(count).into_iter().map(|number| number.max(0.0)).collect();
        assert_eq!(made("relu", Vec::new()).run(some(count)), Ok(cut));
        let twice: Vec<f32> = some(count).into_iter().map(|number| 2.0 * number).collect();
        assert_eq!(
            made("add", Vec::new()).run([some(count), some(count)].concat()),
            Ok(twice)
        );
    }
    let nothing = made("relu", Vec::new()).run(vec![f32::NAN; 5]).unwrap();
    assert!(nothing.into_iter().all(f32::is_nan));
}

#[test]
fn what_does_not_fit_is_refused_and_named() {
    let refused = |described: &str, weights| Operator::read(described, weights).err().unwrap();
    assert_eq!(
        refused("matmul 3 4", some(11)),
        "weights: 11 numbers instead of 12"
    );
    assert_eq!(
        refused("matmul 0 4", Vec::new()),
        "`0` is not a size from 1 to 65536"
    );
    assert_eq!(
        refused("conv 3 4 8 3 1 2", some(1)),
        "3 and 4 channels are not multiples of 2 groups"
    );
    assert_eq!(
        refused("conv 65536 65536 65536 65536 1 1", some(1)),
        format!("weights: 1 numbers instead of {}", u64::MAX)
    );
    assert!(refused("softmax", Vec::new()).starts_with("`softmax` is none of"));
    let product = made("matmul 3 4", some(12));
    assert_eq!(product.run(some(4)), Err("4 numbers are not rows of 3".into()));
    let convolution = made("conv 1 1 4 3 1 1", some(9));
    assert_eq!(
        convolution.run(some(15)),
        Err("the input: 15 numbers instead of 16".into())
    );
    assert_eq!(
        made("add", Vec::new()).run(some(3)),
        Err("3 numbers are not two halves".into())
    );
}
