//! Nodes that were asked lately what they offer, and waited for in vain. The DHT names a node for a day after it has gone; who asks all
//! that it names would wait for the same ones each time.

use libp2p::PeerId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// For how long a node is missed.
const LATELY: Duration = Duration::from_secs(300);
/// Nodes that are missed; where there are more, those are waited for.
const MOST: usize = 4096;

/// Pure: time is an argument.
#[derive(Default)]
pub(crate) struct Missed(Mutex<HashMap<PeerId, Instant>>);

impl Missed {
    /// A node was waited for and did not answer.
    pub(crate) fn misses(&self, id: PeerId, now: Instant) {
        let mut missed = self.0.lock();
        if missed.len() >= MOST {
            missed.retain(|_, when| now.duration_since(*when) < LATELY);
        }
        if missed.len() < MOST || missed.contains_key(&id) {
            missed.insert(id, now);
        }
    }

    pub(crate) fn answers(&self, id: &PeerId) {
        self.0.lock().remove(id);
    }

    /// Whether the node is missed, with which there is a connection since then or none. One that has come meanwhile is not.
    pub(crate) fn is_missed(&self, id: &PeerId, since: Option<Instant>, now: Instant) -> bool {
        let missed = self.0.lock();
        missed.get(id).is_some_and(|when| {
            now.duration_since(*when) < LATELY && since.is_none_or(|connected| connected < *when)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_missed_for_a_while_or_until_it_comes_or_answers() {
        let (missed, id, start) = (Missed::default(), PeerId::random(), Instant::now());
        let then = start + Duration::from_secs(5);
        assert!(!missed.is_missed(&id, None, then));
        missed.misses(id, then);
        assert!(missed.is_missed(&id, None, then));
        assert!(
            missed.is_missed(&id, Some(start), then),
            "its connection was there when it did not answer"
        );
        let later = then + Duration::from_secs(1);
        assert!(!missed.is_missed(&id, Some(later), later));
        assert!(!missed.is_missed(&id, None, then + LATELY));
        missed.answers(&id);
        assert!(!missed.is_missed(&id, None, later));
    }

    #[test]
    fn only_so_many_are_missed() {
        let (missed, start) = (Missed::default(), Instant::now());
        (0..=MOST).for_each(|_| missed.misses(PeerId::random(), start));
        assert_eq!(missed.0.lock().len(), MOST);
        missed.misses(PeerId::random(), start + LATELY);
        assert_eq!(missed.0.lock().len(), 1);
    }
}
