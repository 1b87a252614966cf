//! Who is connected. When there is no place for one more, the connection that has asked for nothing for longest makes room: so
//! connections that send nothing, or a byte now and then, keep nobody out.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use tokio::sync::Notify;

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Table {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    all: HashMap<u64, Arc<Seat>>,
}

/// What is known of a connection.
#[derive(Debug)]
pub(super) struct Seat {
    requests: AtomicU32,
    idle_since: Mutex<Instant>,
    leave: Notify,
}

/// A connection's place; free again when dropped.
#[derive(Debug)]
pub(super) struct Seated {
    table: Arc<Table>,
    number: u64,
    seat: Arc<Seat>,
}

/// A request under way, until its response is sent.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Seat>);

impl Table {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            inner: Mutex::default(),
        })
    }

    /// A place, if need be that of the connection that has been idle for longest. None where all have requests under way.
    pub(super) fn sit(self: &Arc<Self>, now: Instant) -> Option<Seated> {
        let mut inner = self.inner.lock();
        if inner.all.len() >= self.most {
            let idle = inner.all.iter().filter(|(_, seat)| seat.is_idle());
            let (number, _) = idle.min_by_key(|(_, seat)| *seat.idle_since.lock())?;
            let number = *number;
            if let Some(seat) = inner.all.remove(&number) {
                seat.leave.notify_one();
            }
        }
        let number = inner.next;
        inner.next += 1;
        let seat = Arc::new(Seat {
            requests: AtomicU32::new(0),
            idle_since: Mutex::new(now),
            leave: Notify::new(),
        });
        inner.all.insert(number, seat.clone());
        Some(Seated {
            table: self.clone(),
            number,
            seat,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.inner.lock().all.len()
    }
}

impl Seat {
    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
    }
}

impl Seated {
    /// When it fell idle; nothing while a request is under way.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.seat.is_idle().then(|| *self.seat.idle_since.lock())
    }

    /// Until its place goes to another.
    pub(super) async fn must_leave(&self) {
        self.seat.leave.notified().await;
    }

    pub(super) fn seat(&self) -> Arc<Seat> {
        self.seat.clone()
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.table.inner.lock().all.remove(&self.number);
    }
}

impl Busy {
    pub(super) fn new(seat: Arc<Seat>) -> Self {
        seat.requests.fetch_add(1, Ordering::AcqRel);
        Self(seat)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.idle_since.lock() = Instant::now();
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::time::Duration;

    #[test]
    fn the_one_that_is_idle_for_longest_makes_room() {
        let (table, now) = (Table::new(3), Instant::now());
        let at = |seconds| table.sit(now + Duration::from_secs(seconds));
        let (oldest, second, third) = (at(0).unwrap(), at(1).unwrap(), at(2).unwrap());
        let busy = Busy::new(oldest.seat());
        let fourth = at(3).unwrap();
        assert!(second.must_leave().now_or_never().is_some());
        assert!(oldest.must_leave().now_or_never().is_none() && third.must_leave().now_or_never().is_none());
        assert_eq!(table.count(), 3);
        drop(second);
        assert_eq!(table.count(), 3);
        let _all_busy = [Busy::new(third.seat()), Busy::new(fourth.seat())];
        assert!(at(4).is_none());
        drop(busy);
        assert!(at(5).is_some() && oldest.must_leave().now_or_never().is_some());
    }
}
