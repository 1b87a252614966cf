#include "filter.h"

#include <math.h>

#define PI 3.14159265358979323846
#define RATE_HZ 100.0

// Butterworth sections by the bilinear transform.
static struct biquad section(double cut_hz, int high) {
    double k = tan(PI * cut_hz / RATE_HZ), k2 = k * k;
    double norm = 1 / (1 + sqrt(2) * k + k2);
    double gain = (high ? 1 : k2) * norm;
    return (struct biquad){
        .b0 = gain,
        .b1 = high ? -2 * gain : 2 * gain,
        .b2 = gain,
        .a1 = 2 * (k2 - 1) * norm,
        .a2 = (1 - sqrt(2) * k + k2) * norm,
    };
}

static double step(struct biquad *s, double x) {
    double y = s->b0 * x + s->z1;
    s->z1 = s->b1 * x - s->a1 * y + s->z2;
    s->z2 = s->b2 * x - s->a2 * y;
    return y;
}

void band_pass_start(struct band_pass *filter) {
    filter->high = section(0.2, 1);
    filter->low = section(20, 0);
}

double band_pass(struct band_pass *filter, double value) {
    return step(&filter->low, step(&filter->high, value));
}
