// What products of floating point are given: C = activation(A B + bias). `b` may be strided either way, so that transposed weights
// need no copy. How numbers of both matrices are read is said by the shader after this one, which brings `a_at(i)` and `b_at(i)`.

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
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> c: array<f32>;

fn finish(column: u32, sum: f32) -> f32 {
    var value = sum;
    if (parameters.biased == 1u) {
        value += bias[column];
    }
    if (parameters.activation == 1u) {
        value = max(value, 0.0);
    } else if (parameters.activation == 2u) {
        value = value / (1.0 + exp(-value));
    }
    return value;
}
