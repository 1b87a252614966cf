// How often each digit of 8 bits occurs among the magnitudes that begin as the least one that is kept does. A block of threads counts
// a part of the array.

struct Parameters {
    unsigned length;
    unsigned shift;
    unsigned known;
};

struct Buffers {
    const unsigned *sum;
    const unsigned *least;
    unsigned *counts;
};

constexpr unsigned THREADS = 256;

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ unsigned found[THREADS];
    const unsigned thread = threadIdx.x;
    found[thread] = 0;
    __syncthreads();
    const unsigned end = min((blockIdx.x + 1) * PART, parameters.length);
    const unsigned begins = buffers.least[0] & parameters.known;
    for (unsigned i = blockIdx.x * PART + thread; i < end; i += THREADS) {
        const unsigned magnitude = buffers.sum[i] & 0x7fffffff;
        if ((magnitude & parameters.known) == begins) {
            atomicAdd(&found[magnitude >> parameters.shift & 255], 1u);
        }
    }
    __syncthreads();
    buffers.counts[blockIdx.x * THREADS + thread] = found[thread];
}
