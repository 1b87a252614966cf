//! The rounds that the clients of a node are in. None of it is written down: a node that is started again has left them.

use super::message::Step;
use crate::drive::fed::memory::{Key, Memory};
use crate::drive::fed::table::{Room, Table};
use crate::drive::fed::wire::{Order, Work};
use crate::drive::swarm::SwarmOutcome;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_types::{NodeId, TaskError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The rounds that a node is in at once, and those of one driver; which was begun first is left first.
const ROOM: Room = Room {
    all: 32,
    of_a_driver: 4,
};
/// How long an outcome is kept for its driver: it has the size of the model.
const KEPT: Duration = Duration::from_secs(600);

/// What a round comes to; nothing before it is over.
type Outcome = Option<Result<Arc<SwarmOutcome>, TaskError>>;

/// The rounds that the clients of a node are in, one for each client.
pub(in crate::drive::fed) struct Seats(Mutex<Table<Seat>>);

struct Seat {
    name: String,
    outcome: watch::Receiver<Outcome>,
    waits: AbortHandle,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.waits.abort();
    }
}

impl Default for Seats {
    fn default() -> Self {
        Self(Mutex::new(Table::new(ROOM)))
    }
}

impl Seats {
    /// Whether this client is in the round of this name.
    pub(super) fn is_in(&self, key: &Key, name: &str) -> bool {
        let table = self.0.lock();
        table.get(key).is_some_and(|seat| seat.name == name)
    }

    /// Whether this order of a driver asks what has come of a round that its client is in.
    pub(in crate::drive::fed) fn takes_part(&self, driver: NodeId, order: &Order) -> bool {
        match &order.work {
            Work::Spread { step, .. } => match &**step {
                Step::Outcome { name } | Step::Mean { name } => self.is_in(&Memory::key(driver, order), name),
                Step::Train(_) | Step::Join(_) => false,
            },
            _ => false,
        }
    }

    /// Has this client take part in a round: it waits for it when this returns. It leaves whatever round it was in.
    ///
    /// # Errors
    /// What keeps it from taking part.
    pub(super) fn take(
        self: &Arc<Self>,
        key: &Key,
        name: String,
        mut joining: BoxFuture<'static, Result<SwarmOutcome, TaskError>>,
    ) -> Result<(), TaskError> {
        // With this it is in the round, or is told why not.
        let over = (&mut joining).now_or_never().transpose()?;
        let (tell, outcome) = watch::channel(None);
        let (seats, of, round) = (Arc::downgrade(self), key.clone(), name.clone());
        let waits = tokio::spawn(async move {
            let outcome = match over {
                Some(outcome) => Ok(outcome),
                None => joining.await,
            };
            tell.send_replace(Some(outcome.map(Arc::new)));
            tokio::time::sleep(KEPT).await;
            if let Some(seats) = seats.upgrade() {
                seats.leave(&of, &round);
            }
        });
        let seat = Seat {
            name,
            outcome,
            waits: waits.abort_handle(),
        };
        self.0.lock().put(key, seat);
        Ok(())
    }

    fn leave(&self, key: &Key, name: &str) {
        let mut table = self.0.lock();
        if table.get(key).is_some_and(|seat| seat.name == name) {
            table.remove(key);
        }
    }

    /// What the round of this name comes to, once it is over.
    pub(super) async fn outcome(&self, key: &Key, name: &str) -> Result<Arc<SwarmOutcome>, TaskError> {
        let left = || {
            TaskError::failed("this client takes no part in that round: it was started again, or has left")
                .with_field("name")
        };
        let seat = {
            let table = self.0.lock();
            let seat = table.get(key).filter(|seat| seat.name == name);
            seat.map(|seat| seat.outcome.clone())
        };
        let mut seat = seat.ok_or_else(left)?;
        let outcome = seat.wait_for(Option::is_some).await.map_err(|_| left())?.clone();
        outcome.unwrap_or_else(|| Err(left()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::fed::wire::RunId;
    use karman_fed::{AssignmentId, ClientId, Run};

    fn driver(number: usize) -> NodeId {
        NodeId::of_key(&number.to_le_bytes())
    }

    fn order(run: usize, work: Work) -> Order {
        let described = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        Order::new(&RunId(format!("{run:x}")), &described, ClientId(0), work)
    }

    fn key(of: usize, run: usize) -> Key {
        Memory::key(driver(of), &order(run, Work::Describe))
    }

    fn waits() -> BoxFuture<'static, Result<SwarmOutcome, TaskError>> {
        futures::future::pending().boxed()
    }

    #[tokio::test]
    async fn a_client_is_in_one_round_and_a_driver_of_many_takes_no_room_but_its_own() {
        let seats = Arc::new(Seats::default());
        seats.take(&key(0, 0), "one".into(), waits()).unwrap();
        seats.take(&key(0, 0), "two".into(), waits()).unwrap();
        assert!(!seats.is_in(&key(0, 0), "one"));
        assert!(seats.outcome(&key(0, 0), "one").await.is_err());
        for run in 0..=ROOM.of_a_driver {
            seats.take(&key(1, run), "round".into(), waits()).unwrap();
        }
        assert!(!seats.is_in(&key(1, 0), "round"), "it was begun first");
        assert!(seats.is_in(&key(1, 1), "round") && seats.is_in(&key(0, 0), "two"));
        for driver in 2..=ROOM.all {
            seats.take(&key(driver, 0), "round".into(), waits()).unwrap();
        }
        assert_eq!(seats.0.lock().newest_first().len(), ROOM.all);
    }

    #[tokio::test]
    async fn what_has_come_of_a_round_is_asked_by_its_driver() {
        let seats = Arc::new(Seats::default());
        seats.take(&key(0, 1), "round".into(), waits()).unwrap();
        let asks = |of, name: &str| {
            let step = Box::new(Step::Outcome { name: name.into() });
            let assignment = AssignmentId(0);
            seats.takes_part(driver(of), &order(1, Work::Spread { assignment, step }))
        };
        assert!(asks(0, "round") && !asks(0, "another") && !asks(1, "round"));
        assert!(!seats.takes_part(driver(0), &order(1, Work::Describe)));
    }

    #[tokio::test]
    async fn what_keeps_a_client_from_a_round_is_told_at_once() {
        let seats = Arc::new(Seats::default());
        let refuses = async { Err::<SwarmOutcome, _>(TaskError::invalid("not so")) }.boxed();
        let refused = seats.take(&key(0, 0), "round".into(), refuses).unwrap_err();
        assert_eq!(refused.message, "not so");
        assert!(!seats.is_in(&key(0, 0), "round"));
        let fails = async {
            tokio::task::yield_now().await;
            Err::<SwarmOutcome, _>(TaskError::failed("later"))
        };
        seats.take(&key(0, 0), "round".into(), fails.boxed()).unwrap();
        let failed = seats.outcome(&key(0, 0), "round").await.unwrap_err();
        assert_eq!(failed.message, "later");
    }
}
