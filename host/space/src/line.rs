use crate::link::Link;
use std::time::Duration;

/// What travels as one: a lost one is sent again. The payload of a QUIC packet on most paths (RFC 9000, 14.1).
const PACKET: usize = 1200;
/// The least that a sender waits before it takes a packet for lost (RFC 9002, 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);

/// A link while it is used: when what is sent over it leaves and arrives. Draws come from the seed alone.
#[derive(Clone, Debug)]
pub struct Line {
    link: Link,
    free: Duration,
    random: fastrand::Rng,
}

/// When something that is sent begins to leave, when it has left, and when it has arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Passage {
    /// Its first byte leaves: until then it waits for the line, or for the end of an outage.
    pub begins: Duration,
    /// The line is free for the next one.
    pub left: Duration,
    /// The other side has it.
    pub arrived: Duration,
}

impl Line {
    /// A line that has not been used.
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            link,
            free: Duration::ZERO,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The link.
    pub const fn link(&self) -> &Link {
        &self.link
    }

    /// From now on the link is another one. What was sent before is on its way, and holds up nothing that is sent now; what has not begun to
    /// leave may be sent once more instead. Nothing that is sent from now on leaves earlier.
    pub fn change(&mut self, now: Duration, link: Link) {
        self.free = now;
        self.link = link;
    }

    /// Sends this many bytes at this time, after what was sent before. In an outage they wait for its end.
    pub fn send(&mut self, now: Duration, bytes: usize) -> Passage {
        let mut starts = now.max(self.free);
        while let Some(outage) = self.link.outage(starts) {
            starts = outage.end();
        }
        let (mut left, mut again) = (starts, Duration::ZERO);
        let mut rest = bytes;
        while rest > 0 {
            let packet = rest.min(PACKET);
            rest -= packet;
            let time = self
                .link
                .rate
                .map_or(Duration::ZERO, |rate| rate.time_for(packet as u64));
            left = left.saturating_add(time);
            // What follows a lost packet waits for it: streams keep their order.
            while self.random.f64() < self.link.loss {
                left = left.saturating_add(time);
                again = again.saturating_add(self.link.delay * 2 + GRANULARITY);
            }
        }
        self.free = left;
        let jitter = self.link.jitter.mul_f64(self.random.f64());
        Passage {
            begins: starts,
            left,
            arrived: left.saturating_add(self.link.delay + jitter + again),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tests::link;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn bytes_take_their_time_one_after_the_other() {
        let mut line = Line::new(link("delay = \"40ms\"\nrate = \"8 Mbit/s\""), 1);
        let first = line.send(Duration::ZERO, 1000);
        assert_eq!((first.left, first.arrived), (MS, 41 * MS));
        let second = line.send(Duration::ZERO, 1000);
        assert_eq!((second.left, second.arrived), (2 * MS, 42 * MS));
        assert_eq!(line.send(100 * MS, 1000).arrived, 141 * MS);
    }

    #[test]
    fn lost_packets_come_a_round_trip_later() {
        let mut line = Line::new(link("delay = \"40ms\"\nloss = 0.1"), 3);
        let times: Vec<_> = (0..10_000)
            .map(|_| line.send(Duration::ZERO, 100).arrived)
            .collect();
        let late = times.iter().filter(|time| **time > 40 * MS).count();
        assert!((900..1100).contains(&late), "{late}");
        assert!(times.iter().all(|time| *time == 40 * MS || *time >= 120 * MS));
    }

    #[test]
    fn an_outage_holds_everything_back() {
        let mut line = Line::new(link("outages = [{ start = \"2s\", length = \"3s\" }]"), 1);
        assert_eq!(
            line.send(Duration::from_secs(3), 1).arrived,
            Duration::from_secs(5)
        );
    }

    #[test]
    fn a_link_that_changes_does_so_for_what_comes_after() {
        let mut line = Line::new(link("rate = \"8 Mbit/s\""), 1);
        line.change(MS, link("outages = [{ start = \"0s\", length = \"1h\" }]"));
        assert!(line.send(MS, 1000).left >= Duration::from_secs(3600));
        line.change(2 * MS, link("delay = \"5ms\"\nrate = \"4 Mbit/s\""));
        let next = line.send(2 * MS, 1000);
        assert_eq!((next.left, next.arrived), (4 * MS, 9 * MS));
    }

    proptest! {
        #[test]
        fn nothing_leaves_before_it_is_sent_or_out_of_order(
            loss in 0.0..0.9, delay in 0..500u64, sends in proptest::collection::vec((0..1000u64, 0..10_000usize), 1..50),
        ) {
            let text = format!("loss = {loss}\ndelay = \"{delay}ms\"\nrate = \"1 Mbit/s\"");
            let mut line = Line::new(link(&text), 5);
            let (mut now, mut free) = (Duration::ZERO, Duration::ZERO);
            for (pause, bytes) in sends {
                now += Duration::from_millis(pause);
                let passage = line.send(now, bytes);
                prop_assert!(passage.left >= now && passage.left >= free);
                prop_assert!(passage.arrived >= passage.left + Duration::from_millis(delay));
                free = passage.left;
            }
        }
    }
}
