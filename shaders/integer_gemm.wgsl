// C = A B^T of signed bytes, four to a word, with sums of 32 bits. Tiles are counted over x and y of the workgroups.

struct Parameters {
    m: u32,
    n: u32,
    words: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read_write> c: array<i32>;

var<workgroup> a_tile: array<u32, TILE * TILE>;
var<workgroup> b_tile: array<u32, TILE * TILE>;

@compute @workgroup_size(TILE, TILE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    let across = (parameters.n + TILE - 1u) / TILE;
    let number = group.y * groups.x + group.x;
    let row = number / across * TILE + local.y;
    let column = number % across * TILE + local.x;
    let b_row = number % across * TILE + local.y;
    var sum = 0;
    for (var begin = 0u; begin < parameters.words; begin += TILE) {
        let word = begin + local.x;
        var left = 0u;
        var right = 0u;
        if (word < parameters.words && row < parameters.m) {
            left = a[row * parameters.words + word];
        }
        if (word < parameters.words && b_row < parameters.n) {
            right = b[b_row * parameters.words + word];
        }
        a_tile[local.y * TILE + local.x] = left;
        b_tile[local.y * TILE + local.x] = right;
        workgroupBarrier();
        for (var i = 0u; i < TILE; i++) {
            sum += dot4I8Packed(a_tile[local.y * TILE + i], b_tile[local.x * TILE + i]);
        }
        workgroupBarrier();
    }
    if (row < parameters.m && column < parameters.n) {
        c[row * parameters.n + column] = sum;
    }
}
