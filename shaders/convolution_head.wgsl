// What a convolution is given.

struct Parameters {
    batch: u32,
    channels: u32,
    height: u32,
    width: u32,
    filters: u32,
    kernel_height: u32,
    kernel_width: u32,
    stride_rows: u32,
    stride_columns: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_rows: u32,
    dilation_columns: u32,
    groups: u32,
    out_height: u32,
    out_width: u32,
    biased: u32,
    activation: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> image: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> result: array<f32>;

fn finish(filter_number: u32, sum: f32) -> f32 {
    var value = sum;
    if (parameters.biased == 1u) {
        value += bias[filter_number];
    }
    if (parameters.activation == 1u) {
        value = max(value, 0.0);
    } else if (parameters.activation == 2u) {
        value = value / (1.0 + exp(-value));
    }
    return value;
}
