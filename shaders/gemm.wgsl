// A product of matrices.

fn rows() -> u32 { return parameters.m; }
fn columns() -> u32 { return parameters.n; }
fn depth() -> u32 { return parameters.k; }
fn layers() -> u32 { return 1u; }

fn left(layer: u32, row: u32, k: u32) -> f32 {
    if (row < parameters.m && k < parameters.k) {
        return a_at(row * parameters.a_row + k);
    }
    return 0.0;
}

fn right(layer: u32, k: u32, column: u32) -> f32 {
    if (k < parameters.k && column < parameters.n) {
        return b_at(k * parameters.b_k + column * parameters.b_n);
    }
    return 0.0;
}

fn store(layer: u32, row: u32, column: u32, sum: f32) {
    c[row * parameters.n + column] = finish(column, sum);
}
