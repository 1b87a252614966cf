// A weighted sum of UPDATES arrays onto another.

@group(0) @binding(0) var<uniform> length: u32;
@group(0) @binding(1) var<storage, read> sum: array<f32>;
@group(0) @binding(2) var<storage, read> updates: array<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> result: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = (group.y * groups.x + group.x) * 256u + thread;
    if (i >= length) {
        return;
    }
    var value = sum[i];
    for (var update = 0u; update < UPDATES; update++) {
        value += weights[update] * updates[update * length + i];
    }
    result[i] = value;
}
