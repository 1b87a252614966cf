//! What calls draw on this node beyond what it draws anyway: measured by the kernel's counters, else derived from the watts that the operator
//! states, else unavailable.

use crate::config::StatedPower;
use crate::power::{Counters, Reading};
use karman_types::Implementation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long counters are watched before the first call.
const WATCH: Duration = Duration::from_millis(500);
/// How long they have to run at least for a count of what they drew: in less, what else the node does counts for more.
const LEAST: Duration = Duration::from_millis(100);

/// Where the joules of a call come from.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "origin")]
pub enum EnergyOrigin {
    /// Counted by the kernel while the calls ran.
    Measured,
    /// The watts of `[power]`, which are an assumption, times the time that the calls took.
    Derived,
    /// Said by the operator.
    Stated,
    /// Known since an earlier measurement; nothing told it this time.
    Before,
    /// Not known.
    Unavailable {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for EnergyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured => f.write_str("measured"),
            Self::Derived => f.write_str("derived"),
            Self::Stated => f.write_str("stated"),
            Self::Before => f.write_str("before"),
            Self::Unavailable { reason } => write!(f, "unavailable: {reason}"),
        }
    }
}

/// What a call draws.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drawn {
    /// Nothing where it is unavailable.
    pub(super) joules: Option<f64>,
    pub(super) origin: EnergyOrigin,
}

impl Drawn {
    const fn of(joules: f64, origin: EnergyOrigin) -> Self {
        Self {
            joules: Some(joules),
            origin,
        }
    }

    /// Of an implementation that does not run on the processor of this node.
    pub(super) fn elsewhere() -> Self {
        Self::unavailable("what it draws on a GPU, in parts or elsewhere is not counted here")
    }

    pub(super) fn unavailable(reason: &str) -> Self {
        Self {
            joules: None,
            origin: EnergyOrigin::Unavailable {
                reason: reason.to_owned(),
            },
        }
    }

    /// What an implementation draws, by its name: as it is said, else as it was found now, else as it was known before.
    pub(super) fn or_known(
        self,
        name: &str,
        said: &BTreeMap<String, f64>,
        before: &[Implementation],
    ) -> Self {
        if let Some(joules) = said.get(name) {
            return Self::of(*joules, EnergyOrigin::Stated);
        }
        let known = before.iter().find(|known| known.name == name);
        match (self.joules, known.and_then(|known| known.profile.energy)) {
            (None, Some(joules)) => Self::of(joules, EnergyOrigin::Before),
            _ => self,
        }
    }
}

/// Watches calls that follow each other, from its start on.
pub(super) struct Meter {
    started: Instant,
    counted: Option<Counted>,
    stated: StatedPower,
}

/// Counters of the kernel, as they stood at the start.
struct Counted {
    counters: Counters,
    /// Watts before it.
    idle: f64,
    start: Reading,
}

impl Meter {
    /// Looks what the node draws before, where its kernel counts that; so it takes half a second there.
    pub(super) async fn start(stated: StatedPower) -> Self {
        let counted = match Counters::find() {
            Some(counters) => Counted::start(counters).await,
            None => None,
        };
        Self {
            started: Instant::now(),
            counted,
            stated,
        }
    }

    /// What one of so many calls drew, in the mean: as it was counted, else by what is stated, while one call after the other keeps the node
    /// busy.
    pub(super) fn drawn(&self, calls: usize) -> Drawn {
        let took = self.started.elapsed();
        let counted = self.counted.as_ref();
        let counted = counted.map(|counted| measured(took, counted.idle, counted.busy()));
        let of = |all: f64, origin| Drawn::of(all / calls.max(1) as f64, origin);
        match (counted, self.stated.idle, self.stated.busy) {
            (Some(Ok(all)), ..) => of(all, EnergyOrigin::Measured),
            (_, Some(idle), Some(busy)) => match beyond(took, idle, busy) {
                Some(all) => of(all, EnergyOrigin::Derived),
                None => Drawn::unavailable("`busy` of `[power]` in node.toml is no more than `idle`"),
            },
            (Some(Err(reason)), ..) => Drawn::unavailable(reason),
            (None, ..) => Drawn::unavailable(
                "the kernel shows no energy counter, and `[power]` in node.toml does not state `busy` and `idle`",
            ),
        }
    }
}

impl Counted {
    async fn start(counters: Counters) -> Option<Self> {
        let before = counters.read()?;
        sleep(WATCH).await;
        let start = counters.read()?;
        let idle = counters.watts(&before, &start)?;
        Some(Self {
            counters,
            idle,
            start,
        })
    }

    /// Watts since the start.
    fn busy(&self) -> Option<f64> {
        self.counters.watts(&self.start, &self.counters.read()?)
    }
}

/// Joules that the counters show beyond what the node drew before, or why they show none.
fn measured(took: Duration, idle: f64, busy: Option<f64>) -> Result<f64, &'static str> {
    if took < LEAST {
        return Err(
            "the examples ran for less than 100 ms, too short to count what they drew: give more of them",
        );
    }
    let busy = busy.ok_or("the kernel's energy counters could not be read a second time")?;
    beyond(took, idle, busy)
        .ok_or("the node drew no more than before: give more examples, and let nothing else run meanwhile")
}

/// Joules beyond what an idle node draws; nothing where it happened to draw as much before.
fn beyond(took: Duration, idle: f64, busy: f64) -> Option<f64> {
    (busy > idle).then_some((busy - idle) * took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(stated: StatedPower) -> Meter {
        Meter {
            started: Instant::now(),
            counted: None,
            stated,
        }
    }

    #[test]
    fn what_the_operator_states_is_taken_without_counters_and_nothing_is_guessed() {
        let stated = StatedPower {
            busy: Some(6.0),
            idle: Some(2.0),
            transmit: None,
        };
        let known = meter(stated);
        let before = known.started.elapsed().as_secs_f64();
        let joules = |calls| {
            let drawn = known.drawn(calls);
            assert_eq!(drawn.origin, EnergyOrigin::Derived);
            drawn.joules.unwrap()
        };
        let (one, ten) = (joules(1), joules(10));
        let after = known.started.elapsed().as_secs_f64();
        assert!((4.0 * before..=4.0 * after).contains(&one), "{one}");
        assert!((0.4 * before..=0.4 * after).contains(&ten), "{ten}");
        let half = StatedPower { idle: None, ..stated };
        for unknown in [half, StatedPower::default()] {
            let drawn = meter(unknown).drawn(1);
            assert_eq!(drawn.joules, None);
            assert!(
                matches!(&drawn.origin, EnergyOrigin::Unavailable { reason } if reason.contains("[power]")),
                "{drawn:?}"
            );
        }
    }

    #[test]
    fn what_counters_do_not_show_is_no_measurement() {
        let two = Duration::from_secs(2);
        assert_eq!(measured(two, 5.0, Some(8.0)), Ok(6.0));
        for (took, busy, says) in [
            (two, Some(5.0), "no more than before"),
            (two, Some(3.0), "no more than before"),
            (two, None, "a second time"),
            (LEAST / 2, Some(8.0), "less than 100 ms"),
        ] {
            let reason = measured(took, 5.0, busy).unwrap_err();
            assert!(reason.contains(says), "{reason}");
        }
        let upside_down = StatedPower {
            busy: Some(2.0),
            idle: Some(6.0),
            transmit: None,
        };
        let drawn = meter(upside_down).drawn(1);
        assert_eq!(
            drawn,
            Drawn::unavailable("`busy` of `[power]` in node.toml is no more than `idle`")
        );
    }
}
