// Takes 0.2 to 20 Hz out of a signal of 100 Hz: neither gravity and slopes nor the engine.
#pragma once

// One second-order section.
struct biquad {
    double b0, b1, b2, a1, a2;
    double z1, z2;
};

struct band_pass {
    struct biquad high, low;
};

void band_pass_start(struct band_pass *filter);
double band_pass(struct band_pass *filter, double value);
