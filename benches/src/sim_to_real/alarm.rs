//! Wakes at a time to some ten microseconds. The timers of the runtime count in milliseconds, and round up: requests that come a millisecond late
//! look like nodes that take a millisecond longer.

use std::sync::mpsc::{Sender, channel};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

/// A thread that sleeps until the times that it is given, one after the other.
pub(super) struct Alarm {
    times: Sender<Instant>,
    rings: UnboundedReceiver<()>,
}

impl Alarm {
    /// None is set yet. The thread ends with this.
    pub(super) fn start() -> Self {
        let (times, set) = channel::<Instant>();
        let (ring, rings) = unbounded_channel();
        std::thread::spawn(move || {
            for at in set {
                while Instant::now() < at {
                    std::thread::park_timeout(at.saturating_duration_since(Instant::now()));
                }
                if ring.send(()).is_err() {
                    return;
                }
            }
        });
        Self { times, rings }
    }

    /// Rings at this time, after those that were set before.
    pub(super) fn set(&self, at: Instant) {
        // Its thread lives as long as this.
        let _ = self.times.send(at);
    }

    /// Until it rings for the next time that was set.
    pub(super) async fn rings(&mut self) {
        if self.rings.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn it_rings_once_for_each_time_and_never_early() {
        let mut alarm = Alarm::start();
        let times = [5, 2, 9].map(|ms| Instant::now() + Duration::from_millis(ms));
        times.iter().for_each(|at| alarm.set(*at));
        for at in times {
            alarm.rings().await;
            assert!(Instant::now() >= at);
        }
        assert!(
            tokio::time::timeout(Duration::from_millis(5), alarm.rings())
                .await
                .is_err()
        );
    }
}
