// Rows of activations (half precision, two to a word) times weights of BITS bits in groups, unpacked once per tile.

fn rows() -> u32 { return parameters.m; }
fn columns() -> u32 { return parameters.n; }
fn depth() -> u32 { return parameters.k; }
fn layers() -> u32 { return 1u; }

fn left(layer: u32, row: u32, k: u32) -> f32 {
    if (row < parameters.m && k < parameters.k) {
        let pair = unpack2x16float(activations[(row * parameters.k + k) / 2u]);
        return select(pair.x, pair.y, k % 2u == 1u);
    }
    return 0.0;
}

fn right(layer: u32, k: u32, column: u32) -> f32 {
    if (k < parameters.k && column < parameters.n) {
        let q = (weights[column * parameters.row_words + k / PER_WORD] >> (k % PER_WORD * BITS)) & MASK;
        let scale = scales[column * parameters.groups + k / parameters.group];
        return (f32(q) - f32(scale >> 16u)) * unpack2x16float(scale & 0xffffu).x;
    }
    return 0.0;
}

fn store(layer: u32, row: u32, column: u32, sum: f32) {
    c[row * parameters.n + column] = sum;
}
