use crate::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What is simulated: it takes in one event at a time and says what happens later.
pub trait Model {
    /// What can happen.
    type Event;

    /// Something happens at [`Schedule::now`].
    fn handle(&mut self, event: Self::Event, schedule: &mut Schedule<Self::Event>);
}

/// The queue of future events, and the present time.
///
/// Events of the same instant happen in the order in which they were scheduled, so a run depends on nothing but the model and
/// its seeds. There is no way to take an event back: a model that changes its mind gives what it schedules a number, and
/// passes over an event whose number is no longer the current one.
#[derive(Clone, Debug)]
pub struct Schedule<E> {
    now: Instant,
    heap: BinaryHeap<Reverse<Entry<E>>>,
    scheduled: u64,
    stopped: bool,
}

/// An event with when it happens and how many were scheduled before it.
#[derive(Clone, Debug)]
struct Entry<E> {
    at: Instant,
    order: u64,
    event: E,
}

impl<E> Entry<E> {
    /// One comparison of 128 bits instead of two of 64: it is what the heap does most.
    const fn key(&self) -> u128 {
        (self.at.0 as u128) << 64 | self.order as u128
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Self {
            now: Instant::START,
            heap: BinaryHeap::new(),
            scheduled: 0,
            stopped: false,
        }
    }
}

impl<E> Schedule<E> {
    /// Something happens at this instant; at once, after what is due already, if that has passed.
    pub fn at(&mut self, at: Instant, event: E) {
        let order = self.scheduled;
        self.scheduled += 1;
        self.heap.push(Reverse(Entry {
            at: at.max(self.now),
            order,
            event,
        }));
    }

    /// Something happens after this time.
    pub fn after(&mut self, time: Duration, event: E) {
        self.at(self.now + time, event);
    }

    /// Nothing more happens after this event.
    pub const fn stop(&mut self) {
        self.stopped = true;
    }

    /// The virtual time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// When the next event happens, if there is one.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Events that have not happened yet.
    pub fn pending(&self) -> usize {
        self.heap.len()
    }

    fn pop(&mut self, until: Instant) -> Option<E> {
        if self.stopped || self.next()? > until {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}

/// A model and its schedule: virtual time passes from event to event.
#[derive(Clone, Debug)]
pub struct Simulation<M: Model> {
    model: M,
    schedule: Schedule<M::Event>,
    events: u64,
}

impl<M: Model> Simulation<M> {
    /// A model before its first event: schedule that through [`Simulation::schedule`].
    pub fn new(model: M) -> Self {
        Self {
            model,
            schedule: Schedule::default(),
            events: 0,
        }
    }

    /// Lets everything happen up to and including this instant, which then is the time. Returns how many events that were.
    pub fn run_until(&mut self, until: Instant) -> u64 {
        self.run_observed(until, |_, _| ())
    }

    /// The same, while someone looks at every event before it happens: that is how a trace is kept.
    pub fn run_observed(&mut self, until: Instant, mut look: impl FnMut(Instant, &M::Event)) -> u64 {
        let before = self.events;
        while let Some(event) = self.schedule.pop(until) {
            look(self.schedule.now, &event);
            self.events += 1;
            self.model.handle(event, &mut self.schedule);
        }
        if !self.schedule.stopped {
            self.schedule.now = self.schedule.now.max(until);
        }
        self.events - before
    }

    /// What will happen, to schedule the first events or ones from outside.
    pub const fn schedule(&mut self) -> &mut Schedule<M::Event> {
        &mut self.schedule
    }

    /// The model.
    pub const fn model(&self) -> &M {
        &self.model
    }

    /// The model, to change it from outside.
    pub const fn model_mut(&mut self) -> &mut M {
        &mut self.model
    }

    /// The model after its run.
    pub fn into_model(self) -> M {
        self.model
    }

    /// The virtual time.
    pub const fn now(&self) -> Instant {
        self.schedule.now
    }

    /// How many events have happened.
    pub const fn events(&self) -> u64 {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes down what happens; an even number schedules its half.
    #[derive(Default)]
    struct Halves(Vec<(Instant, u64)>);

    impl Model for Halves {
        type Event = u64;

        fn handle(&mut self, number: u64, schedule: &mut Schedule<u64>) {
            self.0.push((schedule.now(), number));
            match number {
                13 => schedule.stop(),
                _ if number.is_multiple_of(2) && number > 0 => {
                    schedule.after(Duration::from_nanos(number), number / 2);
                }
                _ => {}
            }
        }
    }

    fn run(first: &[(u64, u64)], until: u64) -> Simulation<Halves> {
        let mut simulation = Simulation::new(Halves::default());
        for &(at, number) in first {
            simulation.schedule().at(Instant(at), number);
        }
        simulation.run_until(Instant(until));
        simulation
    }

    #[test]
    fn time_goes_from_event_to_event() {
        let simulation = run(&[(5, 3), (0, 8), (5, 1)], 100);
        let happened = [(0, 8), (5, 3), (5, 1), (8, 4), (12, 2), (14, 1)];
        assert_eq!(
            simulation.model().0,
            happened.map(|(at, number)| (Instant(at), number))
        );
        assert_eq!((simulation.events(), simulation.now()), (6, Instant(100)));
    }

    #[test]
    fn a_run_may_pause_and_stop() {
        let mut simulation = run(&[(0, 8)], 8);
        assert_eq!((simulation.events(), simulation.now()), (2, Instant(8)));
        // What is late happens at once.
        simulation.schedule().at(Instant(3), 13);
        assert_eq!(simulation.run_until(Instant(100)), 1);
        assert_eq!(simulation.now(), Instant(8));
        assert_eq!(simulation.schedule().pending(), 1);
        assert_eq!(simulation.run_until(Instant(100)), 0);
    }

    proptest! {
        /// Events come by time, those of one instant in the order in which they were scheduled.
        #[test]
        fn nothing_overtakes(first in proptest::collection::vec((0..20u64, 14..60u64), 0..60)) {
            let odd: Vec<_> = first.into_iter().map(|(at, number)| (at, number | 1)).collect();
            let mut expected = odd.clone();
            expected.sort_by_key(|(at, _)| *at);
            let happened = run(&odd, 100).into_model().0;
            prop_assert_eq!(happened, expected.into_iter().map(|(at, n)| (Instant(at), n)).collect::<Vec<_>>());
        }
    }
}
