// Many products of matrices of single precision, one after the other. `a_layer` and `b_layer` are the elements from the matrix of one
// product to that of the next, 0 where all share it.

struct Parameters {
    unsigned batch;
    unsigned m;
    unsigned n;
    unsigned k;
    unsigned a_layer;
    unsigned b_layer;
};

struct Buffers {
    const float *a;
    const float *b;
    float *c;
};

static __device__ unsigned rows(const Parameters &parameters) { return parameters.m; }

static __device__ unsigned columns(const Parameters &parameters) { return parameters.n; }

static __device__ unsigned depth(const Parameters &parameters) { return parameters.k; }

static __device__ unsigned layers(const Parameters &parameters) { return parameters.batch; }

static __device__ float left(
    const Parameters &parameters, const Buffers &buffers, unsigned layer, unsigned row, unsigned k
) {
    const bool there = row < parameters.m && k < parameters.k;
    return there ? buffers.a[layer * parameters.a_layer + row * parameters.k + k] : 0.0f;
}

static __device__ float right(
    const Parameters &parameters, const Buffers &buffers, unsigned layer, unsigned k, unsigned column
) {
    const bool there = k < parameters.k && column < parameters.n;
    return there ? buffers.b[layer * parameters.b_layer + k * parameters.n + column] : 0.0f;
}

static __device__ void store(
    const Parameters &parameters, const Buffers &buffers, unsigned layer, unsigned row, unsigned column, float sum
) {
    buffers.c[(layer * parameters.m + row) * parameters.n + column] = sum;
}

