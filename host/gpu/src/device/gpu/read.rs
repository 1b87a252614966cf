//! The way back: buffers of the device copied to where this process reads them.

use super::{Wgpu, bytes};
use crate::error::GpuError;
use crate::kernel::Words;
use std::time::Duration;
use wgpu::BufferUsages;

/// A copy that this process can read, and how many bytes of it there are.
pub(super) type Staged = (wgpu::Buffer, u64);

impl Wgpu {
    /// Has each of these buffers, of this many words, copied at the end of what the encoder holds.
    pub(super) fn stage(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        outputs: &[(wgpu::Buffer, usize)],
    ) -> Vec<Staged> {
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let mut staging = Vec::with_capacity(outputs.len());
        for (buffer, words) in outputs {
            let bytes = bytes(*words);
            let copy = self.pool.take(&self.device, bytes, usage);
            encoder.copy_buffer_to_buffer(buffer, 0, &copy, 0, bytes);
            staging.push((copy, bytes));
        }
        staging
    }

    /// Waits for what was submitted and reads the copies.
    pub(super) fn fetch(&mut self, staging: Vec<Staged>, within: Duration) -> Result<Vec<Words>, GpuError> {
        for (copy, bytes) in &staging {
            // What goes wrong here is seen when the range is asked for.
            copy.slice(..*bytes).map_async(wgpu::MapMode::Read, |_| {});
        }
        self.wait(within)?;
        let mut all = Vec::with_capacity(staging.len());
        for (copy, bytes) in staging {
            let view = copy.slice(..bytes).get_mapped_range();
            let view = view.map_err(|error| GpuError::Lost(error.to_string()))?;
            all.push(
                view.as_chunks::<4>()
                    .0
                    .iter()
                    .map(|word| u32::from_le_bytes(*word))
                    .collect(),
            );
            drop(view);
            copy.unmap();
            self.pool.give_back(copy);
        }
        Ok(all)
    }
}
