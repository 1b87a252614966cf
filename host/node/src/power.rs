//! What this node draws: measured by the kernel's counters where it has some, derived from what its operator states where not, unavailable
//! else.

use crate::config::StatedPower;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long idle counters are watched.
const WATCH: Duration = Duration::from_millis(500);

/// Watts of one kind, and where they come from.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "origin")]
pub enum Channel {
    /// Read from counters of the kernel.
    Measured {
        /// Watts.
        watts: f64,
    },
    /// Written down by the operator, which is an assumption: energy is derived as these watts times the time that is measured.
    Derived {
        /// Watts.
        watts: f64,
    },
    /// Not known.
    Unavailable {
        /// Why.
        reason: String,
    },
}

/// The power that a node draws.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PowerProfile {
    /// While it computes.
    pub busy: Channel,
    /// While it does not.
    pub idle: Channel,
    /// On top of the rest, while it sends.
    pub transmit: Channel,
}

impl Channel {
    /// Watts, where they are known.
    pub fn watts(&self) -> Option<f64> {
        match self {
            Self::Measured { watts } | Self::Derived { watts } => Some(*watts),
            Self::Unavailable { .. } => None,
        }
    }

    fn of(measured: Option<f64>, stated: Option<f64>, reason: &str) -> Self {
        match (measured, stated) {
            (Some(watts), _) => Self::Measured { watts },
            (None, Some(watts)) => Self::Derived { watts },
            (None, None) => Self::Unavailable {
                reason: reason.to_owned(),
            },
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured { watts } => write!(f, "{watts:.2} W, measured"),
            Self::Derived { watts } => write!(
                f,
                "{watts:.2} W, derived from `[power]` in node.toml, an assumption"
            ),
            Self::Unavailable { reason } => write!(f, "unavailable: {reason}"),
        }
    }
}

impl PowerProfile {
    /// Each channel with what the node does meanwhile.
    pub fn channels(&self) -> [(&'static str, &Channel); 3] {
        [
            ("busy", &self.busy),
            ("idle", &self.idle),
            ("sending", &self.transmit),
        ]
    }

    /// From counters that were watched over idle and busy time, and what the operator states. A radio has no counter anywhere.
    pub(crate) fn new(measured: Option<MeasuredPower>, stated: StatedPower) -> Self {
        let no_counter = "the kernel shows no energy counter, and `[power]` in node.toml states nothing";
        let no_radio = "no kernel counts what sending takes, and `[power]` in node.toml states nothing";
        Self {
            busy: Channel::of(measured.map(|watts| watts.busy), stated.busy, no_counter),
            idle: Channel::of(measured.map(|watts| watts.idle), stated.idle, no_counter),
            transmit: Channel::of(None, stated.transmit, no_radio),
        }
    }
}

/// Watts by the counters of the kernel.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct MeasuredPower {
    idle: f64,
    busy: f64,
}

/// The counters of this machine.
pub(crate) struct Counters {
    packages: Vec<Package>,
}

/// One processor package: microjoules that wrap around.
struct Package {
    energy: PathBuf,
    wraps_at: u64,
}

/// What the counters said at a moment.
pub(crate) struct Reading {
    at: Instant,
    microjoules: Vec<u64>,
}

impl Counters {
    /// Those of the kernel's power capping framework (RAPL on Intel and AMD); nothing where none can be read.
    pub(crate) fn find() -> Option<Self> {
        Self::under(Path::new("/sys/class/powercap"))
    }

    fn under(folder: &Path) -> Option<Self> {
        let entries = folder.read_dir().ok()?.flatten();
        // `intel-rapl:0` is a package, `intel-rapl:0:1` a part of it that is counted there already.
        let is_package = |name: &str| name.matches(':').count() == 1;
        let packages: Vec<Package> = entries
            .filter(|entry| is_package(&entry.file_name().to_string_lossy()))
            .filter_map(|entry| {
                let energy = entry.path().join("energy_uj");
                number(&energy)?;
                let wraps_at = number(&entry.path().join("max_energy_range_uj"))?;
                Some(Package { energy, wraps_at })
            })
            .collect();
        (!packages.is_empty()).then_some(Self { packages })
    }

    pub(crate) fn read(&self) -> Option<Reading> {
        let each = self.packages.iter().map(|package| number(&package.energy));
        Some(Reading {
            at: Instant::now(),
            microjoules: each.collect::<Option<_>>()?,
        })
    }

    /// Mean watts from one reading to another.
    pub(crate) fn watts(&self, from: &Reading, to: &Reading) -> Option<f64> {
        let seconds = to.at.saturating_duration_since(from.at).as_secs_f64();
        let pairs = from.microjoules.iter().zip(&to.microjoules);
        let drawn = pairs
            .zip(&self.packages)
            .map(|((from, to), package)| match to >= from {
                true => to - from,
                false => package.wraps_at.saturating_sub(*from) + to,
            });
        let joules = drawn.sum::<u64>() as f64 / 1e6;
        (seconds > 0.0).then(|| joules / seconds)
    }
}

/// Does work that blocks, and says what was drawn before and during it.
pub(crate) fn watched<T>(work: impl FnOnce() -> T) -> (T, Option<MeasuredPower>) {
    let Some(counters) = Counters::find() else {
        return (work(), None);
    };
    let before = counters.read();
    #[expect(clippy::disallowed_methods, reason = "a thread for blocking work")]
    std::thread::sleep(WATCH);
    let start = counters.read();
    let done = work();
    let end = counters.read();
    let measured = || {
        let (before, start, end) = (before?, start?, end?);
        Some(MeasuredPower {
            idle: counters.watts(&before, &start)?,
            busy: counters.watts(&start, &end)?,
        })
    };
    (done, measured())
}

fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like the kernel's, with two packages and a part of one.
    fn machine() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, energy) in [
            ("intel-rapl:0", 900),
            ("intel-rapl:1", 100),
            ("intel-rapl:0:0", 50),
        ] {
            let at = folder.path().join(name);
            std::fs::create_dir(&at).unwrap();
            std::fs::write(at.join("energy_uj"), format!("{energy}\n")).unwrap();
            std::fs::write(at.join("max_energy_range_uj"), "1000\n").unwrap();
        }
        std::fs::create_dir(folder.path().join("intel-rapl")).unwrap();
        folder
    }

    #[test]
    fn packages_are_summed_and_wrap_around() {
        let folder = machine();
        let counters = Counters::under(folder.path()).unwrap();
        assert_eq!(counters.packages.len(), 2);
        let from = counters.read().unwrap();
        std::fs::write(folder.path().join("intel-rapl:0/energy_uj"), "200").unwrap();
        std::fs::write(folder.path().join("intel-rapl:1/energy_uj"), "400").unwrap();
        let mut to = counters.read().unwrap();
        to.at = from.at + Duration::from_micros(100);
        // 300 µJ past the wrap of the first, 300 of the second, in 100 µs.
        let watts = counters.watts(&from, &to).unwrap();
        assert!((watts - 6.0).abs() < 1e-9, "{watts}");
    }

    #[test]
    fn a_machine_without_counters_says_so() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Counters::under(folder.path()).is_none());
        assert!(Counters::under(&folder.path().join("none")).is_none());
        let stated = StatedPower {
            busy: Some(6.0),
            ..StatedPower::default()
        };
        let profile = PowerProfile::new(None, stated);
        assert_eq!(profile.busy, Channel::Derived { watts: 6.0 });
        assert!(matches!(&profile.idle, Channel::Unavailable { reason } if reason.contains("[power]")));
    }

    #[test]
    fn what_is_measured_counts_before_what_is_stated() {
        let measured = MeasuredPower { idle: 2.0, busy: 9.0 };
        let stated = StatedPower {
            busy: Some(6.0),
            idle: Some(3.0),
            transmit: Some(1.0),
        };
        let profile = PowerProfile::new(Some(measured), stated);
        assert_eq!(profile.busy.watts(), Some(9.0));
        assert_eq!(profile.idle, Channel::Measured { watts: 2.0 });
        assert_eq!(profile.transmit, Channel::Derived { watts: 1.0 });
        let origins = profile.channels().map(|(_, channel)| {
            let told = serde_json::to_value(channel).unwrap();
            told["origin"].as_str().unwrap().to_owned()
        });
        assert_eq!(origins, ["measured", "measured", "derived"]);
    }
}
