use super::compile::{Compiled, Source};
use super::{Wgpu, bytes};
use crate::error::GpuError;
use crate::kernel::Pass;
use crate::shader::{Checked, Shader};
use wgpu::BufferUsages;

/// One dispatch.
pub(super) struct Step {
    pub(super) compiled: Compiled,
    pub(super) bindings: wgpu::BindGroup,
    pub(super) workgroups: [u32; 3],
    /// Kept until the device has read it.
    _parameters: Option<wgpu::Buffer>,
}

impl Step {
    /// Adds it to what a pass does.
    pub(super) fn dispatch(&self, compute: &mut wgpu::ComputePass<'_>) {
        let [x, y, z] = self.workgroups;
        compute.set_pipeline(&self.compiled.pipeline);
        compute.set_bind_group(0, &self.bindings, &[]);
        compute.dispatch_workgroups(x, y, z);
    }
}

impl Wgpu {
    /// A pass of one of our kernels.
    pub(super) fn step(&mut self, pass: &Pass, buffers: &[wgpu::Buffer]) -> Result<Step, GpuError> {
        let last = pass.bindings.len() - 1;
        let writable = (0..=last).map(|binding| binding == last).collect();
        let source = Source::Ours(pass.wgsl());
        let compiled = self
            .compiler
            .compile(&self.device, source, "main", writable, true);
        self.compiled()?;
        let mut parameters = pass.parameters.clone();
        parameters.resize(parameters.len().next_multiple_of(4), 0);
        let block = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(pass.name),
            size: bytes(parameters.len()),
            usage: BufferUsages::UNIFORM | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.queue
            .write_buffer(&block, 0, bytemuck::cast_slice(&parameters));
        let bound = pass.bindings.iter().map(|argument| &buffers[*argument]);
        let bindings = self.bind(&compiled, std::iter::once(&block).chain(bound));
        self.fine()?;
        Ok(Step {
            compiled,
            bindings,
            workgroups: pass.workgroups,
            _parameters: Some(block),
        })
    }

    /// A plugin's own shader.
    pub(super) fn own_step(
        &mut self,
        shader: &Shader,
        checked: Checked,
        buffers: &[wgpu::Buffer],
    ) -> Result<Step, GpuError> {
        let key = format!("{} loops\n{}", shader.loops, shader.wgsl);
        let source = Source::Theirs(key, Box::new(checked.module));
        let compiled = self
            .compiler
            .compile(&self.device, source, &shader.entry, checked.writable, false);
        self.compiled()?;
        let bindings = self.bind(&compiled, buffers.iter());
        self.fine()?;
        Ok(Step {
            compiled,
            bindings,
            workgroups: shader.workgroups,
            _parameters: None,
        })
    }

    fn bind<'a>(
        &self,
        compiled: &Compiled,
        buffers: impl Iterator<Item = &'a wgpu::Buffer>,
    ) -> wgpu::BindGroup {
        let entry = |(binding, buffer): (usize, &'a wgpu::Buffer)| wgpu::BindGroupEntry {
            binding: binding as u32,
            resource: buffer.as_entire_binding(),
        };
        let entries: Vec<_> = buffers.enumerate().map(entry).collect();
        self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &compiled.layout,
            entries: &entries,
        })
    }

    /// Whether the last shader compiled; one that did not is not kept.
    fn compiled(&mut self) -> Result<(), GpuError> {
        let fine = self.fine();
        if fine.is_err() {
            self.compiler.forget();
        }
        fine
    }
}
