//! Connections that look alive and are dead: the other node has lost its power, or the link is gone without a word. A connection ends
//! after a longer silence; a call gives up sooner, for a live node acknowledges what it is sent within a round trip.

use quinn::Connection;
use std::time::Duration;
use tokio::time::sleep;

/// How long nothing at all may be heard of a node that was sent something. A machine that is overloaded may need that long.
const PATIENCE: Duration = Duration::from_secs(3);
/// Round trips that this is at least.
const ROUND_TRIPS: u32 = 8;
/// How often a call looks within that time.
const LOOKS: u32 = 4;

/// Counts how long a connection is silent. Pure: what has passed on it is an argument.
pub(crate) struct Silence {
    passed: Passed,
    unheard: u32,
}

/// How much was sent that has to be acknowledged or answered, how much has come: frames and packets, or whatever else tells.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Passed {
    pub(crate) sent: u64,
    pub(crate) heard: u64,
}

impl Passed {
    fn on(connection: &Connection) -> Self {
        let stats = connection.stats();
        Self {
            sent: stats.frame_tx.stream + stats.frame_tx.ping,
            heard: stats.udp_rx.datagrams,
        }
    }
}

impl Silence {
    pub(crate) const fn new(passed: Passed) -> Self {
        Self { passed, unheard: 0 }
    }

    /// Whether the connection is dead. What was sent since the look before may have been sent just now.
    pub(crate) const fn looks(&mut self, passed: Passed) -> bool {
        if passed.heard != self.passed.heard {
            self.unheard = 0;
        } else if self.unheard > 0 || passed.sent != self.passed.sent {
            self.unheard += 1;
        }
        self.passed = passed;
        self.unheard > LOOKS
    }
}

/// How long after a look the next one is, on a connection with this round trip.
pub(crate) fn pause(round_trip: Duration) -> Duration {
    PATIENCE.max(ROUND_TRIPS * round_trip) / LOOKS
}

/// Over when nothing is heard any more on the connection though something was sent.
pub(super) async fn falls(connection: &Connection) {
    let mut silence = Silence::new(Passed::on(connection));
    loop {
        sleep(pause(connection.rtt())).await;
        if silence.looks(Passed::on(connection)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn passed(sent: u64, heard: u64) -> Passed {
        Passed { sent, heard }
    }

    #[test]
    fn a_node_that_was_sent_something_and_says_nothing_is_silent() {
        let mut silence = Silence::new(passed(10, 20));
        assert!((0..LOOKS).all(|_| !silence.looks(passed(11, 20))));
        assert!(silence.looks(passed(11, 20)));
    }

    #[test]
    fn a_node_that_acknowledges_or_was_sent_nothing_is_not() {
        let mut silence = Silence::new(passed(10, 20));
        let mut is_silent = |sent, heard| (0..10 * LOOKS).any(|_| silence.looks(passed(sent, heard)));
        assert!(!is_silent(10, 20), "nobody has to say anything");
        assert!(!is_silent(11, 21), "it has acknowledged");
        let mut silence = Silence::new(passed(0, 0));
        for round in 1..100 {
            let mut looks = |look: u32| silence.looks(passed(10 * round + u64::from(look), round));
            assert!((0..LOOKS).all(|look| !looks(look)), "it takes its time");
        }
    }
}
