//! The shapes that are checked.

mod tensors;

use crate::kernel::{
    Accumulate, Activation, Attention, Convolution, Decode, Encode, Fold, Format, Gemm, IntegerGemm, Kernel,
    Map, Mask, Norm, Normalise, Padding, Pool, QuantisedGemm, Reduce, Sides, Step, TopK, Window,
};

/// Of which no two sides are alike.
const UNEVEN: Padding = Padding {
    top: 0,
    left: 1,
    bottom: 3,
    right: 2,
};

/// The shapes that are checked: of every kernel the plain one, the odd ones, the strided and the least.
pub fn matrix() -> Vec<Kernel> {
    let mut all = products();
    all.extend(quantised());
    all.extend(convolutions());
    all.extend(pools());
    all.extend(attentions());
    all.extend(norms());
    all.extend(arrays());
    all.extend(tensors::pairs());
    all.extend(tensors::orders());
    all.extend(tensors::batches());
    all
}

fn products() -> Vec<Kernel> {
    let plain = |m, n, k| Gemm {
        m,
        n,
        k,
        ..Gemm::default()
    };
    let gemm = [
        plain(1, 1, 1),
        plain(64, 64, 64),
        plain(65, 67, 129),
        plain(7, 300, 33),
        plain(1, 500, 777),
        plain(3, 65, 70),
        Gemm {
            transposed: true,
            ..plain(33, 50, 41)
        },
        Gemm {
            transposed: true,
            ..plain(1, 130, 257)
        },
        Gemm {
            a_stride: 50,
            b_stride: 99,
            ..plain(20, 90, 40)
        },
        Gemm {
            a_stride: 45,
            b_stride: 43,
            transposed: true,
            ..plain(20, 90, 40)
        },
        Gemm {
            bias: true,
            activation: Activation::Relu,
            ..plain(40, 48, 30)
        },
        Gemm {
            bias: true,
            activation: Activation::Silu,
            ..plain(2, 70, 30)
        },
    ];
    // Odd lengths and strides, so that rows begin within a word.
    let half = [
        plain(1, 1, 1),
        plain(64, 64, 64),
        plain(65, 67, 129),
        plain(1, 500, 777),
        plain(3, 65, 71),
        plain(2, 1101, 1001),
        Gemm {
            transposed: true,
            ..plain(2, 1101, 1001)
        },
        gemm[7].clone(),
        gemm[9].clone(),
        gemm[10].clone(),
        gemm[11].clone(),
    ];
    let half = half.map(|gemm| Gemm { half: true, ..gemm });
    let integer = [(1, 1, 4), (16, 16, 64), (17, 33, 100), (50, 3, 1028)];
    let integer = integer.map(|(m, n, k)| Kernel::IntegerGemm(IntegerGemm { m, n, k }));
    let gemm = gemm.into_iter().chain(half).map(Kernel::Gemm);
    gemm.chain(integer).collect()
}

fn quantised() -> Vec<Kernel> {
    let shapes = [
        (1, 1, 8, 8),
        (1, 64, 256, 128),
        (1, 77, 330, 128),
        (3, 30, 130, 32),
        (4, 64, 128, 64),
        (5, 64, 128, 128),
        (70, 65, 258, 128),
        (16, 130, 96, 32),
    ];
    let both =
        |(m, n, k, group)| [4, 8].map(|bits| Kernel::QuantisedGemm(QuantisedGemm { m, n, k, group, bits }));
    // More rows of weights than one dimension of workgroups holds.
    let long = both((1, 262_145, 8, 8)).into_iter().take(1);
    shapes.into_iter().flat_map(both).chain(long).collect()
}

fn convolutions() -> Vec<Kernel> {
    let plain = Convolution {
        batch: 1,
        channels: 3,
        height: 17,
        width: 19,
        filters: 16,
        kernel_height: 3,
        kernel_width: 3,
        stride: Sides::both(1),
        padding: Padding::all(1),
        dilation: Sides::both(1),
        groups: 1,
        bias: false,
        activation: Activation::None,
    };
    // Other for rows than for columns, and other on each side.
    let uneven = Convolution {
        batch: 2,
        kernel_width: 5,
        stride: Sides { rows: 2, columns: 1 },
        padding: UNEVEN,
        dilation: Sides { rows: 1, columns: 3 },
        ..plain.clone()
    };
    let all = [
        plain.clone(),
        Convolution {
            batch: 2,
            filters: 5,
            padding: Padding::all(0),
            ..plain.clone()
        },
        Convolution {
            batch: 2,
            stride: Sides::both(2),
            kernel_height: 5,
            kernel_width: 1,
            padding: Padding::all(2),
            ..plain.clone()
        },
        Convolution {
            dilation: Sides::both(2),
            padding: Padding::all(2),
            ..plain.clone()
        },
        Convolution {
            channels: 8,
            filters: 8,
            groups: 8,
            stride: Sides::both(2),
            ..plain.clone()
        },
        Convolution {
            channels: 6,
            filters: 9,
            groups: 3,
            ..plain.clone()
        },
        Convolution {
            channels: 20,
            filters: 33,
            kernel_height: 1,
            kernel_width: 1,
            padding: Padding::all(0),
            ..plain.clone()
        },
        uneven.clone(),
        Convolution {
            filters: 6,
            groups: 3,
            ..uneven
        },
        Convolution {
            batch: 2,
            bias: true,
            activation: Activation::Relu,
            ..plain.clone()
        },
        Convolution {
            batch: 2,
            channels: 6,
            filters: 9,
            groups: 3,
            bias: true,
            activation: Activation::Silu,
            ..plain
        },
    ];
    all.map(Kernel::Convolution).into()
}

fn attentions() -> [Kernel; 5] {
    let attention = |heads, key_heads, queries, keys, width, causal| {
        Kernel::Attention(Attention {
            heads,
            key_heads,
            queries,
            keys,
            width,
            causal,
        })
    };
    [
        attention(1, 0, 1, 1, 1, false),
        attention(2, 0, 5, 130, 64, false),
        attention(4, 2, 33, 33, 40, true),
        attention(3, 1, 2, 200, 65, true),
        attention(1, 0, 3, 70, 256, false),
    ]
}

fn norms() -> Vec<Kernel> {
    let mut norms = Vec::new();
    for normalise in [Normalise::Softmax, Normalise::Layer, Normalise::RootMeanSquare] {
        for (rows, columns) in [(1, 1), (5, 256), (33, 100), (2, 1000)] {
            norms.push(Kernel::Norm(Norm {
                normalise,
                rows,
                columns,
                epsilon_millionths: 10,
            }));
        }
    }
    norms
}

fn pools() -> Vec<Kernel> {
    let plain = Pool {
        window: Window::Max,
        planes: 6,
        height: 17,
        width: 19,
        kernel_height: 3,
        kernel_width: 3,
        stride: Sides::both(2),
        padding: Padding::all(0),
        dilation: Sides::both(1),
        counts_padding: false,
    };
    let shapes = [
        plain.clone(),
        Pool {
            padding: Padding::all(1),
            ..plain.clone()
        },
        Pool {
            kernel_height: 2,
            kernel_width: 5,
            stride: Sides::both(1),
            padding: Padding::all(1),
            ..plain.clone()
        },
        Pool {
            kernel_height: 4,
            stride: Sides { rows: 1, columns: 3 },
            padding: UNEVEN,
            ..plain.clone()
        },
        Pool {
            planes: 70,
            kernel_height: 17,
            kernel_width: 19,
            ..plain.clone()
        },
        Pool {
            dilation: Sides::both(2),
            padding: Padding::all(2),
            ..plain.clone()
        },
        Pool {
            kernel_width: 5,
            stride: Sides { rows: 1, columns: 2 },
            dilation: Sides { rows: 4, columns: 3 },
            padding: UNEVEN,
            ..plain
        },
    ];
    let means = shapes.clone().map(|pool| Pool {
        window: Window::Mean,
        ..pool
    });
    let counted = [1, 3].map(|number: usize| Pool {
        counts_padding: true,
        ..means[number].clone()
    });
    let all = shapes.into_iter().chain(means).chain(counted);
    all.map(Kernel::Pool).collect()
}

fn arrays() -> Vec<Kernel> {
    let mut all = Vec::new();
    for fold in [
        Fold::Sum,
        Fold::Max,
        Fold::Min,
        Fold::SumOfSquares,
        Fold::MaxMagnitude,
    ] {
        for (rows, columns) in [(1, 1), (7, 1000), (300, 3), (2, 50_001)] {
            all.push(Kernel::Reduce(Reduce { fold, rows, columns }));
        }
    }
    let chains = [
        vec![],
        vec![Step::Scale(0.5), Step::Offset(-0.25), Step::Relu],
        vec![Step::Add, Step::Gelu, Step::Multiply, Step::Tanh],
        vec![Step::Silu, Step::Abs, Step::Sigmoid, Step::Exp],
        vec![Step::AtLeast(-0.5), Step::AtMost(0.75), Step::Scale(2.0)],
        vec![Step::Scale(2.0), Step::Erf],
        vec![Step::Abs, Step::SquareRoot],
    ];
    for (chain, length) in chains.into_iter().zip([1, 1000, 4099, 257, 333, 5000, 1000]) {
        all.push(Kernel::Map(Map { length, steps: chain }));
    }
    // More workgroups than one dimension holds.
    all.push(Kernel::Reduce(Reduce {
        fold: Fold::Sum,
        rows: 70_001,
        columns: 2,
    }));
    for (length, updates) in [(1, 1), (1001, 3), (5000, 8)] {
        all.push(Kernel::Accumulate(Accumulate { length, updates }));
    }
    for format in [Format::F16, Format::Int8] {
        for (rows, columns) in [(1, 1), (3, 101), (40, 64), (1, 5001)] {
            all.push(Kernel::Encode(Encode {
                format,
                rows,
                columns,
            }));
            all.push(Kernel::Decode(Decode {
                format,
                rows,
                columns,
            }));
        }
    }
    for (length, keep) in [(1, 1), (300, 300), (1000, 10), (16_385, 16_384), (100_003, 1000)] {
        all.push(Kernel::TopK(TopK { length, keep }));
    }
    for (length, subtract) in [(1, false), (16, true), (100_003, false)] {
        all.push(Kernel::Mask(Mask { length, subtract }));
    }
    all
}
