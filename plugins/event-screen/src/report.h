// CSV in, JSON out: the whole task but for its bindings, so that a test can run it anywhere.
#pragma once

#include "text.h"

#include <stdbool.h>

// Writes the events of `csv` to *out, or what is wrong with it.
bool report(const char *csv, size_t length, struct text *out);
