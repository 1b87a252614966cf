// A product of matrices in tiles: each block of threads computes TILE_M rows by TILE_N columns, TILE_K of the inner dimension at a
// time, each thread THREAD_M rows by 4 columns. What the matrices are is said by the file before this one, which brings `rows`,
// `columns`, `depth`, how many products there are as `layers`, and for one of them `left`, `right` and `store`.

constexpr unsigned WIDTH = TILE_N / 4;
constexpr unsigned HEIGHT = TILE_M / THREAD_M;
constexpr unsigned THREADS = WIDTH * HEIGHT;

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ float left_tile[TILE_K * TILE_M];
    __shared__ float right_tile[TILE_K * TILE_N];
    const unsigned thread = threadIdx.y * WIDTH + threadIdx.x;
    const unsigned across = (columns(parameters) + TILE_N - 1) / TILE_N;
    const unsigned down = (rows(parameters) + TILE_M - 1) / TILE_M;
    const unsigned number = group_number();
    const unsigned layer = number / across / down;
    if (layer >= layers(parameters)) {
        return;
    }
    const unsigned row = number / across % down * TILE_M;
    const unsigned column = number % across * TILE_N;
    float sums[THREAD_M][4] = {};
    for (unsigned begin = 0; begin < depth(parameters); begin += TILE_K) {
        for (unsigned i = thread; i < TILE_K * TILE_M; i += THREADS) {
            const unsigned k = i % TILE_K;
            const unsigned r = i / TILE_K;
            left_tile[k * TILE_M + r] = left(parameters, buffers, layer, row + r, begin + k);
        }
        for (unsigned i = thread; i < TILE_K * TILE_N; i += THREADS) {
            right_tile[i] = right(parameters, buffers, layer, begin + i / TILE_N, column + i % TILE_N);
        }
        __syncthreads();
        for (unsigned k = 0; k < TILE_K; k++) {
            const float *b = right_tile + k * TILE_N + threadIdx.x * 4;
            for (unsigned r = 0; r < THREAD_M; r++) {
                const float a = left_tile[k * TILE_M + threadIdx.y * THREAD_M + r];
                for (unsigned c = 0; c < 4; c++) {
                    sums[r][c] += a * b[c];
                }
            }
        }
        __syncthreads();
    }
    for (unsigned r = 0; r < THREAD_M; r++) {
        for (unsigned c = 0; c < 4; c++) {
            const unsigned to_row = row + threadIdx.y * THREAD_M + r;
            const unsigned to_column = column + threadIdx.x * 4 + c;
            if (to_row < rows(parameters) && to_column < columns(parameters)) {
                store(parameters, buffers, layer, to_row, to_column, sums[r][c]);
            }
        }
    }
}
