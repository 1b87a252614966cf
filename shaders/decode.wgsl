// Numbers back from half precision, or from 8 bits and the scale of their row.

struct Parameters {
    elements: u32,
    columns: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read> codes: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = (group.y * groups.x + group.x) * 256u + thread;
    if (i >= parameters.elements) {
        return;
    }
    if (INT8 == 1u) {
        // The byte goes to the top and comes down again with its sign.
        let code = bitcast<i32>(codes[i / 4u] << (24u - i % 4u * 8u)) >> 24u;
        values[i] = f32(code) * scales[i / parameters.columns];
    } else {
        let pair = unpack2x16float(codes[i / 2u]);
        values[i] = select(pair.x, pair.y, i % 2u == 1u);
    }
}
