//! The sums that the clients of a node are in. None of it is ever written down: a node that is started again has dropped out of them,
//! and cannot be made to reveal anything.

use super::joined::Joined;
use super::message::Step;
use crate::drive::fed::memory::{Key, Memory};
use crate::drive::fed::table::{Room, Table};
use crate::drive::fed::wire::{Order, Work};
use crate::services::blocking;
use karman_fed::AssignmentId;
use karman_fed::secure::Pass;
use karman_types::{Digest, NodeId, TaskError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The sums that a node is in at once, and those of one driver; which was begun first is left first.
const ROOM: Room = Room {
    all: 64,
    of_a_driver: 8,
};
/// How long a masked update is kept that was sent, in case it was lost on its way: longer than a driver goes on asking for it.
const KEPT: Duration = Duration::from_secs(60);
/// The bytes of those that are kept at a time, in all sums together; one is in any case.
const MOST_KEPT: usize = 256 << 20;

/// The sums that the clients of a node are in.
pub(in crate::drive::fed) struct Sums(Mutex<Table<Seat>>);

struct Seat {
    assignment: AssignmentId,
    stage: Stage,
}

enum Stage {
    /// It has shown this number, and may join with it.
    Shown(Pass),
    Joined(Arc<Mutex<Joined>>),
}

impl Default for Sums {
    fn default() -> Self {
        Self(Mutex::new(Table::new(ROOM)))
    }
}

impl Sums {
    /// The number that a client shows for the sum of an order: a new one, but while it has not joined with the last. With that it
    /// leaves whatever it was in.
    pub(super) fn show(&self, key: &Key, assignment: AssignmentId) -> Result<[u8; 32], TaskError> {
        let mut table = self.0.lock();
        if let Some(seat) = table.get(key)
            && seat.assignment == assignment
            && let Stage::Shown(pass) = &seat.stage
        {
            return Ok(pass.shown());
        }
        let mut number = [0; 32];
        getrandom::fill(&mut number).map_err(|error| TaskError::internal(error.to_string()))?;
        let stage = Stage::Shown(Pass::new(number));
        table.put(key, Seat { assignment, stage });
        Ok(number)
    }

    /// Takes the pass away with which a client joins.
    pub(super) fn take(&self, key: &Key, assignment: AssignmentId) -> Result<Pass, TaskError> {
        let mut table = self.0.lock();
        let waits = |seat: &Seat| seat.assignment == assignment && matches!(seat.stage, Stage::Shown(_));
        let seat = match table.get(key).is_some_and(waits) {
            true => table.remove(key),
            false => None,
        };
        match seat.map(|seat| seat.stage) {
            Some(Stage::Shown(pass)) => Ok(pass),
            _ => Err(TaskError::denied(
                "this client has shown no number for that sum, or has joined with it: ask it first who it is",
            )
            .with_field("invited")),
        }
    }

    /// Whether this order of a driver goes on with a sum that its client has joined. Who it is, it is asked for another one.
    pub(in crate::drive::fed) fn takes_part(&self, driver: NodeId, order: &Order) -> bool {
        match &order.work {
            Work::Sum { assignment, step } if !matches!(**step, Step::Who) => {
                self.joined(&Memory::key(driver, order), *assignment).is_ok()
            }
            _ => false,
        }
    }

    pub(super) fn put(&self, key: &Key, assignment: AssignmentId, joined: Joined) {
        let stage = Stage::Joined(Arc::new(Mutex::new(joined)));
        self.0.lock().put(key, Seat { assignment, stage });
    }

    /// A client has answered this with its masked update, which may be lost on its way. It is kept for a while, and others that lie here
    /// for longer make room for it: the driver has them, or is gone.
    pub(super) fn keep(&self, joined: &Arc<Mutex<Joined>>, asked: Digest) {
        self.keep_within(MOST_KEPT);
        let joined = Arc::downgrade(joined);
        tokio::spawn(async move {
            tokio::time::sleep(KEPT).await;
            // The client may be about to compute.
            let forgets = move || {
                if let Some(joined) = joined.upgrade() {
                    joined.lock().forget(asked);
                }
                Ok(())
            };
            if let Err(error) = blocking(forgets).await {
                tracing::warn!(%error, "a masked update is kept for longer than it need be");
            }
        });
    }

    /// Keeps no more bytes of masked updates than this, but for the one of the sum that was begun last.
    pub(super) fn keep_within(&self, most: usize) {
        let table = self.0.lock();
        let mut kept = 0;
        for seat in table.newest_first() {
            // One that is busy is about to answer something else.
            if let Stage::Joined(joined) = &seat.stage
                && let Some(mut joined) = joined.try_lock()
            {
                let bytes = joined.kept();
                if kept > 0 && kept + bytes > most {
                    joined.forget_vector();
                } else {
                    kept += bytes;
                }
            }
        }
    }

    /// The sum of an order, which this client has joined.
    pub(super) fn joined(
        &self,
        key: &Key,
        assignment: AssignmentId,
    ) -> Result<Arc<Mutex<Joined>>, TaskError> {
        let table = self.0.lock();
        let seat = table.get(key).filter(|seat| seat.assignment == assignment);
        match seat.map(|seat| &seat.stage) {
            Some(Stage::Joined(joined)) => Ok(joined.clone()),
            _ => Err(TaskError::failed(
                "this client takes no part in that sum: it was started again, or has left",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::fed::wire::RunId;
    use karman_fed::{ClientId, Run};

    const FIRST: AssignmentId = AssignmentId(1);

    /// A client of a run of this driver.
    fn key(driver: usize, run: usize) -> Key {
        let described = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        let id = RunId(format!("{run:x}"));
        let order = Order::new(&id, &described, ClientId(0), Work::Describe);
        Memory::key(NodeId::of_key(&driver.to_le_bytes()), &order)
    }

    #[test]
    fn a_driver_of_many_runs_takes_no_room_but_its_own() {
        let sums = Sums::default();
        sums.show(&key(0, 0), FIRST).unwrap();
        for run in 0..=ROOM.of_a_driver {
            sums.show(&key(1, run), FIRST).unwrap();
        }
        assert!(sums.take(&key(1, 0), FIRST).is_err(), "it was begun first");
        assert!(sums.take(&key(1, 1), FIRST).is_ok());
        assert!(sums.take(&key(0, 0), FIRST).is_ok());
    }

    #[test]
    fn many_drivers_do_not_fill_a_node() {
        let sums = Sums::default();
        for driver in 0..=ROOM.all {
            sums.show(&key(driver, 0), FIRST).unwrap();
        }
        assert_eq!(sums.0.lock().newest_first().len(), ROOM.all);
        assert!(sums.take(&key(0, 0), FIRST).is_err(), "it was begun first");
        assert!(sums.take(&key(1, 0), FIRST).is_ok());
    }
}
