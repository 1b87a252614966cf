use karman_types::{ErrorKind, TaskError};
use prometheus_client::metrics::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the latency buckets in seconds: 100 us to 100 s.
const BUCKETS: [f64; 13] = [
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 1e-1, 2.5e-1, 1.0, 10.0, 100.0,
];

/// Counters of one plugin since it was loaded.
#[derive(Debug)]
pub struct Stats {
    calls: AtomicU64,
    cold_starts: AtomicU64,
    running: AtomicU64,
    errors: [AtomicU64; ErrorKind::ALL.len()],
    memory_peak: AtomicU64,
    fuel: AtomicU64,
    latency: Histogram,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            calls: AtomicU64::default(),
            cold_starts: AtomicU64::default(),
            running: AtomicU64::default(),
            errors: Default::default(),
            memory_peak: AtomicU64::default(),
            fuel: AtomicU64::default(),
            latency: Histogram::new(BUCKETS),
        }
    }
}

impl Stats {
    /// Calls that ended, well or not.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Calls that made an instance of their own.
    pub fn cold_starts(&self) -> u64 {
        self.cold_starts.load(Ordering::Relaxed)
    }

    /// Calls under way.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Calls that ended with this kind of error.
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize].load(Ordering::Relaxed)
    }

    /// The most bytes of linear memory that one instance used.
    pub fn memory_peak(&self) -> u64 {
        self.memory_peak.load(Ordering::Relaxed)
    }

    /// Fuel used by all calls, where the plugin is metered.
    pub fn fuel(&self) -> u64 {
        self.fuel.load(Ordering::Relaxed)
    }

    /// Time from the acceptance of a call to its end, in seconds.
    pub const fn latency(&self) -> &Histogram {
        &self.latency
    }

    pub(crate) fn started(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn instantiated(&self) {
        self.cold_starts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, took: Duration, error: Option<&TaskError>) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.latency.observe(took.as_secs_f64());
        if let Some(error) = error {
            self.errors[error.kind as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn used(&self, memory: usize, fuel: u64) {
        self.memory_peak.fetch_max(memory as u64, Ordering::Relaxed);
        self.fuel.fetch_add(fuel, Ordering::Relaxed);
    }
}
