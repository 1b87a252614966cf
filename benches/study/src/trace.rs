//! Links as they may be: rates over time, written down before any study ran. What a trace does depends on its seed alone.

use fastrand::Rng;
use karman_sim::normal;

/// Seconds for which a rate holds.
pub const STEP_S: f64 = 0.1;

/// How the link between edge and fog behaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trace {
    /// A few percent of noise.
    Steady,
    /// An eighth of the rate from 40 % of the time on.
    StepDown,
    /// An eighth of the rate until 40 % of the time.
    StepUp,
    /// Log-normal around 0.6 of the rate, a factor of 1.8 either way, with a memory of five seconds.
    Lte,
    /// Nothing at all for 2 to 6 % of the time (5 to 15 s of 240), at 15, 45 and 75 % of it.
    Outage,
}

impl Trace {
    /// Every trace.
    pub const ALL: [Self; 5] = [
        Self::Steady,
        Self::StepDown,
        Self::StepUp,
        Self::Lte,
        Self::Outage,
    ];

    /// Its name in the rows: `step_down`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::StepDown => "step_down",
            Self::StepUp => "step_up",
            Self::Lte => "lte",
            Self::Outage => "outage",
        }
    }

    /// Megabits per second for each of so many steps of [`STEP_S`], drawn around the rate from which on it pays to cut.
    pub fn rates(self, break_even: f64, steps: usize, rng: &mut Rng) -> Vec<f64> {
        // From once to four times the rate from which on it pays to cut, drawn evenly on a logarithmic scale.
        let base = break_even * 4.0_f64.powf(rng.f64());
        let mut noise = Drift::new(0.05, 10.0);
        let mut fading = Drift::new(1.8_f64.ln(), 50.0);
        let outages: Vec<(usize, usize)> = [0.15, 0.45, 0.75]
            .map(|at| ((steps as f64 * at) as usize, rng.usize(steps / 48..steps / 16)))
            .to_vec();
        let rate = |step: usize| {
            let noisy = base * noise.next(rng);
            let late = step >= steps * 2 / 5;
            match self {
                Self::Steady => noisy,
                Self::StepDown if late => noisy / 8.0,
                Self::StepUp if !late => noisy / 8.0,
                Self::StepDown | Self::StepUp => noisy,
                Self::Lte => base * 0.6 * fading.next(rng),
                Self::Outage => {
                    let out = outages
                        .iter()
                        .any(|(start, length)| (*start..start + length).contains(&step));
                    if out { 0.0 } else { noisy }
                }
            }
        };
        (0..steps).map(rate).collect()
    }
}

/// Watts that are assumed of an edge board, a fog machine and a cloud machine (a Raspberry Pi 4, a laptop, a desktop computer): busy,
/// idle, and on top of the rest while sending. No meter said so.
pub const ASSUMED_WATTS: [[f64; 3]; 3] = [[6.4, 2.7, 1.2], [35.0, 10.0, 1.2], [150.0, 40.0, 1.0]];

/// Each of these watts once halved and once doubled: which tier, which of its three, and by what.
pub fn other_watts() -> impl Iterator<Item = (usize, usize, f64)> {
    (0..3).flat_map(|tier| (0..3).flat_map(move |field| [0.5, 2.0].map(|by| (tier, field, by))))
}

/// A factor that wanders around 1: log-normal with this spread, forgetting over so many steps.
#[derive(Clone, Debug)]
pub struct Drift {
    spread: f64,
    keep: f64,
    log: Option<f64>,
}

impl Drift {
    /// Around 1 with this spread of its logarithm, at no particular place yet.
    pub fn new(spread: f64, memory_steps: f64) -> Self {
        Self {
            spread,
            keep: (-1.0 / memory_steps).exp(),
            log: None,
        }
    }

    /// One step further.
    pub fn next(&mut self, rng: &mut Rng) -> f64 {
        let fresh = normal(rng);
        let log = match self.log {
            None => fresh,
            Some(log) => self.keep * log + (1.0 - self.keep * self.keep).sqrt() * fresh,
        };
        self.log = Some(log);
        (self.spread * log).exp()
    }
}
