// What products with weights of BITS bits in groups are given; activations are of half precision, two to a word.

struct Parameters {
    unsigned m;
    unsigned n;
    unsigned k;
    unsigned group;
    unsigned groups;
    unsigned row_words;
};

struct Buffers {
    const unsigned *activations;
    const unsigned *weights;
    // A scale in the low half, a zero point in the high one.
    const unsigned *scales;
    float *c;
};

constexpr unsigned PER_WORD = 32 / BITS;
constexpr unsigned MASK = (1 << BITS) - 1;

