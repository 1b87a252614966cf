// What a convolution is given.

struct Parameters {
    batch: u32,
    channels: u32,
    height: u32,
    width: u32,
    filters: u32,
    kernel_height: u32,
    kernel_width: u32,
    stride: u32,
    padding: u32,
    dilation: u32,
    groups: u32,
    out_height: u32,
    out_width: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> image: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;
