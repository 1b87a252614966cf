// A part of a row to one number, a workgroup each: sum (0), max (1), min (2), sum of squares (3), largest magnitude (4).

struct Parameters {
    rows: u32,
    columns: u32,
    part: u32,
    parts: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

const THREADS: u32 = 256u;

var<workgroup> partial: array<f32, THREADS>;

fn join(one: f32, two: f32) -> f32 {
    if (FOLD == 1u || FOLD == 4u) {
        return max(one, two);
    }
    if (FOLD == 2u) {
        return min(one, two);
    }
    return one + two;
}

fn take(value: f32) -> f32 {
    if (FOLD == 3u) {
        return value * value;
    }
    if (FOLD == 4u) {
        return abs(value);
    }
    return value;
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = group.y * groups.x + group.x;
    if (number >= parameters.rows * parameters.parts) {
        return;
    }
    let row = number / parameters.parts * parameters.columns;
    let begin = number % parameters.parts * parameters.part;
    let end = min(begin + parameters.part, parameters.columns);
    var sum = 0.0;
    if (FOLD == 1u) {
        sum = -3.4028234e38;
    } else if (FOLD == 2u) {
        sum = 3.4028234e38;
    }
    for (var i = begin + thread; i < end; i += THREADS) {
        sum = join(sum, take(values[row + i]));
    }
    partial[thread] = sum;
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) {
            partial[thread] = join(partial[thread], partial[thread + step]);
        }
        workgroupBarrier();
    }
    if (thread == 0u) {
        result[number] = partial[0];
    }
}
