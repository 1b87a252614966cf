//! What is true while a trace is replayed: rates of the links, load of the tiers, errors of the profiles. All of it comes
//! from the seed; none of it depends on what a contender does.

use fastrand::Rng;
use karman_sim::normal;
use karman_study::trace::{Drift, Trace};

/// Length of a trace.
pub(crate) const SECONDS: usize = 240;
/// A request starts each this many milliseconds.
pub(crate) const SPACING_MS: f64 = 500.0;
/// A rate holds for this long.
const STEP_MS: f64 = 100.0;
const STEPS: usize = SECONDS * 10;

/// One draw of everything.
pub(crate) struct World {
    /// Bytes per millisecond between edge and fog, and between fog and cloud, for each step.
    rates: [Vec<f64>; 2],
    /// How much longer each tier takes than nominal, for each second.
    load: [Vec<f64>; 3],
    /// The same for each request.
    noise: Vec<[f64; 3]>,
    /// True over profiled time, for each tier and layer.
    pub(crate) profile_error: [Vec<f64>; 3],
}

impl World {
    /// Spread of the profiles' errors, of the load, of single requests.
    const SPREADS: (f64, f64, f64) = (0.1, 0.15, 0.03);
    /// Megabits per second between fog and cloud.
    pub(crate) const WIRED: f64 = 1000.0;

    pub(crate) fn draw(trace: Trace, break_even: f64, layers: usize, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let bytes_per_ms = |rate: f64| rate * 1e3 / 8.0;
        let access = trace.rates(break_even, STEPS, &mut rng);
        let mut wired = Drift::new(0.05, 10.0);
        let wired: Vec<f64> = (0..STEPS).map(|_| Self::WIRED * wired.next(&mut rng)).collect();
        let rates = [access, wired].map(|rates| rates.into_iter().map(bytes_per_ms).collect());
        let load = [(); 3].map(|()| {
            let mut load = Drift::new(Self::SPREADS.1, 20.0);
            (0..SECONDS).map(|_| load.next(&mut rng)).collect()
        });
        let profile_error = [(); 3].map(|()| {
            let errors = (0..layers).map(|_| (Self::SPREADS.0 * normal(&mut rng)).exp());
            errors.collect()
        });
        let noise =
            (0..Self::requests()).map(|_| [(); 3].map(|()| (Self::SPREADS.2 * normal(&mut rng)).exp()));
        Self {
            rates,
            load,
            noise: noise.collect(),
            profile_error,
        }
    }

    pub(crate) const fn requests() -> usize {
        (SECONDS as f64 * 1e3 / SPACING_MS) as usize
    }

    /// Bytes per millisecond at this time.
    pub(crate) fn rate(&self, hop: usize, at_ms: f64) -> f64 {
        let step = (at_ms / STEP_MS) as usize;
        self.rates[hop][step.min(STEPS - 1)]
    }

    pub(crate) fn load(&self, tier: usize, at_ms: f64) -> f64 {
        self.load[tier][((at_ms / 1e3) as usize).min(SECONDS - 1)]
    }

    pub(crate) fn noise(&self, tier: usize, request: usize) -> f64 {
        self.noise[request][tier]
    }

    /// When so many bytes have gone over a link that is busy with weights until some time, half of it being theirs; or how
    /// many have gone by a deadline.
    pub(crate) fn send(
        &self,
        hop: usize,
        start_ms: f64,
        bytes: f64,
        shared_until: f64,
        deadline: f64,
    ) -> Result<f64, f64> {
        let (mut now, mut left) = (start_ms, bytes);
        loop {
            let shared = now < shared_until;
            let rate = self.rate(hop, now) * if shared { 0.5 } else { 1.0 };
            let last = now >= STEPS as f64 * STEP_MS;
            let mut until = if last {
                f64::INFINITY
            } else {
                ((now / STEP_MS).floor() + 1.0) * STEP_MS
            };
            if shared {
                until = until.min(shared_until);
            }
            let done = if rate > 0.0 {
                now + left / rate
            } else {
                f64::INFINITY
            };
            if done.min(until) >= deadline {
                return Err(bytes - left + rate * (deadline - now).max(0.0));
            }
            if done <= until {
                return Ok(done);
            }
            left -= rate * (until - now);
            now = until;
        }
    }
}
