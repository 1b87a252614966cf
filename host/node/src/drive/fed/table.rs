//! The rounds made together that the clients of a node are in: one seat for each client, and room for so many of them.

use super::memory::Key;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The seats that a node takes at once, and those of one driver; which was begun first is left first.
pub(super) struct Room {
    pub(super) all: usize,
    pub(super) of_a_driver: usize,
}

/// The seats of a node's clients.
pub(super) struct Table<S> {
    room: Room,
    seats: HashMap<Key, Numbered<S>>,
    count: u64,
}

struct Numbered<S> {
    /// Which one was begun first.
    number: u64,
    seat: S,
}

impl<S> Table<S> {
    pub(super) fn new(room: Room) -> Self {
        Self {
            room,
            seats: HashMap::new(),
            count: 0,
        }
    }

    /// Seats a client, which leaves whatever it was in; others leave where there is no room.
    pub(super) fn put(&mut self, key: &Key, seat: S) {
        self.count += 1;
        let number = self.count;
        self.seats.insert(key.clone(), Numbered { number, seat });
        self.make_room(|other| other.driver() == key.driver(), self.room.of_a_driver);
        self.make_room(|_| true, self.room.all);
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<S> {
        self.seats.remove(key).map(|numbered| numbered.seat)
    }

    /// Leaves the oldest until there are no more of these than that.
    fn make_room(&mut self, counts: impl Fn(&Key) -> bool, most: usize) {
        while self.seats.keys().filter(|key| counts(key)).count() > most {
            let of_these = self.seats.iter().filter(|(key, _)| counts(key));
            let oldest = of_these.min_by_key(|(_, numbered)| numbered.number);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.seats.remove(&key);
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&S> {
        self.seats.get(key).map(|numbered| &numbered.seat)
    }

    /// The seats of other clients that stay when this one takes a seat.
    pub(super) fn staying(&self, key: &Key) -> impl Iterator<Item = &S> {
        let mut others: Vec<_> = self.seats.iter().filter(|(other, _)| *other != key).collect();
        others.sort_unstable_by_key(|(_, numbered)| Reverse(numbered.number));
        // The newest stay, and it will be the newest of all.
        let mut of_its_driver = 1;
        others.retain(|(other, _)| {
            of_its_driver += usize::from(other.driver() == key.driver());
            other.driver() != key.driver() || of_its_driver <= self.room.of_a_driver
        });
        others.truncate(self.room.all.saturating_sub(1));
        others.into_iter().map(|(_, numbered)| &numbered.seat)
    }

    /// All of them; which was begun last comes first.
    pub(super) fn newest_first(&self) -> Vec<&S> {
        let mut seats: Vec<&Numbered<S>> = self.seats.values().collect();
        seats.sort_unstable_by_key(|numbered| Reverse(numbered.number));
        seats.into_iter().map(|numbered| &numbered.seat).collect()
    }
}
