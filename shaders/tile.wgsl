// A product of matrices in tiles: each workgroup computes TILE_M rows by TILE_N columns, TILE_K of the inner dimension at a
// time, each thread THREAD_M rows by 4 columns. What the matrices are is said by the shader before this one, which brings
// `rows()`, `columns()`, `depth()`, how many products there are as `layers()`, and for one of them `left(layer, row, k)`,
// `right(layer, k, column)` and `store(layer, row, column, value)`. Tiles are counted over x and y of the workgroups: one
// dimension does not hold all tiles of a long matrix.

const WIDTH: u32 = TILE_N / 4u;
const HEIGHT: u32 = TILE_M / THREAD_M;
const THREADS: u32 = WIDTH * HEIGHT;

var<workgroup> left_tile: array<f32, TILE_K * TILE_M>;
var<workgroup> right_tile: array<vec4<f32>, TILE_K * WIDTH>;

@compute @workgroup_size(WIDTH, HEIGHT)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let across = (columns() + TILE_N - 1u) / TILE_N;
    let down = (rows() + TILE_M - 1u) / TILE_M;
    let number = group.y * groups.x + group.x;
    let layer = number / across / down;
    if (layer >= layers()) {
        return;
    }
    let row = number / across % down * TILE_M;
    let column = number % across * TILE_N;
    var sums: array<vec4<f32>, THREAD_M>;
    for (var begin = 0u; begin < depth(); begin += TILE_K) {
        for (var i = thread; i < TILE_K * TILE_M; i += THREADS) {
            let k = i % TILE_K;
            let r = i / TILE_K;
            left_tile[k * TILE_M + r] = left(layer, row + r, begin + k);
        }
        for (var i = thread; i < TILE_K * WIDTH; i += THREADS) {
            let k = begin + i / WIDTH;
            let c = column + (i % WIDTH) * 4u;
            right_tile[i] = vec4<f32>(
                right(layer, k, c),
                right(layer, k, c + 1u),
                right(layer, k, c + 2u),
                right(layer, k, c + 3u),
            );
        }
        workgroupBarrier();
        for (var k = 0u; k < TILE_K; k++) {
            let b = right_tile[k * WIDTH + local.x];
            for (var r = 0u; r < THREAD_M; r++) {
                sums[r] += left_tile[k * TILE_M + local.y * THREAD_M + r] * b;
            }
        }
        workgroupBarrier();
    }
    for (var r = 0u; r < THREAD_M; r++) {
        for (var c = 0u; c < 4u; c++) {
            let to_row = row + local.y * THREAD_M + r;
            let to_column = column + local.x * 4u + c;
            if (to_row < rows() && to_column < columns()) {
                store(layer, to_row, to_column, sums[r][c]);
            }
        }
    }
}
