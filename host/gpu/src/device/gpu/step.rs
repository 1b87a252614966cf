use super::compile::{Compiled, Key, Source, compile};
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
        let key = Key::new(&source, "main", writable, true);
        let compiled = self.compiled(source, key)?;
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
        let text = format!("{} loops\n{}", shader.loops, shader.wgsl);
        let source = Source::Theirs(text, Box::new(checked.module));
        let key = Key::new(&source, &shader.entry, checked.writable, false);
        let compiled = self.compiled(source, key)?;
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

    /// The shader, compiled unless it was before.
    fn compiled(&mut self, source: Source, key: Key) -> Result<Compiled, GpuError> {
        if let Some(compiled) = self.compiler.find(&key) {
            return Ok(compiled);
        }
        let compiled = compile(&self.device, source, &key);
        self.fine()?;
        self.compiler.keep(key, compiled.clone());
        Ok(compiled)
    }
}
