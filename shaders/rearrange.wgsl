// Elements of an array in another order, a thread per element of the result.

struct Parameters {
    elements: u32,
    count: u32,
    begin: u32,
    // The innermost first: its size, and how far the array goes on along it; backwards it wraps around.
    axes: array<vec4<u32>, 8>,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

fn elements() -> u32 { return parameters.elements; }

fn each(i: u32) {
    var outer = i;
    var at = parameters.begin;
    for (var number = 0u; number < parameters.count; number++) {
        let axis = parameters.axes[number];
        at += outer % axis.x * axis.y;
        outer = outer / axis.x;
    }
    result[i] = values[at];
}
