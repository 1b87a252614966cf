//! A program on a GPU: one submission and one reading back, whatever the number of its kernels.

use super::pool::Pool;
use super::step::Step;
use super::{Wgpu, bytes};
use crate::device::kept::{Kept, RunPrograms};
use crate::error::GpuError;
use crate::kernel::Words;
use crate::program::{Program, check_lengths};
use std::time::Duration;
use wgpu::{BufferUsages, PollType};

/// A program whose constants and buffers are on the device, and whose shaders are compiled.
pub(crate) struct Ready {
    /// Words of each input.
    takes: Vec<usize>,
    inputs: Vec<wgpu::Buffer>,
    /// With their words.
    outputs: Vec<(wgpu::Buffer, usize)>,
    stretches: Vec<Stretch>,
}

/// Dispatches that follow each other with nothing in between.
struct Stretch {
    /// Buffers that are cleared before it.
    cleared: Vec<wgpu::Buffer>,
    steps: Vec<Step>,
}

impl RunPrograms for Wgpu {
    type Ready = Ready;

    fn programs(&mut self) -> &mut Kept<Ready> {
        &mut self.programs
    }

    fn let_go(&mut self) {
        self.pool = Pool::default();
        self.programs.clear();
        // What nobody holds any more is given back to the driver when it is polled.
        let _ = self.device.poll(PollType::Poll);
    }

    fn make_ready(&mut self, program: &Program) -> Result<Ready, GpuError> {
        let (plan, layout) = (program.plan(), program.layout());
        let most = self.info.most_buffer;
        if let Some(words) = layout.buffers.iter().find(|words| bytes(**words) > most) {
            return Err(GpuError::Memory {
                what: "a buffer of the program".into(),
                asked: bytes(*words),
                most,
            });
        }
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let take = |words: &usize| self.pool.take(&self.device, bytes(*words), usage);
        let buffers: Vec<wgpu::Buffer> = layout.buffers.iter().map(take).collect();
        // The first of them, one for one.
        for (buffer, words) in buffers.iter().zip(program.constants()) {
            self.queue.write_buffer(buffer, 0, bytemuck::cast_slice(words));
        }
        self.queue.submit(std::iter::empty());
        self.fine()?;
        let mut stretches: Vec<Stretch> = Vec::new();
        for (call, bound) in plan.calls.iter().zip(&layout.calls) {
            let bound: Vec<wgpu::Buffer> = bound.iter().map(|buffer| buffers[*buffer].clone()).collect();
            let mut steps = Vec::new();
            for pass in self.passes(&call.kernel)? {
                steps.push(self.step(&pass, &bound)?);
            }
            match stretches.last_mut() {
                Some(stretch) if call.kernel.fills() => stretch.steps.append(&mut steps),
                _ => stretches.push(Stretch {
                    cleared: match call.kernel.fills() {
                        true => Vec::new(),
                        false => bound[call.inputs.len()..].to_vec(),
                    },
                    steps,
                }),
            }
        }
        let inputs = buffers[plan.constants.len()..][..plan.inputs.len()].to_vec();
        let outputs = plan.outputs.iter();
        let outputs = outputs.map(|slot| (buffers[layout.slots[*slot]].clone(), layout.words_of(*slot)));
        Ok(Ready {
            takes: plan.inputs.clone(),
            inputs,
            outputs: outputs.collect(),
            stretches,
        })
    }

    fn run_ready(
        &mut self,
        ready: &mut Ready,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Result<Vec<Words>, GpuError> {
        check_lengths("inputs", &ready.takes, inputs)?;
        for (buffer, words) in ready.inputs.iter().zip(inputs) {
            self.queue.write_buffer(buffer, 0, bytemuck::cast_slice(words));
        }
        let mut encoder = self.device.create_command_encoder(&Default::default());
        for stretch in &ready.stretches {
            // A buffer that is used again still holds what was in it.
            for buffer in &stretch.cleared {
                encoder.clear_buffer(buffer, 0, None);
            }
            let mut compute = encoder.begin_compute_pass(&Default::default());
            stretch.steps.iter().for_each(|step| step.dispatch(&mut compute));
        }
        let staging = self.stage(&mut encoder, &ready.outputs);
        self.queue.submit([encoder.finish()]);
        self.fetch(staging, within)
    }
}
