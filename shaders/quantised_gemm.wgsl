// Rows of activations (half precision, two to a word) times weights of BITS bits in groups, unpacked once per tile.

struct Parameters {
    m: u32,
    n: u32,
    k: u32,
    group: u32,
    groups: u32,
    row_words: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> activations: array<u32>;
@group(0) @binding(2) var<storage, read> weights: array<u32>;
@group(0) @binding(3) var<storage, read> scales: array<u32>;
@group(0) @binding(4) var<storage, read_write> c: array<f32>;

const PER_WORD: u32 = 32u / BITS;
const MASK: u32 = (1u << BITS) - 1u;

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
