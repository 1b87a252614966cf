#include "report.h"

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

static bool read_rows(struct report *report, struct text *out) {
    struct sample sample;
    struct event event;
    enum csv_row row;
    while ((row = csv_next(&report->rows, &sample)) == CSV_SAMPLE)
        if (screen_push(&report->screen, &sample, &event)) put_event(out, &event, report->events++);
    return row != CSV_MALFORMED;
}

void report_start(struct report *report, struct text *out) {
    csv_start(&report->rows);
    screen_start(&report->screen);
    report->events = 0;
    put(out, "{\"events\":[");
}

bool report_piece(struct report *report, const char *csv, size_t length, struct text *out) {
    csv_feed(&report->rows, csv, length);
    return read_rows(report, out);
}

bool report_end(struct report *report, struct text *out) {
    struct event event;
    csv_close(&report->rows);
    if (!read_rows(report, out)) return false;
    if (screen_finish(&report->screen, &event)) put_event(out, &event, report->events++);
    put(out, "],\"count\":");
    put_count(out, report->events);
    put(out, ",\"samples\":");
    put_count(out, report->screen.samples);
    put(out, ",\"samples_to_send\":");
    put_count(out, report->screen.sent);
    put(out, "}");
    return true;
}

void report_problem(const struct report *report, struct text *out) {
    put(out, "line ");
    put_count(out, report->rows.line);
    put(out, " ");
    put(out, report->rows.problem);
    put(out, "; a line is time_s,acceleration_m_s2,speed_km_h");
}
