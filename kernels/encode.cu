// To half precision, two to a word (STEP 0); the scale of each row (1); then 8 bits each, four to a word (2).

struct Parameters {
    unsigned elements;
    unsigned rows;
    unsigned columns;
};

struct Buffers {
    const float *values;
    const float *scales;
    unsigned *result;
};

constexpr unsigned THREADS = 256;

static __device__ unsigned half_bits(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    return i < parameters.elements ? to_half(buffers.values[i]) : 0;
}

static __device__ unsigned code(const Parameters &parameters, const Buffers &buffers, unsigned i) {
    if (i >= parameters.elements) {
        return 0;
    }
    const float scale = buffers.scales[i / parameters.columns];
    if (scale <= 0.0f) {
        return 0;
    }
    const float level = fminf(fmaxf(rintf(buffers.values[i] / scale), -127.0f), 127.0f);
    return (unsigned)(int)level & 0xff;
}

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ float partial[THREADS];
    const unsigned thread = threadIdx.x;
    const unsigned number = group_number();
    const unsigned word = number * THREADS + thread;
    if (STEP == 0) {
        if (word * 2 < parameters.elements) {
            const unsigned high = half_bits(parameters, buffers, word * 2 + 1);
            buffers.result[word] = half_bits(parameters, buffers, word * 2) | high << 16;
        }
        return;
    }
    if (STEP == 2) {
        if (word * 4 < parameters.elements) {
            unsigned codes = 0;
            for (unsigned place = 0; place < 4; place++) {
                codes |= code(parameters, buffers, word * 4 + place) << (place * 8);
            }
            buffers.result[word] = codes;
        }
        return;
    }
    if (number >= parameters.rows) {
        return;
    }
    float most = 0.0f;
    for (unsigned i = thread; i < parameters.columns; i += THREADS) {
        most = fmaxf(most, fabsf(buffers.values[number * parameters.columns + i]));
    }
    partial[thread] = most;
    __syncthreads();
    for (unsigned step = THREADS / 2; step > 0; step /= 2) {
        if (thread < step) {
            partial[thread] = fmaxf(partial[thread], partial[thread + step]);
        }
        __syncthreads();
    }
    if (thread == 0) {
        buffers.result[number] = __float_as_uint(partial[0] / 127.0f);
    }
}
