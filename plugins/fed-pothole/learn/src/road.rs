//! A vehicle over a road: a quarter car over a random profile with things in its way, and the exact truth about every sample.
//!
//! It is the same vehicle and the same road that `plugins/event-screen` is tested with (`tests/road.c`, number for number: there
//! is a test), and knows manholes, bumps and joints besides. What is assumed, and from where:
//!
//! | what | how |
//! |---|---|
//! | vehicle | sprung 300 kg, unsprung 40 kg, 20 kN/m, 1.5 kN s/m, tyre 180 kN/m, each within 30 % |
//! | road | white noise through a first-order filter: the spectrum of ISO 8608, `G_d(0.1 cycles/m)` 16·10⁻⁶ m³ in class A, 64 in B |
//! | motion | Runge and Kutta's fourth order at 1 kHz; the mean of ten accelerations is a sample |
//! | speed | swings about its mean by an eighth, with a period of 47 s; nobody brakes for a bump |
//! | sensor | Gaussian noise of 0.02 g |
//! | truth | a sample belongs to a thing from when the wheel reaches it until 0.3 s after it has left it |

use std::f64::consts::PI;

/// Samples of a second.
pub const RATE_HZ: f64 = 100.0;
/// How long the body swings on behind a thing, in seconds.
pub const SETTLES_S: f64 = 0.3;
const STEP_S: f64 = 0.001;
const STEPS: usize = 10;
/// m/s²: 0.02 g.
const NOISE: f64 = 0.19613;

/// Chance, from a seed: xorshift, which the test in C draws from too, so that both have the same roads.
#[derive(Clone, Debug)]
pub struct Chance(u64);

/// What is in the way, as a model has to tell it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Nothing, or a joint of the road.
    Plain,
    /// A hole.
    Pothole,
    /// A cover that lies a little too low or too high.
    Manhole,
    /// A bump across the road.
    Bump,
}

/// A thing on the road.
#[derive(Clone, Copy, Debug)]
pub struct Thing {
    /// What it is.
    pub kind: Kind,
    /// When the wheel reaches it, in seconds.
    pub at_s: f64,
    /// From end to end, in metres.
    pub length_m: f64,
    /// Above the road, or below it where negative, in metres.
    pub height_m: f64,
    /// The share of its length in which it rises, and falls, as half a cosine: at most a half.
    pub edge: f64,
}

/// A quarter car, how fast it goes, and over what.
#[derive(Clone, Copy, Debug)]
pub struct Vehicle {
    sprung_kg: f64,
    unsprung_kg: f64,
    spring: f64,
    damper: f64,
    tyre: f64,
    speed_km_h: f64,
    swing_km_h: f64,
    roughness: f64,
}

/// A sample of the sensor with the truth about it.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Seconds since the start.
    pub time_s: f64,
    /// Of the body, upwards.
    pub acceleration_m_s2: f64,
    /// Of the vehicle.
    pub speed_km_h: f64,
    /// What it belongs to.
    pub kind: Kind,
}

/// A drive that never ends: an iterator over its samples.
#[derive(Clone, Debug)]
pub struct Road {
    vehicle: Vehicle,
    things: Vec<Thing>,
    /// The first thing that the wheel has not reached.
    next: usize,
    /// Things under the wheel, and how far the vehicle had come when it reached them.
    under: Vec<(Thing, f64)>,
    /// What the body swings from, and until when.
    swings: (Kind, f64),
    motion: Motion,
    profile_m: f64,
    time_s: f64,
    way_m: f64,
    chance: Chance,
}

/// Where body and wheel are, and how fast they move.
#[derive(Clone, Copy, Debug, Default)]
struct Motion {
    body: f64,
    body_speed: f64,
    wheel: f64,
    wheel_speed: f64,
}

impl Chance {
    /// From this seed.
    pub fn new(seed: u64) -> Self {
        // A state of zero would stay so, and near seeds begin alike.
        let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self::from_state((mixed ^ (mixed >> 32)).max(1))
    }

    fn from_state(state: u64) -> Self {
        let mut chance = Self(state);
        (0..20).for_each(|_| _ = chance.share());
        chance
    }

    /// Evenly from 0 to 1.
    pub fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly between the two.
    pub fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.share()
    }

    /// Of mean 0 and spread 1.
    fn gauss(&mut self) -> f64 {
        let (u, v) = (self.share(), self.share());
        (-2.0 * (1.0 - u).ln()).sqrt() * (2.0 * PI * v).cos()
    }

    fn about(&mut self, middle: f64, share: f64) -> f64 {
        middle * (1.0 + share * (2.0 * self.share() - 1.0))
    }
}

impl Kind {
    /// All there are, in the order of a model's answers.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Pothole, Self::Manhole, Self::Bump];

    /// Its place among [`Kind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in metrics and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Pothole => "pothole",
            Self::Manhole => "manhole",
            Self::Bump => "bump",
        }
    }
}

impl Vehicle {
    /// One within 30 % of the common one, at about this speed, over a road of this roughness (`G_d(0.1 cycles/m)` in m³).
    pub fn drawn(chance: &mut Chance, speed_km_h: f64, roughness: f64) -> Self {
        Self {
            sprung_kg: chance.about(300.0, 0.3),
            unsprung_kg: chance.about(40.0, 0.3),
            spring: chance.about(20e3, 0.3),
            damper: chance.about(1500.0, 0.3),
            tyre: chance.about(180e3, 0.3),
            speed_km_h: chance.about(speed_km_h, 0.1),
            swing_km_h: speed_km_h / 8.0,
            roughness,
        }
    }

    /// `G_d(0.1 cycles/m)` of its roads, in m³.
    pub const fn roughness(&self) -> f64 {
        self.roughness
    }

    fn speed_km_h(&self, time_s: f64) -> f64 {
        self.speed_km_h + self.swing_km_h * (2.0 * PI * time_s / 47.0).sin()
    }

    fn slope(&self, motion: Motion, ground: f64) -> Motion {
        let between = self.spring * (motion.wheel - motion.body)
            + self.damper * (motion.wheel_speed - motion.body_speed);
        let contact = self.tyre * (ground - motion.wheel);
        Motion {
            body: motion.body_speed,
            body_speed: between / self.sprung_kg,
            wheel: motion.wheel_speed,
            wheel_speed: (contact - between) / self.unsprung_kg,
        }
    }

    /// Where it is a step later; the ground is taken for level within a step.
    fn moved(&self, motion: Motion, ground: f64) -> Motion {
        let first = self.slope(motion, ground);
        let second = self.slope(motion.plus(first, STEP_S / 2.0), ground);
        let third = self.slope(motion.plus(second, STEP_S / 2.0), ground);
        let fourth = self.slope(motion.plus(third, STEP_S), ground);
        let (once, twice) = (STEP_S / 6.0, STEP_S / 3.0);
        motion
            .plus(first, once)
            .plus(second, twice)
            .plus(third, twice)
            .plus(fourth, once)
    }
}

impl Motion {
    fn plus(self, slope: Self, by: f64) -> Self {
        Self {
            body: self.body + by * slope.body,
            body_speed: self.body_speed + by * slope.body_speed,
            wheel: self.wheel + by * slope.wheel,
            wheel_speed: self.wheel_speed + by * slope.wheel_speed,
        }
    }
}

impl Road {
    /// A drive over these things, which are in order of time.
    pub fn new(vehicle: Vehicle, things: Vec<Thing>, chance: Chance) -> Self {
        Self {
            vehicle,
            things,
            next: 0,
            under: Vec::new(),
            swings: (Kind::Plain, 0.0),
            motion: Motion::default(),
            profile_m: 0.0,
            time_s: 0.0,
            way_m: 0.0,
            chance,
        }
    }

    /// What is in the way.
    pub fn things(&self) -> &[Thing] {
        &self.things
    }

    /// How far what lies under the wheel is above the road.
    fn height(&mut self) -> f64 {
        let (time_s, way_m) = (self.time_s, self.way_m);
        while let Some(thing) = self.things.get(self.next)
            && thing.at_s <= time_s
        {
            self.under.push((*thing, way_m));
            self.next += 1;
        }
        let (mut height, mut swings) = (0.0, self.swings);
        self.under.retain(|(thing, reached_m)| {
            let x = (way_m - reached_m) / thing.length_m;
            if x >= 1.0 {
                return false;
            }
            let edge = (x.min(1.0 - x) / thing.edge).min(1.0);
            height += thing.height_m * (1.0 - (PI * edge).cos()) / 2.0;
            if thing.kind != Kind::Plain {
                swings = (thing.kind, time_s + SETTLES_S);
            }
            true
        });
        self.swings = swings;
        height
    }
}

impl Iterator for Road {
    type Item = Point;

    fn next(&mut self) -> Option<Point> {
        let vehicle = self.vehicle;
        let mut acceleration = 0.0;
        for _ in 0..STEPS {
            let m_s = vehicle.speed_km_h(self.time_s) / 3.6;
            self.profile_m += STEP_S * -2.0 * PI * 0.01 * m_s * self.profile_m
                + 2.0 * PI * 0.1 * (vehicle.roughness * m_s * STEP_S).sqrt() * self.chance.gauss();
            let ground = self.profile_m + self.height();
            self.motion = vehicle.moved(self.motion, ground);
            acceleration += vehicle.slope(self.motion, ground).body_speed / STEPS as f64;
            self.time_s += STEP_S;
            self.way_m += m_s * STEP_S;
        }
        let (kind, until_s) = self.swings;
        Some(Point {
            time_s: self.time_s,
            acceleration_m_s2: acceleration + NOISE * self.chance.gauss(),
            speed_km_h: vehicle.speed_km_h(self.time_s),
            kind: if self.time_s < until_s { kind } else { Kind::Plain },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A road of the screen's test, as its C wrote it down: with three decimals of acceleration and one of speed.
    const ROAD: &str = include_str!("../../../event-screen/tests/road.csv");

    fn hole(at_s: f64, length_m: f64, depth_m: f64) -> Thing {
        Thing {
            kind: Kind::Pothole,
            at_s,
            length_m,
            height_m: -depth_m,
            edge: 0.2,
        }
    }

    #[test]
    fn it_is_the_road_that_the_screen_is_tested_on() {
        let mut chance = Chance::from_state(2026);
        let vehicle = Vehicle::drawn(&mut chance, 50.0, 16e-6);
        let holes = vec![hole(9.0, 0.5, 0.05), hole(15.0, 0.8, 0.07), hole(22.0, 0.4, 0.04)];
        let mut road = Road::new(vehicle, holes, chance);
        let mut rows = 0;
        for line in ROAD.lines().skip(1) {
            let numbers: Vec<f64> = line.split(',').map(|field| field.parse().unwrap()).collect();
            let point = road.next().unwrap();
            assert!((point.time_s - numbers[0]).abs() < 1e-6, "{line}: {point:?}");
            assert!(
                (point.acceleration_m_s2 - numbers[1]).abs() < 0.0011,
                "{line}: {point:?}"
            );
            assert!((point.speed_km_h - numbers[2]).abs() < 0.051, "{line}: {point:?}");
            rows += 1;
        }
        assert_eq!(rows, 2800);
    }

    #[test]
    fn samples_belong_to_a_thing_until_it_has_settled() {
        let mut chance = Chance::new(1);
        let vehicle = Vehicle::drawn(&mut chance, 36.0, 16e-6);
        let joint = Thing {
            kind: Kind::Plain,
            ..hole(2.0, 0.1, 0.005)
        };
        let road = Road::new(vehicle, vec![joint, hole(4.0, 1.0, 0.05)], chance);
        let of_hole: Vec<Point> = road.take(800).filter(|point| point.kind != Kind::Plain).collect();
        assert!(of_hole.iter().all(|point| point.kind == Kind::Pothole));
        let (first, last) = (of_hole[0].time_s, of_hole[of_hole.len() - 1].time_s);
        assert_eq!(of_hole.len(), ((last - first) * RATE_HZ).round() as usize + 1);
        assert!((first - 4.0).abs() < 0.02, "{first}");
        // A metre at about 36 km/h, and then the rest.
        assert!((0.36..0.46).contains(&(last - first)), "{last}");
    }

    #[test]
    fn a_hole_shakes_the_body_more_than_the_road_does() {
        let mut chance = Chance::new(2);
        let vehicle = Vehicle::drawn(&mut chance, 50.0, 16e-6);
        let road = Road::new(vehicle, vec![hole(6.0, 0.6, 0.06)], chance);
        let mut most = [0.0f64; 2];
        for point in road.take(1000).skip(200) {
            let most = &mut most[point.kind.index()];
            *most = most.max(point.acceleration_m_s2.abs());
        }
        assert!(most[1] > 1.5 * most[0], "{most:?}");
    }
}
