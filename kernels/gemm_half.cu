// Matrices of half precision, two numbers to a word. What is computed with them is of single precision, as on every device.

struct Buffers {
    const unsigned *a;
    const unsigned *b;
    const float *bias;
    float *c;
};

static __device__ float a_at(const Buffers &buffers, unsigned i) { return half_at(buffers.a, i); }

static __device__ float b_at(const Buffers &buffers, unsigned i) { return half_at(buffers.b, i); }

