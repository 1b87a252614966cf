use crate::{Instant, OverTime};

/// Servers of one kind, of which each does one thing at a time: cores, replicas, an accelerator.
#[derive(Clone, Copy, Debug)]
pub struct Servers {
    count: u64,
    busy: OverTime,
    /// Those that are there: more than `count` while some that shall go still work.
    present: OverTime,
}

impl Servers {
    /// This many, all idle.
    pub const fn new(count: u64, now: Instant) -> Self {
        Self {
            count,
            busy: OverTime::new(0, now),
            present: OverTime::new(count, now),
        }
    }

    /// One of them begins to work; false when none is free.
    pub fn begin(&mut self, now: Instant) -> bool {
        let free = self.free() > 0;
        if free {
            self.set_busy(now, self.busy() + 1);
        }
        free
    }

    /// One of them has done its work; one that shall go is gone.
    ///
    /// # Panics
    /// When none was busy.
    pub fn end(&mut self, now: Instant) {
        assert!(self.busy() > 0, "no server is busy");
        self.set_busy(now, self.busy() - 1);
    }

    /// There shall be this many from now on. Of those that are too many, busy ones finish first.
    pub fn scale(&mut self, now: Instant, count: u64) {
        self.count = count;
        self.set_busy(now, self.busy());
    }

    /// How many there shall be.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How many work.
    pub const fn busy(&self) -> u64 {
        self.busy.value()
    }

    /// How many could begin.
    pub const fn free(&self) -> u64 {
        self.count.saturating_sub(self.busy.value())
    }

    /// Seconds of work until now, over all of them.
    pub fn busy_seconds(&self, now: Instant) -> f64 {
        self.busy.seconds(now)
    }

    /// Seconds that they were there until now, over all of them: what is paid for.
    pub fn present_seconds(&self, now: Instant) -> f64 {
        self.present.seconds(now)
    }

    /// The share of their time that they worked; 0 when there were none.
    pub fn utilisation(&self, now: Instant) -> f64 {
        match self.present_seconds(now) {
            0.0 => 0.0,
            present => self.busy_seconds(now) / present,
        }
    }

    /// Forgets what was before now, except what is being served.
    pub const fn restart(&mut self, now: Instant) {
        self.busy.restart(now);
        self.present.restart(now);
    }

    fn set_busy(&mut self, now: Instant, busy: u64) {
        self.busy.set(now, busy);
        self.present.set(now, self.count.max(busy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_go_finish_first() {
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let mut servers = Servers::new(2, at(0));
        assert!(servers.begin(at(0)) && servers.begin(at(0)) && !servers.begin(at(0)));
        servers.scale(at(1), 1);
        assert_eq!((servers.free(), servers.busy()), (0, 2));
        servers.end(at(3));
        assert!(!servers.begin(at(3)));
        servers.end(at(4));
        assert_eq!((servers.free(), servers.busy()), (1, 0));
        assert_eq!(servers.busy_seconds(at(5)), 7.0);
        assert_eq!(servers.present_seconds(at(5)), 8.0);
        assert_eq!(servers.utilisation(at(5)), 7.0 / 8.0);
    }
}
