// What comes after a product that a library computed: a bias per column and an activation, in place.

struct Parameters {
    unsigned elements;
    unsigned columns;
    unsigned biased;
    unsigned activation;
};

struct Buffers {
    const float *bias;
    float *c;
};

static __device__ unsigned elements(const Parameters &parameters) { return parameters.elements; }

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    const float sum = buffers.c[i];
    const float value = parameters.biased == 1 ? sum + buffers.bias[i % parameters.columns] : sum;
    buffers.c[i] = activate(value, parameters.activation);
}

