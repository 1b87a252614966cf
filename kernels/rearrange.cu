// Elements of an array in another order, a thread per element of the result.

struct Axis {
    unsigned size;
    // How far the array goes on along it; backwards it wraps around.
    unsigned step;
    unsigned unused[2];
};

struct Parameters {
    unsigned elements;
    unsigned count;
    unsigned begin;
    unsigned unused;
    // The innermost first.
    Axis axes[8];
};

struct Buffers {
    const float *values;
    float *result;
};

static __device__ unsigned elements(const Parameters &parameters) { return parameters.elements; }

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    unsigned outer = i;
    unsigned at = parameters.begin;
    for (unsigned number = 0; number < parameters.count; number++) {
        const Axis &axis = parameters.axes[number];
        at += outer % axis.size * axis.step;
        outer /= axis.size;
    }
    buffers.result[i] = buffers.values[at];
}

