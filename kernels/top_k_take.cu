// What is kept, from the sum by its index. Each index is one that `top_k_place.cu` wrote, or the 0 that was there.

struct Parameters {
    unsigned keep;
};

struct Buffers {
    const unsigned *indices;
    const unsigned *sum;
    unsigned *values;
};

static __device__ unsigned elements(const Parameters &parameters) { return parameters.keep; }

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    buffers.values[i] = buffers.sum[buffers.indices[i]];
}

