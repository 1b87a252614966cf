use crate::{Instant, OverTime};
use std::collections::VecDeque;

/// Jobs that wait, in the order in which they came. Which of them goes next is for a policy to say.
#[derive(Clone, Debug)]
pub struct Queue<J> {
    jobs: VecDeque<Queued<J>>,
    length: OverTime,
}

/// A job in a queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Queued<J> {
    /// Since when.
    pub since: Instant,
    /// What.
    pub job: J,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        Self {
            jobs: VecDeque::new(),
            length: OverTime::default(),
        }
    }
}

impl<J> Queue<J> {
    /// A job comes.
    pub fn join(&mut self, now: Instant, job: J) {
        self.jobs.push_back(Queued { since: now, job });
        self.count(now);
    }

    /// Takes the one at this place out, 0 the oldest; it costs as many steps as there are to the nearer end.
    pub fn take(&mut self, now: Instant, place: usize) -> Option<Queued<J>> {
        let job = self.jobs.remove(place)?;
        self.count(now);
        Some(job)
    }

    /// Takes all out, the oldest first.
    pub fn take_all(&mut self, now: Instant) -> Vec<Queued<J>> {
        let taken = self.jobs.drain(..).collect();
        self.count(now);
        taken
    }

    /// What waits, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Queued<J>> + ExactSizeIterator {
        self.jobs.iter()
    }

    /// The oldest.
    pub fn first(&self) -> Option<&Queued<J>> {
        self.jobs.front()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How many waited, over time.
    pub const fn length(&self) -> &OverTime {
        &self.length
    }

    /// Forgets what was before now, except what waits.
    pub const fn restart(&mut self, now: Instant) {
        self.length.restart(now);
    }

    fn count(&mut self, now: Instant) {
        self.length.set(now, self.jobs.len() as u64);
    }
}
