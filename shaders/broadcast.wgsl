// Arithmetic of two tensors (ARITHMETIC 0 adds, 1 subtracts, 2 multiplies, 3 divides), a thread per element of the result.

struct Parameters {
    elements: u32,
    count: u32,
    // The innermost first: its size, and how far each of the two goes on along it; 0 where it is the same all along.
    axes: array<vec4<u32>, 8>,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> first: array<f32>;
@group(0) @binding(2) var<storage, read> second: array<f32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;

fn elements() -> u32 { return parameters.elements; }

fn each(i: u32) {
    var outer = i;
    var one = 0u;
    var other = 0u;
    for (var number = 0u; number < parameters.count; number++) {
        let axis = parameters.axes[number];
        let at = outer % axis.x;
        outer = outer / axis.x;
        one += at * axis.y;
        other += at * axis.z;
    }
    let x = first[one];
    let y = second[other];
    if (ARITHMETIC == 0u) {
        result[i] = x + y;
    } else if (ARITHMETIC == 1u) {
        result[i] = x - y;
    } else if (ARITHMETIC == 2u) {
        result[i] = x * y;
    } else {
        result[i] = x / y;
    }
}
