// How many magnitudes of a part are greater than the least that is kept, and how many equal it: a block of threads per part.

struct Parameters {
    unsigned length;
};

struct Buffers {
    const unsigned *sum;
    const unsigned *least;
    unsigned *tallies;
};

constexpr unsigned THREADS = 256;

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ unsigned found[2];
    const unsigned thread = threadIdx.x;
    if (thread < 2) {
        found[thread] = 0;
    }
    __syncthreads();
    const unsigned least = buffers.least[0];
    const unsigned end = min((blockIdx.x + 1) * PART, parameters.length);
    unsigned greater = 0;
    unsigned equal = 0;
    for (unsigned i = blockIdx.x * PART + thread; i < end; i += THREADS) {
        const unsigned magnitude = buffers.sum[i] & 0x7fffffff;
        greater += magnitude > least;
        equal += magnitude == least;
    }
    atomicAdd(&found[0], greater);
    atomicAdd(&found[1], equal);
    __syncthreads();
    if (thread < 2) {
        buffers.tallies[2 * blockIdx.x + thread] = found[thread];
    }
}
