// Numbers back from half precision, or from 8 bits and the scale of their row.

struct Parameters {
    elements: u32,
    columns: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read> codes: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<f32>;

fn elements() -> u32 { return parameters.elements; }

fn each(i: u32) {
    if (INT8 == 1u) {
        // The byte goes to the top and comes down again with its sign.
        let code = bitcast<i32>(codes[i / 4u] << (24u - i % 4u * 8u)) >> 24u;
        values[i] = f32(code) * scales[i / parameters.columns];
    } else {
        let pair = unpack2x16float(codes[i / 2u]);
        values[i] = select(pair.x, pair.y, i % 2u == 1u);
    }
}
