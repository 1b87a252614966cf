// From the counts of all parts the next digit of the least magnitude that is kept, and how many of those that begin with it are
// kept. The first digit starts afresh, whatever is there.

struct Parameters {
    unsigned parts;
    unsigned shift;
    unsigned keep;
};

struct Buffers {
    const unsigned *counts;
    unsigned *least;
};

constexpr unsigned THREADS = 256;

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    __shared__ unsigned found[THREADS];
    const unsigned thread = threadIdx.x;
    unsigned count = 0;
    for (unsigned part = 0; part < parameters.parts; part++) {
        count += buffers.counts[part * THREADS + thread];
    }
    found[thread] = count;
    __syncthreads();
    if (thread == 0) {
        const bool first = parameters.shift == 24;
        const unsigned magnitude = first ? 0 : buffers.least[0];
        unsigned wanted = first ? parameters.keep : buffers.least[1];
        unsigned digit = THREADS - 1;
        while (digit > 0 && found[digit] < wanted) {
            wanted -= found[digit];
            digit--;
        }
        buffers.least[0] = magnitude | digit << parameters.shift;
        buffers.least[1] = wanted;
    }
}
