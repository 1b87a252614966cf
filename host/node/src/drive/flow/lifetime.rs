//! The time of a run whatever its workflow says: what a node accepts lives for so long.

use karman_types::{TaskError, format_duration};
use std::time::Duration;

/// A run is left this part of what accepted tasks live to undo what it did, and this much at most.
const FOR_UNDOING: u32 = 10;
const MOST_FOR_UNDOING: Duration = Duration::from_secs(3600);

/// The limit, as the configuration names it.
pub(super) const LIFETIME: &str = "tasks.lifetime";

/// How long a run goes on whose accepted task has this much time left.
pub(super) fn goes_on_for(left: Duration, lifetime: Duration) -> Duration {
    left.saturating_sub((lifetime / FOR_UNDOING).min(MOST_FOR_UNDOING))
}

/// Why a run fails that has gone on for so long.
pub(super) fn outlived(lifetime: Duration) -> TaskError {
    over(format!(
        "the run has not ended in time: what a node accepts lives for `{LIFETIME}` ({}), and the end of that is for undoing",
        format_duration(lifetime)
    ))
}

/// Why a run has failed whose accepted task has expired: nobody coordinated it when its time was over.
pub(super) fn expired() -> TaskError {
    over("the time of the run was over before anybody could end it".into())
}

fn over(says: String) -> TaskError {
    TaskError::deadline(says)
        .with_field(LIFETIME)
        .with_hint("`lifetime` of `[tasks]` in node.toml says for how long; give the workflow a shorter `deadline`, or run it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_the_time_is_left_for_undoing() {
        const DAY: Duration = Duration::from_secs(86_400);
        let seconds = Duration::from_secs;
        assert_eq!(goes_on_for(DAY * 7, DAY * 7), DAY * 7 - seconds(3600));
        assert_eq!(goes_on_for(seconds(60), seconds(60)), seconds(54));
        // One that is taken up late fails at once.
        assert_eq!(goes_on_for(seconds(1800), DAY * 7), Duration::ZERO);
    }
}
