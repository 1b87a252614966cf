// Reads `time_s,acceleration_m_s2,speed_km_h`, one sample a line; a line with these names may come first.
#pragma once

#include "screen.h"

#include <stddef.h>

struct csv {
    const char *at, *end;
    unsigned line;       // of the last one read, counted from 1
    double last_time_s;
    const char *problem; // what is wrong with that line
};

enum csv_row { CSV_SAMPLE, CSV_END, CSV_MALFORMED };

void csv_start(struct csv *csv, const char *text, size_t length);
enum csv_row csv_next(struct csv *csv, struct sample *sample);
