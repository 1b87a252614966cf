#include "csv.h"

#include "text.h"

#include <math.h>
#include <string.h>

static const char HEADER[] = "time_s,acceleration_m_s2,speed_km_h";

void csv_start(struct csv *csv) {
    *csv = (struct csv){.last_time_s = -INFINITY};
}

void csv_feed(struct csv *csv, const char *piece, size_t length) {
    csv->at = piece;
    csv->end = piece + length;
}

void csv_close(struct csv *csv) {
    csv->closed = true;
}

static enum csv_row malformed(struct csv *csv, const char *problem) {
    csv->problem = problem;
    return CSV_MALFORMED;
}

// The next line without its end, once all of it has come: then CSV_SAMPLE.
static enum csv_row take_line(struct csv *csv, const char **start, const char **end) {
    if (csv->whole) csv->whole = false, csv->length = 0;
    size_t left = (size_t)(csv->end - csv->at);
    const char *newline = left > 0 ? memchr(csv->at, '\n', left) : NULL;
    size_t length = newline ? (size_t)(newline - csv->at) : left;
    if (length > LONGEST_LINE - csv->length) return csv->line++, malformed(csv, "is longer than 255 bytes");
    if (length > 0) memcpy(csv->text + csv->length, csv->at, length);
    csv->length += length;
    csv->at = newline ? newline + 1 : csv->end;
    if (!newline && !csv->closed) return CSV_MORE;
    if (!newline && csv->length == 0) return CSV_END;
    csv->whole = true;
    csv->line++;
    *start = csv->text;
    *end = csv->text + csv->length;
    if (*end > *start && (*end)[-1] == '\r') --*end;
    return CSV_SAMPLE;
}

enum csv_row csv_next(struct csv *csv, struct sample *sample) {
    const char *at, *end;
    do {
        enum csv_row row = take_line(csv, &at, &end);
        if (row != CSV_SAMPLE) return row;
        bool header = (size_t)(end - at) == sizeof HEADER - 1 && memcmp(at, HEADER, sizeof HEADER - 1) == 0;
        if (csv->line == 1 && header) at = end;
    } while (at == end);

    double values[3];
    for (int i = 0; i < 3; i++) {
        if (i > 0 && (at == end || *at++ != ',')) return malformed(csv, "has fewer than 3 fields");
        if (!read_number(&at, end, &values[i])) return malformed(csv, "has a field that is not a number");
    }
    if (at != end) return malformed(csv, "has more than 3 numbers");
    *sample = (struct sample){values[0], values[1], values[2]};
    if (!(fabs(sample->time_s) <= 1e10)) return malformed(csv, "has a time beyond 10^10 s");
    if (!(sample->time_s > csv->last_time_s)) return malformed(csv, "has a time that does not follow the one before");
    if (!(fabs(sample->acceleration_m_s2) <= 1000)) return malformed(csv, "has an acceleration beyond 1000 m/s2");
    if (!(sample->speed_km_h >= 0 && sample->speed_km_h <= 500)) return malformed(csv, "has a speed outside 0 to 500 km/h");
    csv->last_time_s = sample->time_s;
    return CSV_SAMPLE;
}
