// CSV in, JSON out, both in pieces: the whole task but for its bindings, so that a test can run it anywhere.
#pragma once

#include "csv.h"
#include "screen.h"
#include "text.h"

#include <stdbool.h>

struct report {
    struct csv rows;
    struct screen screen;
    uint64_t events;
};

// Each puts what there is to say so far behind *out. False where the CSV is wrong: report_problem says how.
void report_start(struct report *report, struct text *out);
bool report_piece(struct report *report, const char *csv, size_t length, struct text *out);
bool report_end(struct report *report, struct text *out);

void report_problem(const struct report *report, struct text *out);
