// Convolution, a thread per element of the result: for grouped and depthwise layers, where there is little to share.

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

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let pixels = parameters.out_height * parameters.out_width;
    let element = (group.y * groups.x + group.x) * 256u + thread;
    if (element >= parameters.batch * parameters.filters * pixels) {
        return;
    }
    let column = element % parameters.out_width;
    let row = element / parameters.out_width % parameters.out_height;
    let filter_number = element / pixels % parameters.filters;
    let batch = element / pixels / parameters.filters;
    let channels = parameters.channels / parameters.groups;
    let first_channel = filter_number / (parameters.filters / parameters.groups) * channels;
    var sum = 0.0;
    for (var channel = 0u; channel < channels; channel++) {
        let plane = (batch * parameters.channels + first_channel + channel) * parameters.height;
        for (var y = 0u; y < parameters.kernel_height; y++) {
            // Below zero it wraps around and is larger than any image.
            let from_row = row * parameters.stride + y * parameters.dilation - parameters.padding;
            for (var x = 0u; x < parameters.kernel_width; x++) {
                let from_column = column * parameters.stride + x * parameters.dilation - parameters.padding;
                if (from_row < parameters.height && from_column < parameters.width) {
                    let tap = ((filter_number * channels + channel) * parameters.kernel_height + y) * parameters.kernel_width + x;
                    sum += weights[tap] * image[(plane + from_row) * parameters.width + from_column];
                }
            }
        }
    }
    result[element] = sum;
}
