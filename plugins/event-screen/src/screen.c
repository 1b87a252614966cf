#include "screen.h"

#include <math.h>

// In samples of 100 Hz.
#define CALIBRATION 300  // no event before
#define FAST_UNTIL 6000  // learns fast before
#define CLOSE_AFTER 30   // without a sample above the threshold
#define MERGE_WITHIN 50  // of the end of the event before
#define CONTEXT 100      // sent along on both sides
#define LONGEST 500      // then it is no event but another road, to be learnt
#define RELEARN 200

#define ENOUGH 3 // of WINDOW samples above open an event
#define THRESHOLD 15.0 // recall is at least 0.98 on roads of class A and B: see tests
#define RATE 0.005
#define FAST_RATE 0.05
#define GAP_S 0.5 // without samples: the filters start anew

void screen_start(struct screen *s) {
    *s = (struct screen){0};
    band_pass_start(&s->filter);
    mixture_start(&s->usual);
}

// The running median of the strength at this speed, by steps up and down. A range of speeds begins with what the range
// before it had, and learns fast at first.
static double scale_for(struct screen *s, double speed_km_h, double strength) {
    const double least = 0.02;
    int range = (int)(speed_km_h / 20);
    struct scale *scale = &s->scales[range < SPEEDS ? range : SPEEDS - 1];
    if (!s->open) {
        if (scale->samples++ == 0) scale->median = s->scale > 0 ? s->scale : strength;
        double step = scale->samples < 200 ? 0.05 : 0.002;
        scale->median = fmax(scale->median * (strength > scale->median ? 1 + step : 1 - step), least);
    }
    if (scale->samples > 0) s->scale = scale->median;
    return 1.4826 * s->scale;
}

// The features of the newest sample: strength, its short-time mean, jerk; each about 1 on an ordinary road.
static void features(struct screen *s, double a, double scale, double x[FEATURES]) {
    double *square = &s->squares[s->samples % SHORT];
    s->sum_of_squares = fmax(s->sum_of_squares + a * a - *square, 0);
    *square = a * a;
    x[0] = fabs(a) / scale;
    x[1] = sqrt(s->sum_of_squares / SHORT) / scale;
    x[2] = fabs(a - s->last) / scale;
    s->last = a;
}

// The past sample `ago` samples before the newest.
static const struct past *past(const struct screen *s, uint64_t ago) {
    return &s->window[(s->samples - ago) % WINDOW];
}

static void take(struct screen *s, const struct past *p) {
    s->event.peak_m_s2 = fmax(s->event.peak_m_s2, p->strength);
    s->event.score = fmax(s->event.score, p->score);
}

// Opens an event, or the one before again, when enough samples of the window are above.
static void open_event(struct screen *s) {
    uint64_t ago = 0, above = 0, oldest = 0;
    for (; ago < WINDOW && ago <= s->samples; ago++)
        if (past(s, ago)->above) above++, oldest = ago;
    if (above < ENOUGH) return;
    s->open = true;
    if (!s->held) {
        s->held = true;
        s->first = s->samples - oldest;
        s->event = (struct event){.start_s = past(s, oldest)->time_s};
    }
    for (ago = 0; ago <= oldest; ago++) take(s, past(s, ago));
}

// Gives the held event away and counts what is sent with it.
static void give(struct screen *s, struct event *done) {
    uint64_t from = s->first > CONTEXT ? s->first - CONTEXT : 0, to = s->last_above + CONTEXT + 1;
    if (from < s->sent_to) from = s->sent_to;
    s->sent += to - from;
    s->sent_to = to;
    s->event.samples = s->last_above - s->first + 1;
    *done = s->event;
    s->held = s->open = false;
}

bool screen_push(struct screen *s, const struct sample *sample, struct event *done) {
    if (s->samples > 0 && sample->time_s - past(s, 1)->time_s > GAP_S) {
        band_pass_start(&s->filter);
        s->relearn_until = s->samples + RELEARN;
    }
    double a = band_pass(&s->filter, sample->acceleration_m_s2), x[FEATURES];
    features(s, a, scale_for(s, sample->speed_km_h, fabs(a)), x);

    bool learning = s->samples < CALIBRATION || s->samples < s->relearn_until;
    double score = mixture_score(&s->usual, x);
    struct past *now = &s->window[s->samples % WINDOW];
    *now = (struct past){sample->time_s, fabs(a), score, !learning && score > THRESHOLD};

    if (!s->open) open_event(s);
    if (s->open) {
        take(s, now);
        if (now->above) s->last_above = s->samples, s->event.end_s = now->time_s;
        if (s->samples - s->last_above >= CLOSE_AFTER) s->open = false;
    }
    // Inside an event nothing is learnt: the pothole would teach the background.
    bool fast = learning || s->samples < FAST_UNTIL;
    if (!s->open && !now->above) mixture_learn(&s->usual, x, fast ? FAST_RATE : RATE);

    bool too_long = s->open && s->samples - s->first >= LONGEST;
    bool over = s->held && !s->open && s->samples - s->last_above >= MERGE_WITHIN;
    s->samples++;
    if (too_long) s->relearn_until = s->samples + RELEARN;
    if (too_long || over) give(s, done);
    return too_long || over;
}

bool screen_finish(struct screen *s, struct event *done) {
    bool last = s->held;
    if (last) give(s, done);
    if (s->sent_to > s->samples) s->sent -= s->sent_to - s->samples;
    return last;
}
