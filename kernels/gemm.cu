// A product of matrices.

static __device__ unsigned rows(const Parameters &parameters) { return parameters.m; }

static __device__ unsigned columns(const Parameters &parameters) { return parameters.n; }

static __device__ unsigned depth(const Parameters &parameters) { return parameters.k; }

static __device__ unsigned layers(const Parameters &parameters) { return 1; }

static __device__ float left(
    const Parameters &parameters, const Buffers &buffers, unsigned layer, unsigned row, unsigned k
) {
    return row < parameters.m && k < parameters.k ? a_at(buffers, row * parameters.a_row + k) : 0.0f;
}

static __device__ float right(
    const Parameters &parameters, const Buffers &buffers, unsigned layer, unsigned k, unsigned column
) {
    const bool there = k < parameters.k && column < parameters.n;
    return there ? b_at(buffers, k * parameters.b_k + column * parameters.b_n) : 0.0f;
}

static __device__ void store(
    const Parameters &parameters, const Buffers &buffers, unsigned layer, unsigned row, unsigned column, float sum
) {
    buffers.c[row * parameters.n + column] = finish(parameters, buffers.bias, column, sum);
}

