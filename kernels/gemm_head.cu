// What products of floating point are given: C = activation(A B + bias). `b` may be strided either way, so that transposed weights
// need no copy. What the matrices hold is said by the file after this one, which brings `Buffers`, `a_at` and `b_at`.

struct Parameters {
    unsigned m;
    unsigned n;
    unsigned k;
    unsigned a_row;
    unsigned b_k;
    unsigned b_n;
    unsigned biased;
    unsigned activation;
};

static __device__ float finish(const Parameters &parameters, const float *bias, unsigned column, float sum) {
    return activate(parameters.biased == 1 ? sum + bias[column] : sum, parameters.activation);
}

