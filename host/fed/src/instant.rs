use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Milliseconds since the run began, never going back. After a restart it goes on from the time in the checkpoint.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Instant(pub u64);

impl Instant {
    /// This much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// The time from `earlier` to here; zero when that lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
