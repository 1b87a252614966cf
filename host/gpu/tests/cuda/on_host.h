// Runs the files of `kernels/` on the processor: blocks of threads one after the other, the threads of a block by turns from barrier to
// barrier. Shared memory holds garbage before each block; all threads of a block have to meet at the same barriers; and the order of
// turns may be reversed, so that what depends on it is seen.

#pragma once

#include <csetjmp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

struct Three {
    unsigned x, y, z;
};

static Three threadIdx, blockIdx, blockDim, gridDim;

#define __device__
#define __global__
#define __shared__ static __attribute__((section("shared_of_block")))
#define __syncthreads() on_host::barrier(__LINE__)

static inline unsigned min(unsigned one, unsigned two) { return one < two ? one : two; }

static inline unsigned atomicAdd(unsigned *to, unsigned value) {
    const unsigned before = *to;
    *to += value;
    return before;
}

static inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline int __dp4a(int one, int two, int sum) {
    for (int shift = 0; shift < 32; shift += 8) {
        sum += (int)(signed char)(one >> shift) * (int)(signed char)(two >> shift);
    }
    return sum;
}

static inline float from_half(unsigned bits) {
    const unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 31 ? (fraction ? NAN : INFINITY)
        : exponent == 0          ? ldexpf((float)fraction, -24)
                                 : ldexpf((float)(1024 + fraction), (int)exponent - 25);
    return bits & 0x8000 ? -value : value;
}

// To the nearest, and of two as near to the even one.
static inline unsigned to_half(float value) {
    const unsigned sign = std::signbit(value) ? 0x8000 : 0;
    const float magnitude = fabsf(value);
    if (std::isnan(value)) {
        return 0x7e00;
    }
    if (magnitude >= 65520.0f) {
        return sign | 0x7c00;
    }
    if (magnitude < ldexpf(1.0f, -14)) {
        return sign | (unsigned)rintf(ldexpf(magnitude, 24));
    }
    const int exponent = ilogbf(magnitude);
    // A fraction that is rounded up to the next power of two carries into the exponent.
    return sign | (((unsigned)(exponent + 14) << 10) + (unsigned)rintf(ldexpf(magnitude, 10 - exponent)));
}

// Where shared memory begins and ends. A set of kernels may have none.
extern "C" {
extern char __start_shared_of_block[] __attribute__((weak, visibility("hidden")));
extern char __stop_shared_of_block[] __attribute__((weak, visibility("hidden")));
}

// For this program alone: another one in the same process has its own.
namespace {
namespace on_host {

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK = 64 << 10;
// In place of a barrier's line.
constexpr int DONE = 0;

// A thread of a block, with a stack of its own. It is kept for the next block.
struct Thread {
    bool started;
    Three index;
    jmp_buf at;
    // The barrier that it stopped at.
    int line;
};

static Thread threads[MOST_THREADS];
static Thread *current;
static jmp_buf scheduler;
static void (*work)();

__attribute__((noinline)) static void barrier(int line) {
    current->line = line;
    if (_setjmp(current->at) == 0) {
        _longjmp(scheduler, 1);
    }
}

static void live() {
    for (;;) {
        work();
        barrier(DONE);
    }
}

// Lets a thread go on to its next barrier, or to its end.
__attribute__((noinline)) static void turn(unsigned number) {
    current = &threads[number];
    threadIdx = current->index;
    if (_setjmp(scheduler) != 0) {
        return;
    }
    if (current->started) {
        _longjmp(current->at, 1);
    }
    current->started = true;
    static ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = malloc(STACK);
    context.uc_stack.ss_size = STACK;
    makecontext(&context, live, 0);
    setcontext(&context);
}

// Runs one block; whether its threads met at the same barriers.
static bool block(bool backwards) {
    const unsigned count = blockDim.x * blockDim.y * blockDim.z;
    if (__start_shared_of_block != nullptr) {
        memset(__start_shared_of_block, 0xff, (size_t)(__stop_shared_of_block - __start_shared_of_block));
    }
    do {
        for (unsigned number = 0; number < count; number++) {
            turn(backwards ? count - 1 - number : number);
        }
        for (unsigned number = 1; number < count; number++) {
            if (threads[number].line != threads[0].line) {
                return false;
            }
        }
    } while (threads[0].line != DONE);
    return true;
}

template <typename Parameters, typename Buffers> struct Launch {
    static void (*kernel)(Parameters, Buffers);
    static Parameters parameters;
    static Buffers buffers;

    static void once() { kernel(parameters, buffers); }
};

template <typename Parameters, typename Buffers> void (*Launch<Parameters, Buffers>::kernel)(Parameters, Buffers);
template <typename Parameters, typename Buffers> Parameters Launch<Parameters, Buffers>::parameters;
template <typename Parameters, typename Buffers> Buffers Launch<Parameters, Buffers>::buffers;

// Runs a kernel as a driver would launch it; 0 where all went well, and 1 where threads missed each other.
template <typename Parameters, typename Buffers>
int launch(
    void (*kernel)(Parameters, Buffers), const void *parameters, const void *buffers, const unsigned *grid,
    const unsigned *block_of, int backwards
) {
    using ThisLaunch = Launch<Parameters, Buffers>;
    ThisLaunch::kernel = kernel;
    memcpy((void *)&ThisLaunch::parameters, parameters, sizeof(Parameters));
    memcpy((void *)&ThisLaunch::buffers, buffers, sizeof(Buffers));
    work = ThisLaunch::once;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block_of[0], block_of[1], block_of[2]};
    if (blockDim.x * blockDim.y * blockDim.z > MOST_THREADS) {
        return 1;
    }
    for (unsigned number = 0; number < blockDim.x * blockDim.y * blockDim.z; number++) {
        const unsigned row = number / blockDim.x;
        threads[number].index = {number % blockDim.x, row % blockDim.y, row / blockDim.y};
    }
    for (unsigned z = 0; z < gridDim.z; z++) {
        for (unsigned y = 0; y < gridDim.y; y++) {
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                if (!block(backwards != 0)) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

} // namespace on_host
} // namespace
