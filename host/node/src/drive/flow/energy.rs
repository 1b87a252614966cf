//! What calls draw on this node beyond what it draws anyway: counted by the kernel, else derived from the watts that the operator states.

use crate::config::StatedPower;
use crate::power::{Counters, Reading};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long counters are watched before the first call.
const WATCH: Duration = Duration::from_millis(500);

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

    /// Joules of one of so many calls, in the mean; nothing where neither a counter nor the operator tells. By what is stated, one call
    /// after the other keeps the node busy.
    pub(super) fn joules(&self, calls: usize) -> Option<f64> {
        let (took, idle, busy) = match &self.counted {
            Some(Counted {
                counters,
                idle,
                start,
            }) => {
                let busy = counters.watts(start, &counters.read()?)?;
                (self.started.elapsed(), *idle, busy)
            }
            None => (self.started.elapsed(), self.stated.idle?, self.stated.busy?),
        };
        Some(beyond(took, idle, busy) / calls.max(1) as f64)
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
}

/// Joules beyond what an idle node draws; none where it happened to draw more before.
fn beyond(took: Duration, idle: f64, busy: f64) -> f64 {
    (busy - idle).max(0.0) * took.as_secs_f64()
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
        let (one, ten) = (known.joules(1).unwrap(), known.joules(10).unwrap());
        let after = known.started.elapsed().as_secs_f64();
        assert!((4.0 * before..=4.0 * after).contains(&one), "{one}");
        assert!((0.4 * before..=0.4 * after).contains(&ten), "{ten}");
        let half = StatedPower { idle: None, ..stated };
        assert_eq!(meter(half).joules(1), None);
        assert_eq!(meter(StatedPower::default()).joules(1), None);
    }

    #[test]
    fn a_node_that_drew_more_before_gives_nothing_back() {
        assert_eq!(beyond(Duration::from_secs(2), 5.0, 8.0), 6.0);
        assert_eq!(beyond(Duration::from_secs(2), 8.0, 5.0), 0.0);
    }
}
