// Softmax (NORMALISE 0), layer norm (1) and root-mean-square norm (2), a block of threads per row.

struct Parameters {
    unsigned rows;
    unsigned columns;
    float epsilon;
};

struct Buffers {
    const float *values;
    const float *gain;
    const float *shift;
    float *result;
};

constexpr unsigned THREADS = 256;

static __device__ float total(float *partial, unsigned thread, float value) {
    partial[thread] = value;
    __syncthreads();
    for (unsigned step = THREADS / 2; step > 0; step /= 2) {
        if (thread < step) {
            partial[thread] += partial[thread + step];
        }
        __syncthreads();
    }
    const float sum = partial[0];
    __syncthreads();
    return sum;
}

static __device__ float largest(float *partial, unsigned thread, float value) {
    partial[thread] = value;
    __syncthreads();
    for (unsigned step = THREADS / 2; step > 0; step /= 2) {
        if (thread < step) {
            partial[thread] = fmaxf(partial[thread], partial[thread + step]);
        }
        __syncthreads();
    }
    const float most = partial[0];
    __syncthreads();
    return most;
}

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ float partial[THREADS];
    const unsigned thread = threadIdx.x;
    const unsigned row = group_number();
    if (row >= parameters.rows) {
        return;
    }
    const unsigned columns = parameters.columns;
    const float *values = buffers.values + row * columns;
    float *result = buffers.result + row * columns;
    if (NORMALISE == 0) {
        float most = -3.4028234e38f;
        for (unsigned i = thread; i < columns; i += THREADS) {
            most = fmaxf(most, values[i]);
        }
        most = largest(partial, thread, most);
        float sum = 0.0f;
        for (unsigned i = thread; i < columns; i += THREADS) {
            const float weight = expf(values[i] - most);
            result[i] = weight;
            sum += weight;
        }
        sum = total(partial, thread, sum);
        for (unsigned i = thread; i < columns; i += THREADS) {
            result[i] /= sum;
        }
        return;
    }
    float mean = 0.0f;
    if (NORMALISE == 1) {
        float sum = 0.0f;
        for (unsigned i = thread; i < columns; i += THREADS) {
            sum += values[i];
        }
        mean = total(partial, thread, sum) / (float)columns;
    }
    float square = 0.0f;
    for (unsigned i = thread; i < columns; i += THREADS) {
        const float difference = values[i] - mean;
        square += difference * difference;
    }
    const float factor = 1.0f / sqrtf(total(partial, thread, square) / (float)columns + parameters.epsilon);
    for (unsigned i = thread; i < columns; i += THREADS) {
        const float value = (values[i] - mean) * factor * buffers.gain[i];
        result[i] = NORMALISE == 1 ? value + buffers.shift[i] : value;
    }
}
