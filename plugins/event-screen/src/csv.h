// Reads `time_s,acceleration_m_s2,speed_km_h`, one sample a line, from text that comes in pieces; a line with these names may
// come first.
#pragma once

#include "screen.h"

#include <stddef.h>

enum { LONGEST_LINE = 255 };

struct csv {
    const char *at, *end;    // what is left of the piece
    bool closed;             // no piece follows
    char text[LONGEST_LINE]; // the line, or as much as there is of it
    size_t length;
    bool whole;
    uint64_t line;           // its number, counted from 1
    double last_time_s;
    const char *problem;     // what is wrong with it
};

// CSV_MORE: the piece is used up. CSV_END: and was the last.
enum csv_row { CSV_SAMPLE, CSV_MORE, CSV_END, CSV_MALFORMED };

void csv_start(struct csv *csv);
// The next piece; it must stay until it is used up.
void csv_feed(struct csv *csv, const char *piece, size_t length);
void csv_close(struct csv *csv);
enum csv_row csv_next(struct csv *csv, struct sample *sample);
