use crate::device::{Api, Class, DeviceInfo};
use wgpu::Backends;

/// Every adapter that can compute, in a fixed order. This loads drivers: call it where a crash does no harm.
pub(crate) fn adapters() -> Vec<wgpu::Adapter> {
    let backends = Backends::VULKAN | Backends::METAL | Backends::DX12 | Backends::GL;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        // No debug layers: they change what drivers do, and are often not there.
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut adapters = pollster::block_on(instance.enumerate_adapters(backends));
    adapters.retain(|adapter| {
        let compute = wgpu::DownlevelFlags::COMPUTE_SHADERS;
        adapter.get_downlevel_capabilities().flags.contains(compute)
            && api(adapter.get_info().backend).is_some()
    });
    adapters
}

/// What each of them is, in the same order.
pub(crate) fn describe(adapters: &[wgpu::Adapter]) -> Vec<DeviceInfo> {
    let mut seen = Vec::new();
    let info = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        let api = api(info.backend)?;
        let number = seen.iter().filter(|before| **before == api).count();
        seen.push(api);
        let limits = adapter.limits();
        Some(DeviceInfo {
            id: format!("{api}-{number}"),
            api,
            class: match info.device_type {
                _ if is_software(&info.name) => Class::Software,
                wgpu::DeviceType::DiscreteGpu => Class::Discrete,
                wgpu::DeviceType::IntegratedGpu => Class::Integrated,
                wgpu::DeviceType::VirtualGpu => Class::Virtual,
                wgpu::DeviceType::Cpu => Class::Software,
                wgpu::DeviceType::Other => Class::Other,
            },
            name: info.name,
            driver: [info.driver, info.driver_info].join(" ").trim().to_owned(),
            most_buffer: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size),
            most_threads: limits.max_compute_invocations_per_workgroup,
            most_shared: limits.max_compute_workgroup_storage_size,
            most_buffers: limits.max_storage_buffers_per_shader_stage,
        })
    };
    adapters.iter().filter_map(info).collect()
}

/// Drivers that compute on the processor and do not always say so.
fn is_software(name: &str) -> bool {
    let name = name.to_lowercase();
    [
        "llvmpipe",
        "softpipe",
        "swrast",
        "swiftshader",
        "basic render driver",
    ]
    .iter()
    .any(|driver| name.contains(driver))
}

/// wgpu's `noop` back-end answers zeros to everything: it is no device.
const fn api(backend: wgpu::Backend) -> Option<Api> {
    match backend {
        wgpu::Backend::Vulkan => Some(Api::Vulkan),
        wgpu::Backend::Metal => Some(Api::Metal),
        wgpu::Backend::Dx12 => Some(Api::Dx12),
        wgpu::Backend::Gl => Some(Api::Gl),
        wgpu::Backend::Noop | wgpu::Backend::BrowserWebGpu => None,
    }
}
