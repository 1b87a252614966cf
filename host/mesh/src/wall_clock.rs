use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the clock of this machine shows: the time since 1970, zero where it shows an earlier one. Boards without a battery start in the
/// past; what is certain is the [time of a standing](crate::Standing::now).
pub fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
