#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool read_number(const char **at, const char *end, double *value) {
    bool negative = *at < end && **at == '-';
    if (*at < end && (**at == '-' || **at == '+')) ++*at;
    uint64_t number = 0;
    int power = 0, count = 0, kept = 0;
    for (bool point = false; *at < end; ++*at) {
        if (**at == '.' && !point) {
            point = true;
            continue;
        }
        if (**at < '0' || **at > '9') break;
        count++;
        // Digits beyond the eighteenth are below what a double holds.
        bool keep = kept < 18;
        if (keep) number = number * 10 + (uint64_t)(**at - '0');
        if (number > 0) kept++;
        power += (keep ? 0 : 1) - (point ? 1 : 0);
    }
    if (count == 0) return false;
    if (*at < end && (**at == 'e' || **at == 'E')) {
        ++*at;
        bool down = *at < end && **at == '-';
        if (*at < end && (**at == '-' || **at == '+')) ++*at;
        int exponent = 0, many = 0;
        for (; *at < end && **at >= '0' && **at <= '9'; ++*at, many++)
            if (exponent < 1000) exponent = exponent * 10 + (**at - '0');
        if (many == 0) return false;
        power += down ? -exponent : exponent;
    }
    double whole = (double)number;
    *value = power < 0 ? whole / pow(10, -power) : whole * pow(10, power);
    if (negative) *value = -*value;
    return isfinite(*value);
}

static void append(struct text *text, const char *bytes, size_t length) {
    if (length > text->room - text->length) {
        text->room = (text->length + length) * 2;
        text->start = realloc(text->start, text->room);
        if (text->start == NULL) abort();
    }
    memcpy(text->start + text->length, bytes, length);
    text->length += length;
}

void put(struct text *text, const char *words) {
    append(text, words, strlen(words));
}

void put_count(struct text *text, uint64_t value) {
    char reversed[20];
    size_t at = sizeof reversed;
    do reversed[--at] = (char)('0' + value % 10);
    while (value /= 10);
    append(text, reversed + at, sizeof reversed - at);
}

void put_number(struct text *text, double value, int decimals) {
    uint64_t unit = 1;
    for (int i = 0; i < decimals; i++) unit *= 10;
    uint64_t scaled = (uint64_t)llround(fabs(value) * (double)unit);
    if (value < 0 && scaled > 0) put(text, "-");
    put_count(text, scaled / unit);
    if (decimals == 0) return;
    put(text, ".");
    for (uint64_t place = unit / 10, rest = scaled % unit; place > 0; place /= 10)
        put_count(text, rest / place % 10);
}
