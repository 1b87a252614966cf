// Numbers in and out without a locale and without stdio, which would bring WASI with it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Reads a decimal number (`-0.25`, `1.5e-3`) at *at and moves *at behind it. No spaces, no `inf`, no `nan`.
bool read_number(const char **at, const char *end, double *value);

// Text that grows. When memory runs out the program ends, and the host says so.
struct text {
    char *start;
    size_t length, room;
};

void put(struct text *text, const char *words);
void put_count(struct text *text, uint64_t value);
// With so many decimals (at most 9), rounded; values up to 10^10.
void put_number(struct text *text, double value, int decimals);
