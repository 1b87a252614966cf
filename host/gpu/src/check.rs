//! Whether a device computes what it should: every kernel, over awkward shapes, against a reference in double precision.

mod matrix;

pub use matrix::matrix;

use crate::device::{Device, Work};
use crate::error::GpuError;
use crate::kernel::{Element, Kernel, Normalise, Quantised, Role, Words, f16_words, f32_words};
use std::time::Duration;

/// The result of checking one kernel.
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

/// The inputs of a kernel, drawn from a seed: numbers of either sign, none of them special but those of a row that is masked.
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
    if let Kernel::Norm(shape) = kernel
        && shape.normalise == Normalise::Softmax
        && shape.rows > 1
    {
        // What a mask leaves nothing of: all of it weighs the same.
        let masked = inputs[0].len() - shape.columns as usize;
        inputs[0][masked..].fill(f32::MIN.to_bits());
    }
    if let Kernel::Gather(shape) = kernel {
        // From either end.
        let number = |word: &mut u32| *word = (*word % (2 * shape.rows)).wrapping_sub(shape.rows);
        inputs[1].iter_mut().for_each(number);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Cpu, DeviceInfo, Done};
    use crate::kernel::{Encode, Format};

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
