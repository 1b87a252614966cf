#include "report.h"

#include "csv.h"
#include "screen.h"

static void put_event(struct text *out, const struct event *event, uint64_t before) {
    put(out, before > 0 ? ",{\"start_s\":" : "{\"start_s\":");
    put_number(out, event->start_s, 2);
    put(out, ",\"end_s\":");
    put_number(out, event->end_s, 2);
    put(out, ",\"peak\":");
    put_number(out, event->peak_m_s2, 3);
    put(out, ",\"score\":");
    put_number(out, event->score < 1e9 ? event->score : 1e9, 1);
    put(out, ",\"samples\":");
    put_count(out, event->samples);
    put(out, "}");
}

bool report(const char *csv, size_t length, struct text *out) {
    struct csv rows;
    struct screen screen;
    struct sample sample;
    struct event event;
    uint64_t events = 0;
    enum csv_row row;
    csv_start(&rows, csv, length);
    screen_start(&screen);
    put(out, "{\"events\":[");
    while ((row = csv_next(&rows, &sample)) == CSV_SAMPLE)
        if (screen_push(&screen, &sample, &event)) put_event(out, &event, events++);
    if (row == CSV_MALFORMED) {
        out->length = 0;
        put(out, "line ");
        put_count(out, rows.line);
        put(out, " ");
        put(out, rows.problem);
        put(out, "; a line is time_s,acceleration_m_s2,speed_km_h");
        return false;
    }
    if (screen_finish(&screen, &event)) put_event(out, &event, events++);
    put(out, "],\"count\":");
    put_count(out, events);
    put(out, ",\"samples\":");
    put_count(out, screen.samples);
    put(out, ",\"samples_to_send\":");
    put_count(out, screen.sent);
    put(out, "}");
    return true;
}
