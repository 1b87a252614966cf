// Numbers back from half precision, or from 8 bits and the scale of their row.

struct Parameters {
    unsigned elements;
    unsigned columns;
};

struct Buffers {
    const float *scales;
    const unsigned *codes;
    float *values;
};

static __device__ unsigned elements(const Parameters &parameters) { return parameters.elements; }

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    if (INT8 == 1) {
        const signed char code = (signed char)(buffers.codes[i / 4] >> (i % 4 * 8));
        buffers.values[i] = (float)code * buffers.scales[i / parameters.columns];
    } else {
        buffers.values[i] = half_at(buffers.codes, i);
    }
}

