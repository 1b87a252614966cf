//! What is said at the gate takes its time on an emulated link, as on a real one. Each side waits for its own words before its last, which the
//! other has to hear, so that a connection begins at both ends at the same time: who took it for ready earlier would ask what nobody answers.

use super::PATIENCE;
use crate::membership::Member;
use std::time::Duration;
use tokio::time::sleep;

/// The longest that is waited. The other side may wait as long, and both have to be done within [`PATIENCE`].
const LONGEST: Duration = Duration::from_secs(8);
const _: () = assert!(2 * LONGEST.as_secs() < PATIENCE.as_secs());

/// How long all that this node says to a member until it is let in is on its way; nothing where no link is emulated.
pub(crate) type OnItsWay<'a> = &'a (dyn Fn(&Member) -> Duration + Send + Sync);

/// On a link as it is.
pub(super) const fn at_once(_: &Member) -> Duration {
    Duration::ZERO
}

/// Waits until it would have arrived.
pub(super) async fn arrive(way: Duration) {
    if !way.is_zero() {
        sleep(way.min(LONGEST)).await;
    }
}
