// What every kernel begins with: half precision, taken out of the low half of a word and put there. No header is included: where a
// driver is, NVIDIA's headers often are not.

#ifdef __CUDACC__

static __device__ float from_half(unsigned bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)bits));
    return value;
}

static __device__ unsigned to_half(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

#endif

// The number at place i of an array that holds two to a word.
static __device__ float half_at(const unsigned *words, unsigned i) { return from_half(words[i / 2] >> (i % 2 * 16)); }

// Where there are more groups than one dimension holds, they are counted over x and y.
static __device__ unsigned group_number() { return blockIdx.y * gridDim.x + blockIdx.x; }

static __device__ float activate(float value, unsigned activation) {
    if (activation == 1) {
        return fmaxf(value, 0.0f);
    }
    if (activation == 2) {
        return value / (1.0f + expf(-value));
    }
    return value;
}

