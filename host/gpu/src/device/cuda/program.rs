//! A program on a CUDA device: its constants stay there, and nothing is copied between its kernels.

use super::Cuda;
use super::driver::{Buffer, Step};
use crate::device::kept::{Kept, RunPrograms};
use crate::error::GpuError;
use crate::kernel::Words;
use crate::program::{Program, check_lengths};
use std::time::Duration;

/// A program whose constants and buffers are on the device, and whose kernels are compiled.
pub(crate) struct Ready {
    /// Words of each input.
    takes: Vec<usize>,
    /// All its buffers: first those of the constants, then those of the inputs.
    buffers: Vec<Buffer>,
    /// The buffer of the first input.
    first_input: usize,
    calls: Vec<ReadyCall>,
    /// The buffer of each output, and its words.
    outputs: Vec<(usize, usize)>,
}

/// One kernel of a program.
struct ReadyCall {
    /// The buffers of its arguments.
    bound: Vec<usize>,
    /// Those that are cleared before it: it does not write every word of them.
    cleared: Vec<usize>,
    steps: Vec<Step>,
}

impl RunPrograms for Cuda {
    type Ready = Ready;

    fn programs(&mut self) -> &mut Kept<Ready> {
        &mut self.programs
    }

    fn let_go(&mut self) {
        self.programs.clear();
    }

    fn make_ready(&mut self, program: &Program) -> Result<Ready, GpuError> {
        let (plan, layout) = (program.plan(), program.layout());
        self.has_room(
            layout
                .buffers
                .iter()
                .map(|words| ("a buffer of the program", *words)),
        )?;
        let mut calls = Vec::with_capacity(plan.calls.len());
        for (call, bound) in plan.calls.iter().zip(&layout.calls) {
            calls.push(ReadyCall {
                bound: bound.clone(),
                cleared: match call.kernel.fills() {
                    true => Vec::new(),
                    false => bound[call.inputs.len()..].to_vec(),
                },
                steps: self.steps(&call.kernel)?,
            });
        }
        // The constants come first, one for one.
        let buffer = |(place, words): (usize, &usize)| match program.constants().get(place) {
            Some(constant) => self.driver.holding(constant),
            None => self.driver.zeros(*words),
        };
        let buffers = layout.buffers.iter().enumerate().map(buffer);
        let outputs = plan.outputs.iter();
        let outputs = outputs.map(|slot| (layout.slots[*slot], layout.words_of(*slot)));
        Ok(Ready {
            takes: plan.inputs.clone(),
            buffers: buffers.collect::<Result<_, _>>()?,
            first_input: plan.constants.len(),
            calls,
            outputs: outputs.collect(),
        })
    }

    fn run_ready(
        &mut self,
        ready: &mut Ready,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Result<Vec<Words>, GpuError> {
        check_lengths("inputs", &ready.takes, inputs)?;
        for (buffer, words) in ready.buffers[ready.first_input..].iter_mut().zip(inputs) {
            self.driver.write(buffer, words)?;
        }
        for call in &ready.calls {
            for buffer in &call.cleared {
                self.driver.clear(&mut ready.buffers[*buffer])?;
            }
            let arguments: Vec<&Buffer> = call.bound.iter().map(|buffer| &ready.buffers[*buffer]).collect();
            for step in &call.steps {
                self.driver.begin(step, &arguments)?;
            }
        }
        self.driver.wait(within)?;
        let outputs = ready.outputs.iter();
        let outputs: Vec<_> = outputs
            .map(|(buffer, words)| (&ready.buffers[*buffer], *words))
            .collect();
        self.driver.read(&outputs)
    }
}
