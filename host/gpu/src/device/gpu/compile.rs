use std::borrow::Cow;
use std::collections::HashMap;
use wgpu::{
    BindGroupLayout, BindGroupLayoutEntry, BindingType, BufferBindingType, ComputePipeline, Device,
    ShaderModule, ShaderModuleDescriptor, ShaderSource, ShaderStages,
};

/// A shader as a device runs it.
#[derive(Clone)]
pub(super) struct Compiled {
    pub(super) pipeline: ComputePipeline,
    pub(super) layout: BindGroupLayout,
}

/// Where a shader comes from.
pub(super) enum Source {
    /// From `shaders/`.
    Ours(String),
    /// From a plugin, checked; with a text that no other has which is laid out alike.
    Theirs(String, Box<naga::Module>),
}

/// Compiled shaders, kept for the next time.
#[derive(Default)]
pub(super) struct Compiler {
    compiled: HashMap<Key, Compiled>,
}

/// What a compiled shader depends on.
#[derive(Eq, Hash, PartialEq)]
struct Key {
    text: String,
    entry: String,
    has_parameters: bool,
    /// A plugin's text does not have to name all of its buffers, and where its flag is bound follows from their number.
    writable: Vec<bool>,
}

/// Shaders that are kept; one more drops all.
const MOST_KEPT: usize = 128;

impl Compiler {
    /// The shader, compiled unless it was before. Binding 0 is a uniform block where `has_parameters`; then comes a buffer for each of
    /// `writable`, which says whether it is written. Errors come by the device's handler.
    pub(super) fn compile(
        &mut self,
        device: &Device,
        source: Source,
        entry: &str,
        writable: Vec<bool>,
        has_parameters: bool,
    ) -> Compiled {
        let (Source::Ours(text) | Source::Theirs(text, _)) = &source;
        let key = Key {
            text: text.clone(),
            entry: entry.into(),
            has_parameters,
            writable,
        };
        if let Some(compiled) = self.compiled.get(&key) {
            return compiled.clone();
        }
        let first = usize::from(has_parameters);
        let parameters = has_parameters.then(|| binding(0, BufferBindingType::Uniform));
        let storage = |(number, writable): (usize, &bool)| {
            let read_only = !writable;
            binding(first + number, BufferBindingType::Storage { read_only })
        };
        let storage = key.writable.iter().enumerate().map(storage);
        let entries: Vec<_> = parameters.into_iter().chain(storage).collect();
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &entries,
        });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        });
        let module = module(device, source);
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(entry),
            compilation_options: Default::default(),
            cache: None,
        });
        let compiled = Compiled { pipeline, layout };
        if self.compiled.len() >= MOST_KEPT {
            self.compiled.clear();
        }
        self.compiled.insert(key, compiled.clone());
        compiled
    }

    /// Forgets what did not compile.
    pub(super) fn forget(&mut self) {
        self.compiled.clear();
    }
}

const fn binding(number: usize, ty: BufferBindingType) -> BindGroupLayoutEntry {
    BindGroupLayoutEntry {
        binding: number as u32,
        visibility: ShaderStages::COMPUTE,
        ty: BindingType::Buffer {
            ty,
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}

#[expect(unsafe_code, reason = "our own shaders go without run-time checks")]
fn module(device: &Device, source: Source) -> ShaderModule {
    match source {
        Source::Theirs(_, module) => device.create_shader_module(ShaderModuleDescriptor {
            label: None,
            source: ShaderSource::Naga(Cow::Owned(*module)),
        }),
        Source::Ours(wgsl) => {
            let descriptor = ShaderModuleDescriptor {
                label: None,
                source: ShaderSource::Wgsl(wgsl.into()),
            };
            // SAFETY: the shaders of `shaders/` are part of this program. Each compares every index with the lengths that
            // `Kernel::arguments` gives its buffers, whose product is bounded by `check`; their loops are bounded by the same.
            unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
        }
    }
}
