#include "road.h"

#include <math.h>

#define PI 3.14159265358979323846
#define STEP_S 0.001
#define STEPS 10
#define NOISE 0.19613 // m/s2: 0.02 g

double road_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static double gauss(uint64_t *state) {
    double u = road_random(state), v = road_random(state);
    return sqrt(-2 * log(1 - u)) * cos(2 * PI * v);
}

static double about(uint64_t *state, double middle, double share) {
    return middle * (1 + share * (2 * road_random(state) - 1));
}

struct vehicle road_vehicle(uint64_t *state, double speed_km_h, double roughness) {
    return (struct vehicle){
        about(state, 300, 0.3),  about(state, 40, 0.3),     about(state, 20e3, 0.3), about(state, 1500, 0.3),
        about(state, 180e3, 0.3), about(state, speed_km_h, 0.1), speed_km_h / 8,      roughness,
    };
}

void road_start(struct road *road, uint64_t seed, struct vehicle vehicle, const struct pothole *potholes, int count) {
    *road = (struct road){.vehicle = vehicle, .potholes = potholes, .count = count, .random = seed};
    for (int i = 0; i < 64; i++) road->entered_m[i] = -1;
}

static double speed(const struct road *road) {
    return road->vehicle.speed_km_h + road->vehicle.speed_swing * sin(2 * PI * road->time_s / 47);
}

// How deep the road lies under the wheel: cosine edges over a fifth of the length each.
static double hole(struct road *road) {
    double depth = 0;
    for (int i = 0; i < road->count; i++) {
        const struct pothole *p = &road->potholes[i];
        if (road->time_s < p->at_s) continue;
        if (road->entered_m[i] < 0) road->entered_m[i] = road->way_m;
        double x = (road->way_m - road->entered_m[i]) / p->length_m;
        if (x >= 1) continue;
        double edge = fmin(fmin(x, 1 - x) / 0.2, 1);
        depth += p->depth_m * (1 - cos(PI * edge)) / 2;
    }
    return depth;
}

struct state {
    double body, body_v, wheel, wheel_v;
};

static struct state slope(const struct vehicle *v, struct state s, double ground) {
    double between = v->spring * (s.wheel - s.body) + v->damper * (s.wheel_v - s.body_v);
    double contact = v->tyre * (ground - s.wheel);
    return (struct state){s.body_v, between / v->sprung_kg, s.wheel_v, (contact - between) / v->unsprung_kg};
}

static struct state add(struct state s, struct state d, double by) {
    return (struct state){s.body + by * d.body, s.body_v + by * d.body_v, s.wheel + by * d.wheel,
                          s.wheel_v + by * d.wheel_v};
}

void road_next(struct road *road, struct sample *sample) {
    const struct vehicle *v = &road->vehicle;
    double mean = 0;
    for (int i = 0; i < STEPS; i++) {
        double m_s = speed(road) / 3.6;
        // White noise through a first-order shaping filter is a road with the spectrum of ISO 8608.
        road->profile += STEP_S * -2 * PI * 0.01 * m_s * road->profile +
                         2 * PI * 0.1 * sqrt(v->roughness * m_s * STEP_S) * gauss(&road->random);
        double ground = road->profile - hole(road);
        struct state s = {road->body, road->body_v, road->wheel, road->wheel_v};
        struct state a = slope(v, s, ground), b = slope(v, add(s, a, STEP_S / 2), ground);
        struct state c = slope(v, add(s, b, STEP_S / 2), ground), d = slope(v, add(s, c, STEP_S), ground);
        s = add(add(add(add(s, a, STEP_S / 6), b, STEP_S / 3), c, STEP_S / 3), d, STEP_S / 6);
        road->body = s.body, road->body_v = s.body_v, road->wheel = s.wheel, road->wheel_v = s.wheel_v;
        mean += slope(v, s, ground).body_v / STEPS;
        road->time_s += STEP_S;
        road->way_m += m_s * STEP_S;
    }
    *sample = (struct sample){road->time_s, mean + NOISE * gauss(&road->random), speed(road)};
}
