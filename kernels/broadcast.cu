// Arithmetic of two tensors (ARITHMETIC 0 adds, 1 subtracts, 2 multiplies, 3 divides), a thread per element of the result.

// Its size, and how far each of the two goes on along it; 0 where it is the same all along.
struct Axis {
    unsigned size;
    unsigned first;
    unsigned second;
    unsigned unused;
};

struct Parameters {
    unsigned elements;
    unsigned count;
    unsigned unused[2];
    // The innermost first.
    Axis axes[8];
};

struct Buffers {
    const float *first;
    const float *second;
    float *result;
};

static __device__ unsigned elements(const Parameters &parameters) { return parameters.elements; }

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    unsigned outer = i;
    unsigned one = 0;
    unsigned other = 0;
    for (unsigned number = 0; number < parameters.count; number++) {
        const Axis &axis = parameters.axes[number];
        const unsigned at = outer % axis.size;
        outer /= axis.size;
        one += at * axis.first;
        other += at * axis.second;
    }
    const float x = buffers.first[one];
    const float y = buffers.second[other];
    if (ARITHMETIC == 0) {
        buffers.result[i] = x + y;
    } else if (ARITHMETIC == 1) {
        buffers.result[i] = x - y;
    } else if (ARITHMETIC == 2) {
        buffers.result[i] = x * y;
    } else {
        buffers.result[i] = x / y;
    }
}

