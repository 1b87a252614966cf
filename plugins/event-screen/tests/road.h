// A quarter car over a random road with potholes at known times: what the screen is measured on.
// plugins/fed-pothole/learn/src/road.rs makes the same roads, and is tested on road.csv.
#pragma once

#include "screen.h"

#include <stdbool.h>
#include <stdint.h>

struct vehicle {
    double sprung_kg, unsprung_kg, spring, damper, tyre; // N/m, N s/m
    double speed_km_h, speed_swing;                      // mean and how far it swings about it
    double roughness;                                    // ISO 8608 G_d(0.1 cycles/m) in m^3: 16e-6 is class A
};

struct pothole {
    double at_s, length_m, depth_m;
};

struct road {
    struct vehicle vehicle;
    const struct pothole *potholes;
    int count;
    uint64_t random;
    double body, body_v, wheel, wheel_v, profile, time_s, entered_m[64];
    double way_m;
};

void road_start(struct road *road, uint64_t seed, struct vehicle vehicle, const struct pothole *potholes, int count);
void road_next(struct road *road, struct sample *sample);

// Evenly between 0 and 1.
double road_random(uint64_t *state);
// A vehicle within 30 % of the common one.
struct vehicle road_vehicle(uint64_t *state, double speed_km_h, double roughness);
