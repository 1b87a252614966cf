use super::Failure;
use std::time::Duration;

/// Failures one after the other after which a policy is not asked for a while: each may cost all the fuel that it has.
const MOST_IN_A_ROW: u32 = 3;
/// For how long.
const PAUSE: Duration = Duration::from_secs(10);

/// How often a policy that a plugin brings has failed one time after the other, and whether it is asked now. Times are since some start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Strikes {
    /// Failures of its own since it last decided.
    in_a_row: u32,
    /// Until then it is not asked.
    paused: Duration,
}

impl Strikes {
    /// Whether it is asked now.
    pub(super) fn check(&self, now: Duration) -> Result<(), Failure> {
        match now < self.paused {
            true => Err(Failure::Paused {
                failures: self.in_a_row,
                pause: self.paused.saturating_sub(now),
            }),
            false => Ok(()),
        }
    }

    /// It has decided, or failed. What was not its own fault is not held against it.
    pub(super) fn count(&mut self, now: Duration, failure: Option<&Failure>) {
        match failure {
            None => self.in_a_row = 0,
            Some(failure) if failure.is_of_the_node() => {}
            Some(_) => {
                self.in_a_row += 1;
                if self.in_a_row >= MOST_IN_A_ROW {
                    self.paused = now.saturating_add(PAUSE);
                }
            }
        }
    }
}
