// A weighted sum of UPDATES arrays onto another.

@group(0) @binding(0) var<uniform> length: u32;
@group(0) @binding(1) var<storage, read> sum: array<f32>;
@group(0) @binding(2) var<storage, read> updates: array<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> result: array<f32>;

fn elements() -> u32 { return length; }

fn each(i: u32) {
    var value = sum[i];
    for (var update = 0u; update < UPDATES; update++) {
        value += weights[update] * updates[update * length + i];
    }
    result[i] = value;
}
