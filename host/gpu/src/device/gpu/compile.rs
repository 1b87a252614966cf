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
    /// Each with when it was last used.
    compiled: HashMap<Key, (u64, Compiled)>,
    used: u64,
}

/// What a compiled shader depends on.
#[derive(Clone, Eq, Hash, PartialEq)]
pub(super) struct Key {
    text: String,
    entry: String,
    has_parameters: bool,
    /// A plugin's text does not have to name all of its buffers, and where its flag is bound follows from their number.
    writable: Vec<bool>,
}

/// Shaders that are kept; one more drops the one that was not used for the longest.
const MOST_KEPT: usize = 128;

impl Key {
    /// Binding 0 is a uniform block where `has_parameters`; then comes a buffer for each of `writable`, which says whether it is written.
    pub(super) fn new(source: &Source, entry: &str, writable: Vec<bool>, has_parameters: bool) -> Self {
        let (Source::Ours(text) | Source::Theirs(text, _)) = source;
        Self {
            text: text.clone(),
            entry: entry.into(),
            has_parameters,
            writable,
        }
    }
}

impl Compiler {
    /// What was kept.
    pub(super) fn find(&mut self, key: &Key) -> Option<Compiled> {
        self.used += 1;
        let (used, compiled) = self.compiled.get_mut(key)?;
        *used = self.used;
        Some(compiled.clone())
    }

    /// Keeps one that did compile.
    pub(super) fn keep(&mut self, key: Key, compiled: Compiled) {
        if self.compiled.len() >= MOST_KEPT {
            let oldest = self.compiled.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.compiled.remove(&oldest);
            }
        }
        self.compiled.insert(key, (self.used, compiled));
    }
}

/// Compiles a shader. Errors come by the device's handler.
pub(super) fn compile(device: &Device, source: Source, key: &Key) -> Compiled {
    let first = usize::from(key.has_parameters);
    let parameters = key.has_parameters.then(|| binding(0, BufferBindingType::Uniform));
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
        entry_point: Some(&key.entry),
        compilation_options: Default::default(),
        cache: None,
    });
    Compiled { pipeline, layout }
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
