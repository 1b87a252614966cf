// To half precision, two to a word (STEP 0); the scale of each row (1); then 8 bits each, four to a word (2).

struct Parameters {
    elements: u32,
    rows: u32,
    columns: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read_write> result: array<u32>;

const THREADS: u32 = 256u;

var<workgroup> partial: array<f32, THREADS>;

fn half_at(i: u32) -> f32 {
    if (i < parameters.elements) {
        return values[i];
    }
    return 0.0;
}

fn code_at(i: u32) -> u32 {
    if (i >= parameters.elements) {
        return 0u;
    }
    let scale = scales[i / parameters.columns];
    if (scale <= 0.0) {
        return 0u;
    }
    return u32(i32(clamp(round(values[i] / scale), -127.0, 127.0))) & 0xffu;
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = group.y * groups.x + group.x;
    let word = number * THREADS + thread;
    if (STEP == 0u) {
        if (word * 2u < parameters.elements) {
            result[word] = pack2x16float(vec2<f32>(half_at(word * 2u), half_at(word * 2u + 1u)));
        }
        return;
    }
    if (STEP == 2u) {
        if (word * 4u < parameters.elements) {
            let i = word * 4u;
            result[word] = code_at(i) | (code_at(i + 1u) << 8u) | (code_at(i + 2u) << 16u) | (code_at(i + 3u) << 24u);
        }
        return;
    }
    if (number >= parameters.rows) {
        return;
    }
    var most = 0.0;
    for (var i = thread; i < parameters.columns; i += THREADS) {
        most = max(most, abs(values[number * parameters.columns + i]));
    }
    partial[thread] = most;
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) {
            partial[thread] = max(partial[thread], partial[thread + step]);
        }
        workgroupBarrier();
    }
    if (thread == 0u) {
        result[number] = bitcast<u32>(partial[0] / 127.0);
    }
}
