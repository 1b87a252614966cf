//! A program while it is written: kernels are changed as long as only the next one reads what they make.

use karman_gpu::{
    Activation, Call, Convolution, Gemm, GpuError, Kernel, Map, Plan, Program, Role, Step, Words,
};

/// A slot of a program that is not finished: how many constants there will be is not known yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Slot {
    Constant(usize),
    Input(usize),
    /// What this call makes: all of them have one output.
    Made(usize),
}

/// The most steps of one map, and the most slots that one reads.
const MOST_STEPS: usize = 16;
const MOST_READ: usize = 5;

#[derive(Default)]
pub(super) struct Draft {
    constants: Vec<Vec<f32>>,
    /// Words of each.
    inputs: Vec<usize>,
    calls: Vec<Made>,
}

struct Made {
    kernel: Kernel,
    inputs: Vec<Slot>,
    words: usize,
    /// Whether at most one reads it: then it may be changed with that.
    alone: bool,
}

impl Draft {
    pub(super) fn constant(&mut self, values: Vec<f32>) -> Slot {
        self.constants.push(values);
        Slot::Constant(self.constants.len() - 1)
    }

    pub(super) fn input(&mut self, words: usize) -> Slot {
        self.inputs.push(words);
        Slot::Input(self.inputs.len() - 1)
    }

    /// One kernel more.
    ///
    /// # Errors
    /// When its shape means nothing.
    pub(super) fn call(&mut self, kernel: Kernel, inputs: Vec<Slot>) -> Result<Slot, GpuError> {
        let arguments = kernel.arguments()?;
        let made = arguments.iter().find(|argument| argument.role == Role::Output);
        self.calls.push(Made {
            words: made.map_or(0, |made| made.words),
            kernel,
            inputs,
            alone: true,
        });
        Ok(Slot::Made(self.calls.len() - 1))
    }

    /// Words of a slot.
    pub(super) fn words(&self, slot: Slot) -> usize {
        match slot {
            Slot::Constant(at) => self.constants[at].len(),
            Slot::Input(at) => self.inputs[at],
            Slot::Made(at) => self.calls[at].words,
        }
    }

    /// More than one reads it, or it is given back: it stays as it is.
    pub(super) fn keep(&mut self, slot: Slot) {
        if let Slot::Made(at) = slot {
            self.calls[at].alone = false;
        }
    }

    /// The call that makes a slot which only the next one reads.
    fn alone(&mut self, slot: Slot) -> Option<&mut Made> {
        match slot {
            Slot::Made(at) if self.calls[at].alone => Some(&mut self.calls[at]),
            _ => None,
        }
    }

    /// Does these steps to every element, by the kernel that makes them where that can.
    ///
    /// # Errors
    /// When a number of theirs is none.
    pub(super) fn steps(&mut self, slot: Slot, steps: &[Step]) -> Result<Slot, GpuError> {
        let is_relu = steps == [Step::Relu];
        if let Some(made) = self.alone(slot) {
            match &mut made.kernel {
                Kernel::Map(map) if map.steps.len() + steps.len() <= MOST_STEPS => {
                    map.steps.extend_from_slice(steps);
                    return Ok(slot);
                }
                Kernel::Convolution(Convolution { activation, .. })
                | Kernel::Gemm(Gemm { activation, .. })
                    if is_relu && *activation == Activation::None =>
                {
                    *activation = Activation::Relu;
                    return Ok(slot);
                }
                _ => {}
            }
        }
        let kernel = self.map(slot, steps.to_vec());
        self.call(kernel, vec![slot])
    }

    /// A step on the elements of two slots of the same length: [`Step::Add`] or [`Step::Multiply`].
    ///
    /// # Errors
    /// When there is too much of it.
    pub(super) fn combine(&mut self, one: Slot, other: Slot, step: Step) -> Result<Slot, GpuError> {
        for (one, other) in [(one, other), (other, one)] {
            if self.append(one, other, step) {
                return Ok(one);
            }
        }
        let kernel = self.map(one, vec![step]);
        self.call(kernel, vec![one, other])
    }

    /// Whether the map that makes `one` takes the step over: the other slot has to be there before it.
    fn append(&mut self, one: Slot, other: Slot, step: Step) -> bool {
        let before = match (one, other) {
            (Slot::Made(one), Slot::Made(other)) => other < one,
            _ => true,
        };
        let Some(made) = self.alone(one).filter(|_| before) else {
            return false;
        };
        match &mut made.kernel {
            Kernel::Map(map) if map.steps.len() < MOST_STEPS && made.inputs.len() < MOST_READ => {
                map.steps.push(step);
                made.inputs.push(other);
                true
            }
            _ => false,
        }
    }

    /// Multiplies each channel of a convolution that gives these sizes by a factor and adds a shift, by other weights; where that cannot
    /// be, it says so.
    pub(super) fn scale_channels(
        &mut self,
        slot: Slot,
        dims: &[u32],
        factors: &[f32],
        shifts: &[f32],
    ) -> bool {
        let Slot::Made(at) = slot else { return false };
        let Made {
            kernel: Kernel::Convolution(shape),
            inputs,
            alone: true,
            ..
        } = &mut self.calls[at]
        else {
            return false;
        };
        let filters = shape.filters as usize;
        let gives = [shape.batch, shape.filters, shape.out_height(), shape.out_width()];
        let plain = shape.activation == Activation::None;
        if !plain || dims != gives || factors.len() != filters || shifts.len() != filters {
            return false;
        }
        let Some(Slot::Constant(weights)) = inputs.get(1).copied() else {
            return false;
        };
        let taps = self.constants[weights].len() / filters;
        for (weights, factor) in self.constants[weights].chunks_mut(taps).zip(factors) {
            weights.iter_mut().for_each(|weight| *weight *= factor);
        }
        match inputs.get(2).copied() {
            Some(Slot::Constant(bias)) => {
                let changes = factors.iter().zip(shifts);
                for (bias, (factor, shift)) in self.constants[bias].iter_mut().zip(changes) {
                    *bias = *bias * factor + shift;
                }
            }
            _ => {
                shape.bias = true;
                inputs.push(Slot::Constant(self.constants.len()));
                self.constants.push(shifts.to_vec());
            }
        }
        true
    }

    /// Adds the same to every row of a product of matrices, where it has no bias yet; where that cannot be, it says so.
    pub(super) fn add_to_rows(&mut self, slot: Slot, bias: &[f32]) -> bool {
        let constant = Slot::Constant(self.constants.len());
        let Some(made) = self.alone(slot) else {
            return false;
        };
        match &mut made.kernel {
            Kernel::Gemm(shape)
                if !shape.bias && shape.activation == Activation::None && shape.n as usize == bias.len() =>
            {
                shape.bias = true;
                made.inputs.push(constant);
            }
            _ => return false,
        }
        self.constants.push(bias.to_vec());
        true
    }

    fn map(&self, slot: Slot, steps: Vec<Step>) -> Kernel {
        // What 32 bits do not count is longer than any array may be, and refused.
        let length = u32::try_from(self.words(slot)).unwrap_or(u32::MAX);
        Kernel::Map(Map { length, steps })
    }

    /// The program that gives these slots back.
    ///
    /// # Errors
    /// When it is too large.
    pub(super) fn finish(mut self, outputs: &[Slot]) -> Result<Program, GpuError> {
        let mut given = Vec::with_capacity(outputs.len());
        for slot in outputs {
            given.push(match slot {
                Slot::Made(_) => *slot,
                // Only what a call makes is given back.
                _ => {
                    let kernel = self.map(*slot, Vec::new());
                    self.call(kernel, vec![*slot])?
                }
            });
        }
        let (constants, inputs) = (self.constants.len(), self.inputs.len());
        let number = |slot: &Slot| match slot {
            Slot::Constant(at) => *at,
            Slot::Input(at) => constants + at,
            Slot::Made(at) => constants + inputs + at,
        };
        let calls = self.calls.into_iter().map(|made| Call {
            inputs: made.inputs.iter().map(number).collect(),
            kernel: made.kernel,
        });
        let plan = Plan {
            constants: self.constants.iter().map(Vec::len).collect(),
            inputs: self.inputs,
            calls: calls.collect(),
            outputs: given.iter().map(number).collect(),
        };
        let words = |values: Vec<f32>| -> Words { values.into_iter().map(f32::to_bits).collect() };
        Program::new(plan, self.constants.into_iter().map(words).collect())
    }
}
