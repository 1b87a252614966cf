//! Vehicles that are not alike, and what each has driven over: by seed and number, the same on every machine.

use crate::road::{Chance, Kind, Point, Road, Thing, Vehicle};

/// Samples of a window: 5.12 s.
pub const WINDOW: usize = 512;
/// Rows of a window: acceleration and speed.
pub const ROWS: usize = 2;
/// What makes the rows about 1: m/s² and km/h.
const UNITS: (f64, f64) = (2.0, 100.0);
/// Roughness of classes A and B.
const CLASSES: [f64; 2] = [16e-6, 64e-6];
/// Before this nothing is in the way, and nothing is used: the filter of the road starts from a level one.
const STARTS_S: f64 = 8.0;
/// Seconds from one thing to the next in what is trained on: what a screen sends has things close together.
const DENSE_S: f64 = 4.0;

/// A stretch of samples with the truth about each.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// [`ROWS`] rows of [`WINDOW`] numbers.
    pub input: Vec<f32>,
    /// For each sample the place of its kind among [`Kind::ALL`].
    pub kinds: Vec<u8>,
}

/// Which of its drives: nobody trains on those that are held back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Drive {
    /// To train on.
    Train,
    /// To judge by.
    Held,
    /// A long one with few things, to be screened.
    Long,
}

/// What a vehicle of a fleet is like: its suspension, its speed, its roads, and what lies on them.
#[derive(Clone, Debug)]
pub struct Habits {
    vehicle: Vehicle,
    /// Shares of potholes, manholes, bumps and joints among what it meets.
    mix: [f64; 4],
    seed: u64,
}

impl Habits {
    /// Those of a vehicle of the fleet of this seed.
    pub fn of(fleet: u64, vehicle: u32) -> Self {
        let seed = fleet.wrapping_mul(1_000_003).wrapping_add(u64::from(vehicle) * 4);
        let mut chance = Chance::new(seed);
        let speed_km_h = chance.between(30.0, 90.0);
        let class = CLASSES[usize::from(chance.share() < 1.0 / 3.0)];
        let vehicle = Vehicle::drawn(&mut chance, speed_km_h, class);
        // Dirichlet's distribution of 1, and a tenth of each besides, so that nobody never meets a thing.
        let mut mix = [0.0; 4];
        mix.iter_mut()
            .for_each(|share| *share = 0.1 - (1.0 - chance.share()).ln());
        let sum: f64 = mix.iter().sum();
        mix.iter_mut().for_each(|share| *share /= sum);
        Self { vehicle, mix, seed }
    }

    /// Whether its roads are of class A; else they are of class B.
    pub fn is_on_class_a(&self) -> bool {
        self.vehicle.roughness() <= CLASSES[0]
    }

    /// A drive of so many seconds with a thing in each `every_s` on the average.
    pub fn road(&self, drive: Drive, every_s: f64, seconds: f64) -> Road {
        let mut chance = Chance::new(self.seed.wrapping_add(1 + drive as u64));
        let mut things = Vec::new();
        let mut at_s = STARTS_S;
        loop {
            at_s += every_s * chance.between(0.5, 1.5);
            if at_s > seconds {
                return Road::new(self.vehicle, things, chance);
            }
            things.push(self.thing(at_s, &mut chance));
        }
    }

    /// So many windows of a drive, one after the other.
    pub fn windows(&self, drive: Drive, count: usize) -> Vec<Window> {
        let skipped = (STARTS_S * crate::road::RATE_HZ) as usize;
        let seconds = STARTS_S + (count * WINDOW) as f64 / crate::road::RATE_HZ;
        let points: Vec<Point> = self
            .road(drive, DENSE_S, seconds)
            .skip(skipped)
            .take(count * WINDOW)
            .collect();
        points.chunks(WINDOW).map(Window::of).collect()
    }

    fn thing(&self, at_s: f64, chance: &mut Chance) -> Thing {
        let [potholes, manholes, bumps, _] = self.mix;
        let which = chance.share();
        let (kind, length_m, height_m, edge) = if which < potholes {
            let depth = chance.between(0.02, 0.1);
            (Kind::Pothole, chance.between(0.3, 1.0), -depth, 0.2)
        } else if which < potholes + manholes {
            let side = if chance.share() < 0.5 { -1.0 } else { 1.0 };
            (Kind::Manhole, 0.6, side * chance.between(0.005, 0.02), 0.1)
        } else if which < potholes + manholes + bumps {
            let length = match chance.share() < 0.5 {
                true => chance.between(0.3, 0.5),
                false => chance.between(3.0, 4.0),
            };
            (Kind::Bump, length, chance.between(0.03, 0.1), 0.5)
        } else {
            (
                Kind::Plain,
                chance.between(0.05, 0.1),
                -chance.between(0.002, 0.008),
                0.5,
            )
        };
        Thing {
            kind,
            at_s,
            length_m,
            height_m,
            edge,
        }
    }
}

impl Window {
    fn of(points: &[Point]) -> Self {
        let acceleration = points.iter().map(|point| point.acceleration_m_s2 / UNITS.0);
        let speed = points.iter().map(|point| point.speed_km_h / UNITS.1);
        Self {
            input: acceleration.chain(speed).map(|number| number as f32).collect(),
            kinds: points.iter().map(|point| point.kind.index() as u8).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_of_it() {
        let windows = |fleet, vehicle, drive| Habits::of(fleet, vehicle).windows(drive, 3);
        let one = windows(1, 0, Drive::Train);
        assert_eq!(one, windows(1, 0, Drive::Train));
        for other in [(2, 0, Drive::Train), (1, 1, Drive::Train), (1, 0, Drive::Held)] {
            assert_ne!(one, windows(other.0, other.1, other.2));
        }
        for window in &one {
            assert_eq!((window.input.len(), window.kinds.len()), (ROWS * WINDOW, WINDOW));
            assert!(window.input.iter().all(|number| number.is_finite()));
        }
    }

    #[test]
    fn vehicles_meet_everything_in_other_shares() {
        let mut shares = Vec::new();
        for vehicle in 0..6 {
            let habits = Habits::of(3, vehicle);
            assert!(habits.mix.iter().all(|share| *share > 0.0));
            let road = habits.road(Drive::Train, DENSE_S, 2000.0);
            let holes = road.things().iter().filter(|thing| thing.kind == Kind::Pothole);
            let share = holes.count() as f64 / road.things().len() as f64;
            assert!((share - habits.mix[0]).abs() < 0.1, "{share} {:?}", habits.mix);
            shares.push(habits.mix[0]);
        }
        shares.sort_by(f64::total_cmp);
        assert!(shares[5] > shares[0] + 0.1, "{shares:?}");
    }
}
