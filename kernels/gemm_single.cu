// Matrices of single precision.

struct Buffers {
    const float *a;
    const float *b;
    const float *bias;
    float *c;
};

static __device__ float a_at(const Buffers &buffers, unsigned i) { return buffers.a[i]; }

static __device__ float b_at(const Buffers &buffers, unsigned i) { return buffers.b[i]; }

