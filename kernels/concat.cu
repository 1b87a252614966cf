// Up to four arrays beside each other, row by row, a thread per element of the result.

struct Parameters {
    unsigned rows;
    unsigned width;
    unsigned unused[2];
    // Where each of them ends in a row of the result; those that are not there end where the last one does.
    unsigned ends[4];
};

struct Buffers {
    const float *parts[4];
    float *result;
};

static __device__ unsigned elements(const Parameters &parameters) { return parameters.rows * parameters.width; }

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    const unsigned row = i / parameters.width;
    const unsigned column = i % parameters.width;
    unsigned begin = 0;
    for (unsigned part = 0; part < 4; part++) {
        const unsigned end = parameters.ends[part];
        if (column < end) {
            buffers.result[i] = buffers.parts[part][row * (end - begin) + column - begin];
            return;
        }
        begin = end;
    }
}

