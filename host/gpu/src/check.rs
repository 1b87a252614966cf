//! Whether a device computes what it should: every kernel, over awkward shapes, against a reference in double precision.

use crate::device::{Device, Work};
use crate::error::GpuError;
use crate::kernel::{
    Accumulate, Activation, Attention, Convolution, Decode, Element, Encode, Fold, Format, Gemm, IntegerGemm,
    Kernel, Map, Mask, Norm, Normalise, Quantised, QuantisedGemm, Reduce, Role, Step, TopK, Words, f16_words,
    f32_words,
};
use std::time::Duration;

/// How one kernel did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which, and in what shape.
    pub kernel: Kernel,
    /// The largest error over its scale, or why there is none.
    pub error: Result<f64, GpuError>,
}

impl Outcome {
    /// Whether it was right.
    pub fn holds(&self) -> bool {
        self.error
            .as_ref()
            .is_ok_and(|error| *error <= self.kernel.tolerance())
    }
}

/// Runs one kernel on inputs drawn from this seed and compares.
pub fn check(device: &mut dyn Device, kernel: &Kernel, seed: u64, within: Duration) -> Outcome {
    let error = inputs(kernel, seed).and_then(|inputs| compare(device, kernel, &inputs, within));
    Outcome {
        kernel: kernel.clone(),
        error,
    }
}

fn compare(
    device: &mut dyn Device,
    kernel: &Kernel,
    inputs: &[Words],
    within: Duration,
) -> Result<f64, GpuError> {
    let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
    let expected = kernel.reference(&inputs)?;
    let done = device.run(&Work::Kernel(kernel.clone()), &inputs, within)?;
    if done.outputs.len() != expected.len() {
        return Ok(f64::INFINITY);
    }
    let arguments = kernel.arguments()?;
    let outputs = arguments.iter().filter(|argument| argument.role == Role::Output);
    let errors = outputs.zip(&done.outputs).zip(&expected);
    Ok(errors
        .map(|((argument, words), expected)| expected.error(&argument.element.numbers(words)))
        .fold(0.0, f64::max))
}

/// The inputs of a kernel, drawn from a seed: numbers of either sign, none of them special.
///
/// # Errors
/// [`GpuError::Kernel`] when the shape means nothing.
pub fn inputs(kernel: &Kernel, seed: u64) -> Result<Vec<Words>, GpuError> {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let arguments = kernel.arguments()?;
    let wanted = arguments.iter().filter(|argument| argument.role == Role::Input);
    let mut inputs: Vec<Words> = wanted
        .map(|argument| match argument.element {
            Element::F32 => {
                let values: Vec<f32> = (0..argument.words).map(|_| draw.number()).collect();
                f32_words(&values)
            }
            Element::F16 => {
                let values: Vec<f32> = (0..2 * argument.words).map(|_| draw.number()).collect();
                f16_words(&values)
            }
            Element::I8 | Element::I32 | Element::U32 => (0..argument.words).map(|_| draw.bits()).collect(),
        })
        .collect();
    if let Kernel::QuantisedGemm(shape) = kernel {
        let weights: Vec<f32> = (0..shape.n as usize * shape.k as usize)
            .map(|_| draw.number())
            .collect();
        let packed = Quantised::from_f32(shape, &weights)?;
        inputs[1] = packed.weights;
        inputs[2] = packed.groups;
    }
    if let Kernel::TopK(_) = kernel {
        inputs.iter_mut().for_each(|words| coarsen(words));
    }
    Ok(inputs)
}

/// Every second number to a quarter: among equals their order decides.
fn coarsen(words: &mut [u32]) {
    for word in words.iter_mut().step_by(2) {
        *word = ((f32::from_bits(*word) * 4.0).round() / 4.0).to_bits();
    }
}

/// A small generator (Marsaglia's xorshift64*): what is checked must be the same everywhere.
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// From -2 to 2.
    fn number(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 22) as f32 - 2.0
    }
}

/// The shapes that are checked: of every kernel the plain one, the odd ones, the strided and the least.
pub fn matrix() -> Vec<Kernel> {
    let mut all = products();
    all.extend(quantised());
    all.extend(networks());
    all.extend(arrays());
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

fn networks() -> Vec<Kernel> {
    let plain = Convolution {
        batch: 1,
        channels: 3,
        height: 17,
        width: 19,
        filters: 16,
        kernel_height: 3,
        kernel_width: 3,
        stride: 1,
        padding: 1,
        dilation: 1,
        groups: 1,
    };
    let convolutions = [
        plain.clone(),
        Convolution {
            batch: 2,
            filters: 5,
            padding: 0,
            ..plain.clone()
        },
        Convolution {
            batch: 2,
            stride: 2,
            kernel_height: 5,
            kernel_width: 1,
            padding: 2,
            ..plain.clone()
        },
        Convolution {
            dilation: 2,
            padding: 2,
            ..plain.clone()
        },
        Convolution {
            channels: 8,
            filters: 8,
            groups: 8,
            stride: 2,
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
            padding: 0,
            ..plain
        },
    ];
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
    let attentions = [
        attention(1, 0, 1, 1, 1, false),
        attention(2, 0, 5, 130, 64, false),
        attention(4, 2, 33, 33, 40, true),
        attention(3, 1, 2, 200, 65, true),
        attention(1, 0, 3, 70, 256, false),
    ];
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
    convolutions
        .map(Kernel::Convolution)
        .into_iter()
        .chain(attentions)
        .chain(norms)
        .collect()
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
    ];
    for (chain, length) in chains.into_iter().zip([1, 1000, 4099, 257]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Cpu, DeviceInfo, Done};

    /// The processor, of whose outputs some are lost.
    struct Forgetful(Cpu, usize);

    impl Device for Forgetful {
        fn info(&self) -> &DeviceInfo {
            self.0.info()
        }

        fn run(&mut self, work: &Work, inputs: &[&[u32]], within: Duration) -> Result<Done, GpuError> {
            let mut done = self.0.run(work, inputs, within)?;
            done.outputs.truncate(self.1);
            Ok(done)
        }
    }

    #[test]
    fn a_device_that_answers_too_little_is_wrong() {
        let kernel = Kernel::Encode(Encode {
            format: Format::Int8,
            rows: 3,
            columns: 5,
        });
        let holds = |outputs| check(&mut Forgetful(Cpu::new(1), outputs), &kernel, 1, Duration::MAX).holds();
        assert_eq!([0, 1, 2].map(holds), [false, false, true]);
    }
}
