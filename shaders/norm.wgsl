// Softmax (0), layer norm (1) and root-mean-square norm (2), a workgroup per row.

struct Parameters {
    rows: u32,
    columns: u32,
    epsilon: f32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read> gain: array<f32>;
@group(0) @binding(3) var<storage, read> shift: array<f32>;
@group(0) @binding(4) var<storage, read_write> result: array<f32>;

const THREADS: u32 = 256u;

var<workgroup> partial: array<f32, THREADS>;

fn total(thread: u32, value: f32) -> f32 {
    partial[thread] = value;
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) {
            partial[thread] += partial[thread + step];
        }
        workgroupBarrier();
    }
    let sum = partial[0];
    workgroupBarrier();
    return sum;
}

fn largest(thread: u32, value: f32) -> f32 {
    partial[thread] = value;
    workgroupBarrier();
    for (var step = THREADS / 2u; step > 0u; step /= 2u) {
        if (thread < step) {
            partial[thread] = max(partial[thread], partial[thread + step]);
        }
        workgroupBarrier();
    }
    let most = partial[0];
    workgroupBarrier();
    return most;
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group.y * groups.x + group.x;
    if (row >= parameters.rows) {
        return;
    }
    let columns = parameters.columns;
    let at = row * columns;
    if (NORMALISE == 0u) {
        var most = -3.4028234e38;
        for (var i = thread; i < columns; i += THREADS) {
            most = max(most, values[at + i]);
        }
        most = largest(thread, most);
        var sum = 0.0;
        for (var i = thread; i < columns; i += THREADS) {
            let weight = exp(values[at + i] - most);
            result[at + i] = weight;
            sum += weight;
        }
        sum = total(thread, sum);
        for (var i = thread; i < columns; i += THREADS) {
            result[at + i] /= sum;
        }
        return;
    }
    var mean = 0.0;
    if (NORMALISE == 1u) {
        var sum = 0.0;
        for (var i = thread; i < columns; i += THREADS) {
            sum += values[at + i];
        }
        mean = total(thread, sum) / f32(columns);
    }
    var square = 0.0;
    for (var i = thread; i < columns; i += THREADS) {
        let difference = values[at + i] - mean;
        square += difference * difference;
    }
    let factor = 1.0 / sqrt(total(thread, square) / f32(columns) + parameters.epsilon);
    for (var i = thread; i < columns; i += THREADS) {
        var value = (values[at + i] - mean) * factor * gain[i];
        if (NORMALISE == 1u) {
            value += shift[i];
        }
        result[at + i] = value;
    }
}
