// The indices that are kept, in order: all greater magnitudes, and the first so many of those that equal the least. A block of threads
// per part, each thread a run of neighbours.

struct Parameters {
    unsigned length;
    unsigned keep;
};

struct Buffers {
    const unsigned *sum;
    const unsigned *least;
    // Greater and equal before each part, by turns.
    const unsigned *tallies;
    unsigned *indices;
};

constexpr unsigned THREADS = 256;
constexpr unsigned RUN = PART / THREADS;

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ unsigned totals[2 * THREADS];
    const unsigned thread = threadIdx.x;
    const unsigned least = buffers.least[0];
    const unsigned equals = buffers.least[1];
    const unsigned begin = min(blockIdx.x * PART + thread * RUN, parameters.length);
    const unsigned end = min(begin + RUN, parameters.length);
    unsigned greater = 0;
    unsigned equal = 0;
    for (unsigned i = begin; i < end; i++) {
        const unsigned magnitude = buffers.sum[i] & 0x7fffffff;
        greater += magnitude > least;
        equal += magnitude == least;
    }
    totals[2 * thread] = greater;
    totals[2 * thread + 1] = equal;
    __syncthreads();
    greater = buffers.tallies[2 * blockIdx.x];
    equal = buffers.tallies[2 * blockIdx.x + 1];
    for (unsigned other = 0; other < thread; other++) {
        greater += totals[2 * other];
        equal += totals[2 * other + 1];
    }
    for (unsigned i = begin; i < end; i++) {
        const unsigned magnitude = buffers.sum[i] & 0x7fffffff;
        const unsigned place = greater + min(equal, equals);
        if (place < parameters.keep && (magnitude > least || (magnitude == least && equal < equals))) {
            buffers.indices[place] = i;
        }
        greater += magnitude > least;
        equal += magnitude == least;
    }
}
