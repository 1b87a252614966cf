use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wasmtime::ResourceLimiter;

/// Holds one instance to its memory and tables, all of them together, and remembers what it refused.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory_most: usize,
    memory_used: usize,
    memory_peak: usize,
    table_most: usize,
    instances: usize,
    refused: Option<Refused>,
    kept: Arc<AtomicUsize>,
}

/// Bytes that the host keeps for an instance, until this is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What was refused first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    Memory,
    Table,
}

impl Limiter {
    pub(crate) fn new(limits: &karman_types::Limits) -> Self {
        Self {
            memory_most: limits.memory.as_usize(),
            memory_used: 0,
            memory_peak: 0,
            table_most: limits.table_elements as usize,
            instances: limits.instances as usize,
            refused: None,
            kept: Arc::default(),
        }
    }

    /// Counts what the host keeps for the instance: as much again as it may have of memory, or nothing.
    pub(crate) fn keep(&self, bytes: usize) -> Option<Kept> {
        let (all, most) = (self.kept.clone(), self.memory_most);
        let fits = |now: usize| now.checked_add(bytes).filter(|then| *then <= most);
        all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .ok()?;
        Some(Kept { bytes, all })
    }

    /// The most bytes of linear memory that were in use at once.
    pub(crate) const fn memory_peak(&self) -> usize {
        self.memory_peak
    }

    pub(crate) const fn refused(&self) -> Option<Refused> {
        self.refused
    }

    /// A warm instance starts each call with a clean slate.
    pub(crate) const fn forget_refusal(&mut self) {
        self.refused = None;
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let used = self.memory_used.saturating_add(desired - current);
        if used > self.memory_most || maximum.is_some_and(|most| desired > most) {
            self.refused.get_or_insert(Refused::Memory);
            return Ok(false);
        }
        self.memory_used = used;
        self.memory_peak = self.memory_peak.max(used);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let fits = desired <= self.table_most && maximum.is_none_or(|most| desired <= most);
        if !fits {
            self.refused.get_or_insert(Refused::Table);
        }
        Ok(fits)
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.instances
    }

    fn memories(&self) -> usize {
        self.instances
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::{ByteSize, Limits};

    #[test]
    fn what_the_host_keeps_counts_until_it_is_dropped() {
        let limiter = Limiter::new(&Limits {
            memory: ByteSize::mib(2),
            ..Limits::default()
        });
        let first = limiter.keep(2 << 20).unwrap();
        assert!(limiter.keep(1).is_none() && limiter.keep(usize::MAX).is_none());
        drop(first);
        assert!(limiter.keep(1).is_some());
    }

    #[test]
    fn all_memories_count_together() {
        let mut limiter = Limiter::new(&Limits {
            memory: ByteSize::mib(2),
            ..Limits::default()
        });
        assert!(limiter.memory_growing(0, 1 << 20, None).unwrap());
        assert!(limiter.memory_growing(0, 1 << 20, None).unwrap());
        assert!(!limiter.memory_growing(1 << 20, 2 << 20, None).unwrap());
        assert_eq!(
            (limiter.memory_peak(), limiter.refused()),
            (2 << 20, Some(Refused::Memory))
        );
    }
}
