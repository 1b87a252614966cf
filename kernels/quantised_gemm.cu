// Rows of activations times weights of BITS bits in groups, unpacked once per tile.

static __device__ unsigned rows(const Parameters &parameters) { return parameters.m; }

static __device__ unsigned columns(const Parameters &parameters) { return parameters.n; }

static __device__ unsigned depth(const Parameters &parameters) { return parameters.k; }

static __device__ unsigned layers(const Parameters &parameters) { return 1; }

static __device__ float left(
    const Parameters &parameters, const Buffers &buffers, unsigned layer, unsigned row, unsigned k
) {
    const bool there = row < parameters.m && k < parameters.k;
    return there ? half_at(buffers.activations, row * parameters.k + k) : 0.0f;
}

static __device__ float right(
    const Parameters &parameters, const Buffers &buffers, unsigned layer, unsigned k, unsigned column
) {
    if (k >= parameters.k || column >= parameters.n) {
        return 0.0f;
    }
    const unsigned word = buffers.weights[column * parameters.row_words + k / PER_WORD];
    const unsigned q = word >> (k % PER_WORD * BITS) & MASK;
    const unsigned scale = buffers.scales[column * parameters.groups + k / parameters.group];
    return ((float)q - (float)(scale >> 16)) * from_half(scale);
}

static __device__ void store(
    const Parameters &parameters, const Buffers &buffers, unsigned layer, unsigned row, unsigned column, float sum
) {
    buffers.c[row * parameters.n + column] = sum;
}

