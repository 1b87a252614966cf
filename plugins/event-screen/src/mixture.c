#include "mixture.h"

#include <math.h>

#define MATCH 2.5             // standard deviations within which a component takes a sample for its own
#define BACKGROUND 0.9        // share of all samples that the background's components make up
#define LEAST_VARIANCE 0.0025 // of features that are 1 on an ordinary road
#define WIDE_VARIANCE 1.0     // of a component that knows one sample only
#define NEW_WEIGHT 0.05
#define TWO_PI 6.28318530717958647692

// The square of the Mahalanobis distance.
static double distance2(const struct component *c, const double x[FEATURES]) {
    double sum = 0;
    for (int i = 0; i < FEATURES; i++) {
        double d = x[i] - c->mean[i];
        sum += d * d / c->variance[i];
    }
    return sum;
}

static double log_spread(const struct component *c) {
    double sum = 0;
    for (int i = 0; i < FEATURES; i++) sum += log(c->variance[i]);
    return sum / 2;
}

// Frequent and narrow first: weight over the geometric mean of the deviations.
static void sort(struct mixture *m) {
    double rank[COMPONENTS];
    for (int i = 0; i < COMPONENTS; i++)
        rank[i] = m->components[i].weight * exp(-log_spread(&m->components[i]) / FEATURES);
    for (int i = 1; i < COMPONENTS; i++)
        for (int j = i; j > 0 && rank[j] > rank[j - 1]; j--) {
            double r = rank[j];
            struct component c = m->components[j];
            rank[j] = rank[j - 1], m->components[j] = m->components[j - 1];
            rank[j - 1] = r, m->components[j - 1] = c;
        }
}

void mixture_start(struct mixture *m) {
    for (int i = 0; i < COMPONENTS; i++) {
        m->components[i].weight = 1.0 / COMPONENTS;
        for (int j = 0; j < FEATURES; j++) {
            m->components[i].mean[j] = i;
            m->components[i].variance[j] = WIDE_VARIANCE;
        }
    }
}

double mixture_score(const struct mixture *m, const double x[FEATURES]) {
    // The logarithm of a sum of exponentials, by the largest of them, so that a far sample does not round to nothing.
    double logs[COMPONENTS], largest = -INFINITY, weights = 0, sum = 0;
    int used = 0;
    while (used < COMPONENTS && weights < BACKGROUND) {
        const struct component *c = &m->components[used];
        weights += c->weight;
        logs[used] = log(c->weight) - distance2(c, x) / 2 - log_spread(c) - FEATURES * log(TWO_PI) / 2;
        if (logs[used] > largest) largest = logs[used];
        used++;
    }
    for (int i = 0; i < used; i++) sum += exp(logs[i] - largest);
    return -(largest + log(sum / weights));
}

void mixture_learn(struct mixture *m, const double x[FEATURES], double rate) {
    int matched = 0;
    while (matched < COMPONENTS && distance2(&m->components[matched], x) >= MATCH * MATCH) matched++;

    for (int i = 0; i < COMPONENTS; i++) m->components[i].weight += rate * ((i == matched) - m->components[i].weight);
    if (matched < COMPONENTS) {
        // All at the same rate: by the density, as Stauffer and Grimson have it, components become too narrow, and at
        // equal recall there were four times the false events.
        struct component *c = &m->components[matched];
        for (int i = 0; i < FEATURES; i++) {
            double d = x[i] - c->mean[i];
            c->mean[i] += rate * d;
            c->variance[i] = fmax(c->variance[i] + rate * (d * d - c->variance[i]), LEAST_VARIANCE);
        }
    } else {
        struct component *weakest = &m->components[COMPONENTS - 1];
        weakest->weight = NEW_WEIGHT;
        for (int i = 0; i < FEATURES; i++) weakest->mean[i] = x[i], weakest->variance[i] = WIDE_VARIANCE;
    }
    double sum = 0;
    for (int i = 0; i < COMPONENTS; i++) sum += m->components[i].weight;
    for (int i = 0; i < COMPONENTS; i++) m->components[i].weight /= sum;
    sort(m);
}
