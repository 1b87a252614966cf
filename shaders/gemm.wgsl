// C = activation(A B + bias), single precision. `b` may be strided either way, so that transposed weights need no copy.

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

fn rows() -> u32 { return parameters.m; }
fn columns() -> u32 { return parameters.n; }
fn depth() -> u32 { return parameters.k; }
fn layers() -> u32 { return 1u; }

fn left(layer: u32, row: u32, k: u32) -> f32 {
    if (row < parameters.m && k < parameters.k) {
        return a[row * parameters.a_row + k];
    }
    return 0.0;
}

fn right(layer: u32, k: u32, column: u32) -> f32 {
    if (k < parameters.k && column < parameters.n) {
        return b[k * parameters.b_k + column * parameters.b_n];
    }
    return 0.0;
}

fn store(layer: u32, row: u32, column: u32, sum: f32) {
    var value = sum;
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
