// Screens vibration for events, one sample after the other, in constant memory.
#pragma once

#include "filter.h"
#include "mixture.h"

#include <stdbool.h>
#include <stdint.h>

struct sample {
    double time_s, acceleration_m_s2, speed_km_h;
};

struct event {
    double start_s, end_s;
    double peak_m_s2; // the strongest filtered acceleration
    double score;     // the largest -log density under the background
    uint64_t samples; // from start to end
};

enum { WINDOW = 10, SHORT = 20, SPEEDS = 8 };

// A running robust scale of one range of speeds.
struct scale {
    double median;
    uint32_t samples;
};

struct screen {
    struct band_pass filter;
    struct mixture usual;
    struct scale scales[SPEEDS]; // 0-20, 20-40, ... km/h
    double scale;                // the one in use

    double squares[SHORT], sum_of_squares, last; // for the short-time mean and the jerk
    struct past {
        double time_s, strength, score;
        bool above;
    } window[WINDOW]; // the last samples, the newest at `samples % WINDOW`

    struct event event;         // the one that is open, or that a near one may still extend
    uint64_t first, last_above; // its samples
    bool held, open;
    uint64_t relearn_until;

    uint64_t samples; // seen so far
    uint64_t sent;    // of these, in an event or within one second of it
    uint64_t sent_to;
};

void screen_start(struct screen *screen);

// Takes the next sample; true when an event is over and stands in *done.
bool screen_push(struct screen *screen, const struct sample *sample, struct event *done);

// Ends the input; true when a last event stands in *done.
bool screen_finish(struct screen *screen, struct event *done);
