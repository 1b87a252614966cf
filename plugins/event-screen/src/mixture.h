// What is usual: an on-line mixture of Gaussians in the manner of Stauffer and Grimson.
#pragma once

#include <stdbool.h>

enum { FEATURES = 3, COMPONENTS = 3 };

struct component {
    double weight;
    double mean[FEATURES], variance[FEATURES];
};

struct mixture {
    struct component components[COMPONENTS];
};

void mixture_start(struct mixture *mixture);

// How unusual `x` is: -log of its density under the components that make up the background.
double mixture_score(const struct mixture *mixture, const double x[FEATURES]);

// Learns `x` at the given rate (0 to 1 a sample).
void mixture_learn(struct mixture *mixture, const double x[FEATURES], double rate);
