// Measures the screen on simulated roads, and reads and refuses what it should. `--road` and
// `--answer` write tests/road.csv and tests/road.json instead.

#include "report.h"
#include "road.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void check(bool holds, const char *what) {
    if (!holds) failures++, printf("FAILED  %s\n", what);
}

// A road of 28 s with three potholes, as CSV.
static void put_road(struct text *csv) {
    static const struct pothole potholes[] = {{9, 0.5, 0.05}, {15, 0.8, 0.07}, {22, 0.4, 0.04}};
    uint64_t seed = 2026;
    for (int i = 0; i < 20; i++) road_random(&seed);
    struct road road;
    struct sample sample;
    // First the vehicle, then its road: arguments of a call are evaluated in no particular order.
    struct vehicle vehicle = road_vehicle(&seed, 50, 16e-6);
    road_start(&road, seed, vehicle, potholes, 3);
    put(csv, "time_s,acceleration_m_s2,speed_km_h\n");
    for (int i = 0; i < 2800; i++) {
        road_next(&road, &sample);
        put_number(csv, sample.time_s, 2), put(csv, ",");
        put_number(csv, sample.acceleration_m_s2, 3), put(csv, ",");
        put_number(csv, sample.speed_km_h, 1), put(csv, "\n");
    }
}

struct figures {
    int potholes, found, events, wrong;
    uint64_t samples, sent;
};

static bool belongs(const struct event *event, const struct pothole *pothole) {
    return event->start_s <= pothole->at_s + 1 && event->end_s >= pothole->at_s - 0.1;
}

// 20 vehicles over 30 potholes each, 2 to 10 cm deep, on average `every_s` seconds apart.
static struct figures measure(double roughness, double every_s) {
    enum { VEHICLES = 20, POTHOLES = 30, MOST = 4000 };
    static struct event events[MOST];
    struct figures f = {0};
    for (uint64_t v = 0; v < VEHICLES; v++) {
        uint64_t seed = 88172645463325252u + v * 7919 + (uint64_t)(roughness * 1e6);
        for (int i = 0; i < 20; i++) road_random(&seed);
        struct pothole potholes[POTHOLES];
        double time_s = 8;
        for (int i = 0; i < POTHOLES; i++) {
            time_s += every_s * (0.5 + road_random(&seed));
            double length = 0.3 + 0.7 * road_random(&seed);
            potholes[i] = (struct pothole){time_s, length, 0.02 + 0.08 * road_random(&seed)};
        }
        double speed = 30 + 60 * road_random(&seed);
        struct road road;
        struct screen screen;
        struct sample sample;
        int count = 0;
        struct vehicle vehicle = road_vehicle(&seed, speed, roughness);
        road_start(&road, seed, vehicle, potholes, POTHOLES);
        screen_start(&screen);
        while (road.time_s < time_s + 10) {
            road_next(&road, &sample);
            if (screen_push(&screen, &sample, &events[count]) && count < MOST - 1) count++;
        }
        if (screen_finish(&screen, &events[count])) count++;
        for (int p = 0; p < POTHOLES; p++) {
            bool found = false;
            for (int e = 0; e < count; e++) found |= belongs(&events[e], &potholes[p]);
            f.found += found;
        }
        for (int e = 0; e < count; e++) {
            bool right = false;
            for (int p = 0; p < POTHOLES; p++) right |= belongs(&events[e], &potholes[p]);
            f.wrong += !right;
        }
        f.potholes += POTHOLES, f.events += count, f.samples += screen.samples, f.sent += screen.sent;
    }
    return f;
}

static void roads(void) {
    static const struct {
        const char *class;
        double roughness, every_s, least_recall, least_saved;
    } cases[] = {
        {"A, a pothole a minute ", 16e-6, 60, 0.98, 0.95},
        {"A, a pothole in 15 s  ", 16e-6, 15, 0.98, 0},
        {"B, a pothole in 15 s  ", 64e-6, 15, 0.98, 0},
        {"C, a pothole in 15 s  ", 256e-6, 15, 0, 0}, // told, not promised: shallow ones drown in the road
    };
    printf("road                     recall   false events an hour   bytes saved (samples of 2 bytes)\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct figures f = measure(cases[i].roughness, cases[i].every_s);
        double recall = (double)f.found / f.potholes, saved = 1 - (double)f.sent / (double)f.samples;
        double hours = (double)f.samples / 360000;
        printf("class %s  %.3f    %6.1f                 %llu of %llu (%.1f %%)\n", cases[i].class, recall,
               f.wrong / hours, (unsigned long long)(f.samples - f.sent) * 2, (unsigned long long)f.samples * 2,
               saved * 100);
        check(recall >= cases[i].least_recall, "recall");
        check(saved >= cases[i].least_saved, "bytes saved");
    }
}

// The answer to a CSV that comes in pieces of so many bytes; what is wrong with it instead where it is.
static bool answer(const char *csv, size_t length, size_t piece, struct text *out) {
    struct report report;
    bool reads = true;
    report_start(&report, out);
    for (size_t at = 0; reads && at < length; at += piece)
        reads = report_piece(&report, csv + at, length - at < piece ? length - at : piece, out);
    reads = reads && report_end(&report, out);
    if (!reads) out->length = 0, report_problem(&report, out);
    return reads;
}

static void expect(const char *csv, bool reads, const char *says) {
    static const size_t pieces[] = {1, 2, 3, 7, 1 << 20};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct text out = {0};
        check(answer(csv, strlen(csv), pieces[i], &out) == reads, csv);
        put(&out, "\n");
        if (out.length < strlen(says) || memcmp(out.start, says, strlen(says)) != 0)
            check(false, csv), printf("        says %.*s", (int)out.length, out.start);
        free(out.start);
    }
}

// One line of so many bytes.
static void expect_line(size_t bytes, bool reads, const char *says) {
    char line[400] = "0,1,2.";
    memset(line + 6, '0', sizeof line - 7);
    line[bytes] = 0;
    expect(line, reads, says);
}

static void inputs(void) {
    const char *nothing = "{\"events\":[],\"count\":0,\"samples\":0,\"samples_to_send\":0}\n";
    const char *two = "{\"events\":[],\"count\":0,\"samples\":2,\"samples_to_send\":0}\n";
    expect("", true, nothing);
    expect("time_s,acceleration_m_s2,speed_km_h\n", true, nothing);
    expect("0.00,9.81,50\n0.01,-9.8e-1,50.5\n", true, two);
    expect("time_s,acceleration_m_s2,speed_km_h\r\n0,1,2\r\n\r\n1,+1.,.5", true, two);
    expect("0,1,2\n0.01,x,2\n", false, "line 2 has a field that is not a number");
    expect("0,1,2\n0.01,nan,2\n", false, "line 2 has a field that is not a number");
    expect("0,1,2\n0.01,1e999,2\n", false, "line 2 has a field that is not a number");
    expect("0,1,2\n\n0.01,1\n", false, "line 3 has fewer than 3 fields");
    expect("0,1,2,3\n", false, "line 1 has more than 3 numbers");
    expect("0,1,2 \n", false, "line 1 has more than 3 numbers");
    expect("0,1,2\n0,1,2\n", false, "line 2 has a time that does not follow");
    expect("0,1001,2\n", false, "line 1 has an acceleration beyond");
    expect("0,1,-1\n", false, "line 1 has a speed outside");
    expect_line(LONGEST_LINE, true, "{\"events\":[],\"count\":0,\"samples\":1,");
    expect_line(LONGEST_LINE + 1, false, "line 1 is longer than 255 bytes");
    expect("0,1,2\ntime_s,acceleration_m_s2,speed_km_h\n", false, "line 2 has a field that is not a number");
}

static void numbers(void) {
    static const struct {
        double value;
        int decimals;
        const char *text;
    } cases[] = {{0, 2, "0.00"}, {-0.004, 2, "0.00"}, {1.005, 3, "1.005"}, {-12.3456, 3, "-12.346"}, {99.999, 2, "100.00"},
                 {1e10, 0, "10000000000"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text text = {0};
        put_number(&text, cases[i].value, cases[i].decimals);
        check(text.length == strlen(cases[i].text) && !memcmp(text.start, cases[i].text, text.length), cases[i].text);
        free(text.start);
    }
    static const char *const texts[] = {"0.1", "123456789012345678901", "-0.000001", "9.80665", "1e-7", "2.5E+3"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *at = texts[i], *end = at + strlen(at);
        double value = 0, wanted = strtod(at, NULL);
        check(read_number(&at, end, &value) && at == end && fabs(value - wanted) <= 1e-15 * fabs(wanted), texts[i]);
    }
}

static struct text file(const char *path) {
    struct text text = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) return check(false, path), text;
    char part[4096];
    for (size_t got; (got = fread(part, 1, sizeof part - 1, file)) > 0;) part[got] = 0, put(&text, part);
    fclose(file);
    return text;
}

// road.csv has the answer in road.json.
static void example(void) {
    struct text csv = file("tests/road.csv"), expected = file("tests/road.json"), out = {0};
    for (size_t piece = 1; piece < 1 << 20; piece *= 5) {
        out.length = 0;
        check(answer(csv.start, csv.length, piece, &out), "road.csv reads");
        bool same = out.length == expected.length && memcmp(out.start, expected.start, out.length) == 0;
        check(same, "road.csv gives road.json");
    }
    check(csv.length <= 60 << 10, "road.csv is small");
    free(csv.start), free(expected.start), free(out.start);
}

int main(int count, char **arguments) {
    struct text csv = {0}, out = {0};
    if (count == 2 && strcmp(arguments[1], "--road") == 0) {
        put_road(&csv);
        fwrite(csv.start, 1, csv.length, stdout);
        return 0;
    }
    if (count == 2 && strcmp(arguments[1], "--answer") == 0) {
        csv = file("tests/road.csv");
        answer(csv.start, csv.length, csv.length, &out);
        fwrite(out.start, 1, out.length, stdout);
        return 0;
    }
    numbers();
    inputs();
    example();
    roads();
    printf("one screen holds %zu bytes\n%s\n", sizeof(struct screen), failures ? "FAILED" : "passed");
    return failures > 0;
}
