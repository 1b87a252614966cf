// A few rows times a matrix: a thread per column and part of the inner dimension, so that neighbours read neighbours.

var<workgroup> partial: array<f32, PARTS * COLUMNS>;

@compute @workgroup_size(COLUMNS, PARTS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let column = group.x * COLUMNS + local.x;
    let row = group.y;
    var sum = 0.0;
    if (column < parameters.n) {
        for (var k = local.y; k < parameters.k; k += PARTS) {
            sum += a_at(row * parameters.a_row + k) * b_at(k * parameters.b_k + column);
        }
    }
    partial[local.y * COLUMNS + local.x] = sum;
    workgroupBarrier();
    if (local.y == 0u && column < parameters.n) {
        var value = 0.0;
        for (var part = 0u; part < PARTS; part++) {
            value += partial[part * COLUMNS + local.x];
        }
        c[row * parameters.n + column] = finish(column, value);
    }
}
