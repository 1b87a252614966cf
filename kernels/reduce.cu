// A part of a row to one number, a block of threads each: sum (FOLD 0), max (1), min (2), sum of squares (3), largest magnitude (4).

struct Parameters {
    unsigned rows;
    unsigned columns;
    unsigned part;
    unsigned parts;
};

struct Buffers {
    const float *values;
    float *result;
};

constexpr unsigned THREADS = 256;

static __device__ float join(float one, float two) {
    if (FOLD == 1 || FOLD == 4) {
        return fmaxf(one, two);
    }
    return FOLD == 2 ? fminf(one, two) : one + two;
}

static __device__ float take(float value) {
    if (FOLD == 3) {
        return value * value;
    }
    return FOLD == 4 ? fabsf(value) : value;
}

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ float partial[THREADS];
    const unsigned thread = threadIdx.x;
    const unsigned number = group_number();
    if (number >= parameters.rows * parameters.parts) {
        return;
    }
    const float *row = buffers.values + number / parameters.parts * parameters.columns;
    const unsigned begin = number % parameters.parts * parameters.part;
    const unsigned end = min(begin + parameters.part, parameters.columns);
    float sum = FOLD == 1 ? -3.4028234e38f : FOLD == 2 ? 3.4028234e38f : 0.0f;
    for (unsigned i = begin + thread; i < end; i += THREADS) {
        sum = join(sum, take(row[i]));
    }
    partial[thread] = sum;
    __syncthreads();
    for (unsigned step = THREADS / 2; step > 0; step /= 2) {
        if (thread < step) {
            partial[thread] = join(partial[thread], partial[thread + step]);
        }
        __syncthreads();
    }
    if (thread == 0) {
        buffers.result[number] = partial[0];
    }
}
