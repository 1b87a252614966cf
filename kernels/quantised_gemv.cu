// A few rows of activations times weights of BITS bits in groups. A block of threads takes ROWS rows of weights, counted over x and y
// of the grid, for the row z of activations; each thread some words of all of them. Per word, sum (q x) - zero sum x, so that the
// inner loop does not subtract.

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ float partial[THREADS * ROWS];
    const unsigned thread = threadIdx.x;
    const unsigned first = group_number() * ROWS;
    const unsigned *activations = buffers.activations + blockIdx.z * parameters.k / 2;
    float sums[ROWS] = {};
    for (unsigned word = thread; word < parameters.row_words; word += THREADS) {
        const unsigned begin = word * PER_WORD;
        const unsigned group = begin / parameters.group;
        float x[PER_WORD] = {};
        float sum_x = 0.0f;
        for (unsigned place = 0; place < PER_WORD; place += 2) {
            if (begin + place < parameters.k) {
                const unsigned pair = activations[(begin + place) / 2];
                x[place] = from_half(pair);
                x[place + 1] = from_half(pair >> 16);
                sum_x += x[place] + x[place + 1];
            }
        }
        for (unsigned r = 0; r < ROWS; r++) {
            const unsigned row = first + r;
            if (row < parameters.n) {
                const unsigned q = buffers.weights[row * parameters.row_words + word];
                const unsigned scale = buffers.scales[row * parameters.groups + group];
                float sum = 0.0f;
                for (unsigned place = 0; place < PER_WORD; place++) {
                    sum += (float)(q >> (place * BITS) & MASK) * x[place];
                }
                sums[r] += from_half(scale) * (sum - (float)(scale >> 16) * sum_x);
            }
        }
    }
    for (unsigned r = 0; r < ROWS; r++) {
        partial[r * THREADS + thread] = sums[r];
    }
    __syncthreads();
    for (unsigned step = THREADS / 2; step > 0; step /= 2) {
        if (thread < step) {
            for (unsigned r = 0; r < ROWS; r++) {
                partial[r * THREADS + thread] += partial[r * THREADS + thread + step];
            }
        }
        __syncthreads();
    }
    if (thread < ROWS && first + thread < parameters.n) {
        buffers.c[blockIdx.z * parameters.n + first + thread] = partial[thread * THREADS];
    }
}
