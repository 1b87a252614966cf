// A thread per element. What is done with one is said by the file before this one, which brings `elements` and `each`.

extern "C" __global__ void kernel(const Parameters parameters, const Buffers buffers) {
    const unsigned i = group_number() * 256 + threadIdx.x;
    if (i < elements(parameters)) {
        each(parameters, buffers, i);
    }
}
