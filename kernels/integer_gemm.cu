// C = A B^T of signed bytes, four to a word, with sums of 32 bits. Tiles are counted over x and y of the grid.

struct Parameters {
    unsigned m;
    unsigned n;
    unsigned words;
};

struct Buffers {
    const unsigned *a;
    const unsigned *b;
    int *c;
};

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ unsigned a_tile[TILE * TILE];
    // One more to a row, so that threads beside each other read from different banks.
    __shared__ unsigned b_tile[TILE * (TILE + 1)];
    const unsigned words = parameters.words;
    const unsigned across = (parameters.n + TILE - 1) / TILE;
    const unsigned number = group_number();
    const unsigned row = number / across * TILE + threadIdx.y;
    const unsigned column = number % across * TILE + threadIdx.x;
    const unsigned b_row = number % across * TILE + threadIdx.y;
    int sum = 0;
    for (unsigned begin = 0; begin < words; begin += TILE) {
        const unsigned word = begin + threadIdx.x;
        const bool in_a = word < words && row < parameters.m;
        const bool in_b = word < words && b_row < parameters.n;
        a_tile[threadIdx.y * TILE + threadIdx.x] = in_a ? buffers.a[row * words + word] : 0;
        b_tile[threadIdx.y * (TILE + 1) + threadIdx.x] = in_b ? buffers.b[b_row * words + word] : 0;
        __syncthreads();
        for (unsigned i = 0; i < TILE; i++) {
            sum = __dp4a((int)a_tile[threadIdx.y * TILE + i], (int)b_tile[threadIdx.x * (TILE + 1) + i], sum);
        }
        __syncthreads();
    }
    if (row < parameters.m && column < parameters.n) {
        buffers.c[row * parameters.n + column] = sum;
    }
}
