// A few rows times a matrix: a thread per column and part of the inner dimension, so that neighbours read neighbours.

struct Parameters {
    m: u32,
    n: u32,
    k: u32,
    a_row: u32,
    b_k: u32,
    b_n: u32,
    biased: u32,
    activation: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> c: array<f32>;

var<workgroup> partial: array<f32, PARTS * COLUMNS>;

@compute @workgroup_size(COLUMNS, PARTS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let column = group.x * COLUMNS + local.x;
    let row = group.y;
    var sum = 0.0;
    if (column < parameters.n) {
        for (var k = local.y; k < parameters.k; k += PARTS) {
            sum += a[row * parameters.a_row + k] * b[k * parameters.b_k + column];
        }
    }
    partial[local.y * COLUMNS + local.x] = sum;
    workgroupBarrier();
    if (local.y == 0u && column < parameters.n) {
        var value = 0.0;
        for (var part = 0u; part < PARTS; part++) {
            value += partial[part * COLUMNS + local.x];
        }
        if (parameters.biased == 1u) {
            value += bias[column];
        }
        if (parameters.activation == 1u) {
            value = max(value, 0.0);
        } else if (parameters.activation == 2u) {
            value = value / (1.0 + exp(-value));
        }
        c[row * parameters.n + column] = value;
    }
}
