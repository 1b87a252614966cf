// Up to four arrays beside each other, row by row, a thread per element of the result.

struct Parameters {
    rows: u32,
    width: u32,
    // Where each of them ends in a row of the result; those that are not there end where the last one does.
    ends: vec4<u32>,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> part_0: array<f32>;
@group(0) @binding(2) var<storage, read> part_1: array<f32>;
@group(0) @binding(3) var<storage, read> part_2: array<f32>;
@group(0) @binding(4) var<storage, read> part_3: array<f32>;
@group(0) @binding(5) var<storage, read_write> result: array<f32>;

fn elements() -> u32 { return parameters.rows * parameters.width; }

fn each(i: u32) {
    let row = i / parameters.width;
    let column = i % parameters.width;
    let ends = parameters.ends;
    if (column < ends.x) {
        result[i] = part_0[row * ends.x + column];
    } else if (column < ends.y) {
        result[i] = part_1[row * (ends.y - ends.x) + column - ends.x];
    } else if (column < ends.z) {
        result[i] = part_2[row * (ends.z - ends.y) + column - ends.y];
    } else {
        result[i] = part_3[row * (ends.w - ends.z) + column - ends.z];
    }
}
