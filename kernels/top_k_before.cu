// The tally of each part becomes the sum of those before it. One block, each thread some neighbours.

struct Parameters {
    unsigned parts;
};

struct Buffers {
    // Greater and equal, by turns.
    unsigned *tallies;
};

constexpr unsigned THREADS = 256;

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ unsigned totals[2 * THREADS];
    const unsigned thread = threadIdx.x;
    const unsigned run = (parameters.parts + THREADS - 1) / THREADS;
    const unsigned begin = min(thread * run, parameters.parts);
    const unsigned end = min(begin + run, parameters.parts);
    unsigned total[2] = {};
    for (unsigned part = begin; part < end; part++) {
        total[0] += buffers.tallies[2 * part];
        total[1] += buffers.tallies[2 * part + 1];
    }
    totals[2 * thread] = total[0];
    totals[2 * thread + 1] = total[1];
    __syncthreads();
    unsigned before[2] = {};
    for (unsigned other = 0; other < thread; other++) {
        before[0] += totals[2 * other];
        before[1] += totals[2 * other + 1];
    }
    for (unsigned part = begin; part < end; part++) {
        for (unsigned kind = 0; kind < 2; kind++) {
            const unsigned here = buffers.tallies[2 * part + kind];
            buffers.tallies[2 * part + kind] = before[kind];
            before[kind] += here;
        }
    }
}
