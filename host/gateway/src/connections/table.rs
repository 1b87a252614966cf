//! Who is connected. When there is no place for one more, the connection that has asked for nothing for longest makes room; where there is
//! none, the one whose request has been coming for longest; and then the one that has taken nothing of its answers for longest: so
//! connections that send nothing, or a byte of a head or a body now and then, or read nothing, keep nobody out.

use super::sending::Answers;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Who has taken nothing of an answer for so long does not read it just now.
const UNREAD: Duration = Duration::from_secs(1);

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
    /// Requests under way.
    requests: AtomicU32,
    /// Those of them whose bodies are still coming.
    coming: AtomicU32,
    /// Those of them whose answers wait to be taken.
    untaken: AtomicU32,
    /// When it fell idle; while requests come, when the first of them began to; while answers are sent, when something was last taken.
    since: Mutex<Instant>,
    leave: Notify,
    answers: Answers,
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
pub(crate) struct Busy {
    seat: Arc<Seat>,
    is_coming: bool,
    is_untaken: bool,
}

impl Table {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            inner: Mutex::default(),
        })
    }

    /// A place, if need be that of another connection. None where all have requests under way whose answers are awaited or taken.
    pub(super) fn sit(self: &Arc<Self>, now: Instant) -> Option<Seated> {
        let mut inner = self.inner.lock();
        if inner.all.len() >= self.most {
            let longest = |fits: fn(&Seat) -> bool| {
                let those = inner.all.iter().filter(|(_, seat)| fits(seat));
                let those = those.map(|(number, seat)| (*seat.since.lock(), *number));
                those.min()
            };
            let unread = || {
                let longest = longest(Seat::only_waits_for_its_caller);
                longest.filter(|(since, _)| now.saturating_duration_since(*since) >= UNREAD)
            };
            let (_, number) = longest(Seat::is_idle)
                .or_else(|| longest(Seat::only_receives))
                .or_else(unread)?;
            if let Some(seat) = inner.all.remove(&number) {
                seat.leave.notify_one();
            }
        }
        let number = inner.next;
        inner.next += 1;
        let seat = Arc::new(Seat {
            requests: AtomicU32::new(0),
            coming: AtomicU32::new(0),
            untaken: AtomicU32::new(0),
            since: Mutex::new(now),
            leave: Notify::new(),
            answers: Answers::default(),
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

    /// Whether nothing is being answered on it.
    fn only_receives(&self) -> bool {
        self.requests.load(Ordering::Acquire) == self.coming.load(Ordering::Acquire)
    }

    /// Whether everything on it is coming, or waits to be taken.
    fn only_waits_for_its_caller(&self) -> bool {
        let waiting = self.coming.load(Ordering::Acquire) + self.untaken.load(Ordering::Acquire);
        self.requests.load(Ordering::Acquire) == waiting
    }

    pub(super) const fn answers(&self) -> &Answers {
        &self.answers
    }
}

impl Seated {
    /// When it fell idle; nothing while a request is under way.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.seat.is_idle().then(|| *self.seat.since.lock())
    }

    /// Gives up the answers of which its caller has taken nothing for so long.
    pub(super) fn give_up(&self, most: Duration) {
        self.seat.answers.give_up(most);
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
        seat.coming.fetch_add(1, Ordering::AcqRel);
        if seat.requests.fetch_add(1, Ordering::AcqRel) == 0 {
            *seat.since.lock() = Instant::now();
        }
        Self {
            seat,
            is_coming: true,
            is_untaken: false,
        }
    }

    pub(super) const fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// The request is whole: from now on its answer is owed.
    pub(crate) fn is_whole(&mut self) {
        if std::mem::take(&mut self.is_coming) {
            self.seat.coming.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether its answer waits for its caller from now on; what there was before has been taken.
    pub(super) fn waits_to_be_taken(&mut self, waits: bool, now: Instant) {
        if std::mem::replace(&mut self.is_untaken, waits) {
            *self.seat.since.lock() = now;
            self.seat.untaken.fetch_sub(1, Ordering::AcqRel);
        }
        if waits {
            self.seat.untaken.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(super) const fn is_untaken(&self) -> bool {
        self.is_untaken
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_whole();
        self.waits_to_be_taken(false, Instant::now());
        // Who finds no request waits for this before it asks since when: of two that end at once, one is the last.
        let mut since = self.seat.since.lock();
        if self.seat.requests.fetch_sub(1, Ordering::AcqRel) == 1 {
            *since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::Barrier;
    use std::time::Duration;

    #[test]
    fn the_one_that_is_idle_for_longest_makes_room() {
        let (table, now) = (Table::new(3), Instant::now());
        let at = |seconds| table.sit(now + Duration::from_secs(seconds));
        let (oldest, second, third) = (at(0).unwrap(), at(1).unwrap(), at(2).unwrap());
        let whole = |seated: &Seated| {
            let mut busy = Busy::new(seated.seat());
            busy.is_whole();
            busy
        };
        let busy = whole(&oldest);
        let fourth = at(3).unwrap();
        assert!(second.must_leave().now_or_never().is_some());
        assert!(oldest.must_leave().now_or_never().is_none() && third.must_leave().now_or_never().is_none());
        assert_eq!(table.count(), 3);
        drop(second);
        assert_eq!(table.count(), 3);
        let _all_busy = [whole(&third), whole(&fourth)];
        assert!(at(4).is_none());
        drop(busy);
        assert!(at(5).is_some() && oldest.must_leave().now_or_never().is_some());
    }

    /// The requests of one connection end on several threads.
    #[test]
    fn a_connection_falls_idle_when_the_last_of_its_requests_ends() {
        let table = Table::new(1);
        let seated = table.sit(Instant::now()).unwrap();
        for _ in 0..5000 {
            let both = [Busy::new(seated.seat()), Busy::new(seated.seat())];
            let (together, now) = (Barrier::new(2), Instant::now());
            std::thread::scope(|threads| {
                for busy in both {
                    let together = &together;
                    threads.spawn(move || {
                        together.wait();
                        drop(busy);
                    });
                }
            });
            assert!(seated.idle_since().unwrap() >= now);
        }
    }

    #[test]
    fn who_takes_nothing_of_an_answer_makes_room_last() {
        let (table, now) = (Table::new(2), Instant::now());
        let (first, second) = (table.sit(now).unwrap(), table.sit(now).unwrap());
        let mut both = [&first, &second].map(|seated| {
            let mut busy = Busy::new(seated.seat());
            busy.is_whole();
            busy
        });
        both[0].waits_to_be_taken(true, now);
        both[1].waits_to_be_taken(true, now);
        assert!(table.sit(now).is_none(), "they may be reading");
        // Of one of them something is awaited, of the other something was taken later.
        both[0].waits_to_be_taken(false, now);
        let later = now + 2 * UNREAD;
        both[1].waits_to_be_taken(true, later);
        assert!(table.sit(later).is_none());
        let third = table.sit(later + UNREAD).unwrap();
        assert!(second.must_leave().now_or_never().is_some());
        assert!(first.must_leave().now_or_never().is_none());
        drop((both, third));
        assert!(first.idle_since().is_some());
    }

    #[test]
    fn those_whose_requests_keep_coming_make_room_after_the_idle() {
        let table = Table::new(3);
        let sit = || table.sit(Instant::now());
        let (first, second, third) = (sit().unwrap(), sit().unwrap(), sit().unwrap());
        let (_first, mut answered) = (Busy::new(first.seat()), Busy::new(second.seat()));
        answered.is_whole();
        let fourth = sit().unwrap();
        assert!(
            third.must_leave().now_or_never().is_some(),
            "the idle one goes first"
        );
        let _fourth = Busy::new(fourth.seat());
        drop(third);
        let fifth = sit().unwrap();
        assert!(first.must_leave().now_or_never().is_some());
        assert!(second.must_leave().now_or_never().is_none());
        // One that is answered on a connection keeps the connection, whatever else comes over it.
        let _more = [Busy::new(second.seat()), Busy::new(fifth.seat())];
        drop(first);
        drop(sit().unwrap());
        assert!(fourth.must_leave().now_or_never().is_some());
        assert!(second.must_leave().now_or_never().is_none());
    }
}
