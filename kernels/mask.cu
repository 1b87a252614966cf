// The key stream of ChaCha20 (RFC 8439) under the zero nonce, added to integers or subtracted: a thread per block of 16 words.

struct Parameters {
    unsigned length;
};

struct Buffers {
    const unsigned *values;
    const unsigned *key;
    unsigned *result;
};

static __device__ unsigned elements(const Parameters &parameters) { return (parameters.length + 15) / 16; }

static __device__ void turn(unsigned &word, unsigned with, unsigned by) {
    word ^= with;
    word = word << by | word >> (32 - by);
}

static __device__ void quarter(unsigned &a, unsigned &b, unsigned &c, unsigned &d) {
    a += b;
    turn(d, a, 16);
    c += d;
    turn(b, c, 12);
    a += b;
    turn(d, a, 8);
    c += d;
    turn(b, c, 7);
}

static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned counter) {
    unsigned start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    for (unsigned word = 0; word < 8; word++) {
        start[4 + word] = buffers.key[word];
    }
    start[12] = counter;
    unsigned s[16];
    for (unsigned word = 0; word < 16; word++) {
        s[word] = start[word];
    }
    for (unsigned round = 0; round < 10; round++) {
        // Columns, then diagonals.
        quarter(s[0], s[4], s[8], s[12]);
        quarter(s[1], s[5], s[9], s[13]);
        quarter(s[2], s[6], s[10], s[14]);
        quarter(s[3], s[7], s[11], s[15]);
        quarter(s[0], s[5], s[10], s[15]);
        quarter(s[1], s[6], s[11], s[12]);
        quarter(s[2], s[7], s[8], s[13]);
        quarter(s[3], s[4], s[9], s[14]);
    }
    for (unsigned word = 0; word < 16; word++) {
        const unsigned i = counter * 16 + word;
        if (i < parameters.length) {
            const unsigned mask = s[word] + start[word];
            buffers.result[i] = SUBTRACT == 1 ? buffers.values[i] - mask : buffers.values[i] + mask;
        }
    }
}

