// A weighted sum of UPDATES arrays onto another.

struct Parameters {
    unsigned length;
};

struct Buffers {
    const float *sum;
    const float *updates;
    const float *weights;
    float *result;
};

static __device__ unsigned elements(const Parameters &parameters) { return parameters.length; }

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    float value = buffers.sum[i];
    for (unsigned update = 0; update < UPDATES; update++) {
        value += buffers.weights[update] * buffers.updates[update * parameters.length + i];
    }
    buffers.result[i] = value;
}

