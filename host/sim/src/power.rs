use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_adds_up() {
        let power = Power {
            idle: 2.0,
            busy: 6.0,
            transmit: 1.0,
        };
        let second = Duration::from_secs(1);
        assert_eq!(power.joules(10 * second, 0.0, 4, Duration::ZERO), 20.0);
        assert_eq!(power.joules(10 * second, 40.0, 4, second), 61.0);
    }
}
