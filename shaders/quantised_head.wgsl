// What products with weights of BITS bits in groups are given; activations are of half precision, two to a word.

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
