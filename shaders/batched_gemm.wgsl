// Many products of matrices of single precision, one after the other. `a_layer` and `b_layer` are the elements from the matrix of one
// product to that of the next, 0 where all share it.

struct Parameters {
    batch: u32,
    m: u32,
    n: u32,
    k: u32,
    a_layer: u32,
    b_layer: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

fn rows() -> u32 { return parameters.m; }
fn columns() -> u32 { return parameters.n; }
fn depth() -> u32 { return parameters.k; }
fn layers() -> u32 { return parameters.batch; }

fn left(layer: u32, row: u32, k: u32) -> f32 {
    if (row < parameters.m && k < parameters.k) {
        return a[layer * parameters.a_layer + row * parameters.k + k];
    }
    return 0.0;
}

fn right(layer: u32, k: u32, column: u32) -> f32 {
    if (k < parameters.k && column < parameters.n) {
        return b[layer * parameters.b_layer + k * parameters.n + column];
    }
    return 0.0;
}

fn store(layer: u32, row: u32, column: u32, sum: f32) {
    c[(layer * parameters.m + row) * parameters.n + column] = sum;
}
