use crate::{Instant, Queue, Queued, Servers};

/// A queue before servers: the M/M/c of the books, a pool of replicas, the cores of a node.
///
/// A model calls [`Station::arrive`] when a job comes and [`Station::end`] when one is done, after both [`Station::start`] as long
/// as that returns a job, and schedules its end. A station that fails loses everything; ends that were scheduled before carry
/// an older [`Station::life`] and are to be passed over.
#[derive(Clone, Debug)]
pub struct Station<J> {
    /// What waits.
    pub queue: Queue<J>,
    /// The servers.
    pub servers: Servers,
    up: bool,
    life: u32,
    lost_in_service: u64,
}

impl<J> Station<J> {
    /// An empty queue before this many idle servers.
    pub fn new(servers: u64, now: Instant) -> Self {
        Self {
            queue: Queue::default(),
            servers: Servers::new(servers, now),
            up: true,
            life: 0,
            lost_in_service: 0,
        }
    }

    /// A job comes and waits. One that comes while the station is down is lost: ask [`Station::is_up`] first.
    pub fn arrive(&mut self, now: Instant, job: J) {
        if self.up {
            self.queue.join(now, job);
        }
    }

    /// The oldest job begins, if one waits and a server is free.
    pub fn start(&mut self, now: Instant) -> Option<Queued<J>> {
        self.start_at(now, 0)
    }

    /// The job at this place of the queue begins, if there is one and a server is free.
    pub fn start_at(&mut self, now: Instant, place: usize) -> Option<Queued<J>> {
        if place >= self.queue.len() || !self.servers.begin(now) {
            return None;
        }
        self.queue.take(now, place)
    }

    /// A job is done: its server is free.
    pub fn end(&mut self, now: Instant) {
        self.servers.end(now);
    }

    /// Everything stops. Returns what waited; what was being served is lost as well.
    pub fn fail(&mut self, now: Instant) -> Vec<Queued<J>> {
        self.up = false;
        self.life += 1;
        while self.servers.busy() > 0 {
            self.servers.end(now);
            self.lost_in_service += 1;
        }
        self.queue.take_all(now)
    }

    /// It works again.
    pub const fn recover(&mut self) {
        self.up = true;
    }

    /// Whether it works.
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// How often it has failed: goes with every end that is scheduled.
    pub const fn life(&self) -> u32 {
        self.life
    }

    /// Jobs that a failure cut off.
    pub const fn lost_in_service(&self) -> u64 {
        self.lost_in_service
    }

    /// Forgets what was before now, except what waits and is being served.
    pub const fn restart(&mut self, now: Instant) {
        self.queue.restart(now);
        self.servers.restart(now);
        self.lost_in_service = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(5);

    #[test]
    fn as_many_work_as_there_are_servers() {
        let mut station = Station::new(2, Instant::START);
        (0..4).for_each(|job| station.arrive(NOW, job));
        assert_eq!(station.start(NOW).map(|queued| queued.job), Some(0));
        assert_eq!(station.start_at(NOW, 2).map(|queued| queued.job), Some(3));
        assert_eq!(station.start(NOW), None);
        station.end(NOW);
        assert!(station.start_at(NOW, 2).is_none());
        assert_eq!((station.servers.busy(), station.queue.len()), (1, 2));
    }

    #[test]
    fn a_failure_loses_what_was_there() {
        let mut station = Station::new(1, Instant::START);
        (0..3).for_each(|job| station.arrive(NOW, job));
        station.start(NOW);
        assert_eq!(station.fail(NOW).len(), 2);
        station.arrive(NOW, 9);
        assert!(station.queue.is_empty() && !station.is_up());
        assert_eq!(
            (station.servers.busy(), station.life(), station.lost_in_service()),
            (0, 1, 1)
        );
        station.recover();
        station.arrive(NOW, 9);
        assert!(station.start(NOW).is_some());
    }
}
