use crate::{Instant, OverTime};
use karman_types::{ByteSize, NodeId, Tier};
use std::time::Duration;

/// A node of the continuum: what it has, and how much of that is taken.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Where it stands.
    pub tier: Tier,
    /// How fast one of its cores is: work that takes a second on the reference core takes `1 / speed` here.
    pub speed: f64,
    /// What it draws.
    pub power: Power,
    cores: u32,
    memory: ByteSize,
    busy: OverTime,
    taken: OverTime,
}

/// Watts of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Power {
    /// While it does nothing.
    pub idle: f64,
    /// While all its cores work; between the two in proportion.
    pub busy: f64,
    /// On top, while it sends.
    pub transmit: f64,
}

impl Power {
    /// Joules over this time, of which this many core-seconds of work by `cores` cores and so long spent sending.
    pub fn joules(&self, time: Duration, core_seconds: f64, cores: u32, sending: Duration) -> f64 {
        let work = core_seconds / f64::from(cores.max(1));
        self.idle * time.as_secs_f64()
            + (self.busy - self.idle) * work
            + self.transmit * sending.as_secs_f64()
    }
}

impl Node {
    /// A node with nothing on it.
    pub const fn new(id: NodeId, tier: Tier, cores: u32, memory: ByteSize, speed: f64, power: Power) -> Self {
        Self {
            id,
            tier,
            speed,
            power,
            cores,
            memory,
            busy: OverTime::new(0, Instant::START),
            taken: OverTime::new(0, Instant::START),
        }
    }

    /// Takes cores and memory, both or none; false when they are not free.
    pub fn claim(&mut self, now: Instant, cores: u32, memory: ByteSize) -> bool {
        let fits = cores <= self.free_cores() && memory <= self.free_memory();
        if fits {
            self.busy.set(now, self.busy.value() + u64::from(cores));
            self.taken.set(now, self.taken.value() + memory.0);
        }
        fits
    }

    /// Gives back what was claimed.
    ///
    /// # Panics
    /// When that is more than was claimed.
    pub fn release(&mut self, now: Instant, cores: u32, memory: ByteSize) {
        let left = |had: u64, gives: u64| had.checked_sub(gives).expect("only what was claimed comes back");
        self.busy.set(now, left(self.busy.value(), u64::from(cores)));
        self.taken.set(now, left(self.taken.value(), memory.0));
    }

    /// How long work takes here that takes this long on a core of the reference speed.
    pub fn time_for(&self, work: Duration) -> Duration {
        crate::seconds(work.as_secs_f64() / self.speed)
    }

    /// All its cores.
    pub const fn cores(&self) -> u32 {
        self.cores
    }

    /// All its memory.
    pub const fn memory(&self) -> ByteSize {
        self.memory
    }

    /// Cores that are free.
    pub const fn free_cores(&self) -> u32 {
        self.cores - self.busy.value() as u32
    }

    /// Memory that is free, in bytes.
    pub const fn free_memory(&self) -> ByteSize {
        ByteSize(self.memory.0 - self.taken.value())
    }

    /// Core-seconds claimed until now.
    pub fn core_seconds(&self, now: Instant) -> f64 {
        self.busy.seconds(now)
    }

    /// The share of its cores that was claimed, on average.
    pub fn utilisation(&self, now: Instant) -> f64 {
        self.busy.mean(now) / f64::from(self.cores.max(1))
    }

    /// Forgets what was before now, except what is claimed.
    pub const fn restart(&mut self, now: Instant) {
        self.busy.restart(now);
        self.taken.restart(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        let power = Power {
            idle: 2.0,
            busy: 6.0,
            transmit: 1.0,
        };
        Node::new(
            NodeId::of_key(b"node"),
            Tier::Edge,
            4,
            ByteSize::mib(512),
            0.5,
            power,
        )
    }

    #[test]
    fn it_gives_what_it_has() {
        let (mut node, now) = (node(), Instant::START);
        assert!(!node.claim(now, 5, ByteSize(0)) && !node.claim(now, 1, ByteSize::gib(1)));
        assert!(node.claim(now, 3, ByteSize::mib(500)));
        assert!(!node.claim(now, 1, ByteSize::mib(13)) && node.claim(now, 1, ByteSize::mib(12)));
        let later = Instant(2_000_000_000);
        node.release(later, 4, ByteSize::mib(512));
        assert_eq!((node.free_cores(), node.free_memory()), (4, ByteSize::mib(512)));
        assert_eq!(node.core_seconds(Instant(4_000_000_000)), 8.0);
        assert_eq!(node.utilisation(Instant(4_000_000_000)), 0.5);
        assert_eq!(node.time_for(Duration::from_secs(1)), Duration::from_secs(2));
    }

    #[test]
    fn energy_adds_up() {
        let power = node().power;
        let second = Duration::from_secs(1);
        assert_eq!(power.joules(10 * second, 0.0, 4, Duration::ZERO), 20.0);
        assert_eq!(power.joules(10 * second, 40.0, 4, second), 61.0);
    }
}
