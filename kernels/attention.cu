// Attention of one query of one head per block of threads: 64 keys at a time, the softmax rescaled whenever a larger score comes by.

struct Parameters {
    unsigned heads_per_key;
    unsigned queries;
    unsigned keys;
    unsigned width;
    unsigned causal;
    float scale;
};

struct Buffers {
    const float *queries;
    const float *keys;
    const float *values;
    float *result;
};

constexpr unsigned BLOCK = 64;
constexpr unsigned MOST_WIDTH = 256;
constexpr float LEAST = -3.4028234e38f;

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ float query[MOST_WIDTH];
    __shared__ float scores[BLOCK];
    const unsigned thread = threadIdx.x;
    const unsigned width = parameters.width;
    const unsigned at = (blockIdx.y * parameters.queries + blockIdx.x) * width;
    const unsigned head = blockIdx.y / parameters.heads_per_key * parameters.keys * width;
    const unsigned seen =
        parameters.causal == 1 ? blockIdx.x + 1 + parameters.keys - parameters.queries : parameters.keys;
    for (unsigned i = thread; i < width; i += BLOCK) {
        query[i] = buffers.queries[at + i] * parameters.scale;
    }
    __syncthreads();
    float largest = LEAST;
    float total = 0.0f;
    float sums[MOST_WIDTH / BLOCK] = {};
    for (unsigned begin = 0; begin < seen; begin += BLOCK) {
        const unsigned here = min(BLOCK, seen - begin);
        float score = LEAST;
        if (thread < here) {
            const unsigned key = head + (begin + thread) * width;
            score = 0.0f;
            for (unsigned i = 0; i < width; i++) {
                score += query[i] * buffers.keys[key + i];
            }
        }
        scores[thread] = score;
        __syncthreads();
        float new_largest = largest;
        for (unsigned i = 0; i < here; i++) {
            new_largest = fmaxf(new_largest, scores[i]);
        }
        __syncthreads();
        scores[thread] = expf(score - new_largest);
        __syncthreads();
        const float shrink = expf(largest - new_largest);
        total *= shrink;
        for (unsigned i = 0; i < here; i++) {
            total += scores[i];
        }
        for (unsigned part = 0; part < MOST_WIDTH / BLOCK; part++) {
            const unsigned column = part * BLOCK + thread;
            if (column < width) {
                float sum = sums[part] * shrink;
                for (unsigned i = 0; i < here; i++) {
                    sum += scores[i] * buffers.values[head + (begin + i) * width + column];
                }
                sums[part] = sum;
            }
        }
        largest = new_largest;
        __syncthreads();
    }
    for (unsigned part = 0; part < MOST_WIDTH / BLOCK; part++) {
        const unsigned column = part * BLOCK + thread;
        if (column < width) {
            buffers.result[at + column] = sums[part] / total;
        }
    }
}
