use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Milliseconds since some start that its holder knows, never going back: what timers are set by. Of no use on another node, and after a
/// restart only to who goes on from the last one written down.
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
