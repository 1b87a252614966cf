//! The rounds that the clients of a node are in. None of it is written down: a node that is started again has left them.

use super::message::Step;
use crate::config::FederatedConfig;
use crate::drive::fed::memory::{Key, Memory};
use crate::drive::fed::table::{Room, Table};
use crate::drive::fed::wire::{Order, Work};
use crate::drive::swarm::{SwarmEntry, SwarmOutcome};
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
    takes: Takes,
    outcome: watch::Receiver<Outcome>,
    waits: AbortHandle,
}

/// What a round takes of a node, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Takes {
    /// All updates, on the disk.
    disk: u64,
    /// The node's own update in memory, and the mean in its place once the round is over.
    memory: u64,
}

impl From<&SwarmEntry> for Takes {
    fn from(entry: &SwarmEntry) -> Self {
        Self {
            disk: entry.disk,
            memory: size_of_val(&entry.update[..]) as u64,
        }
    }
}

impl Seat {
    /// What it takes now. The updates of others are gone with the round.
    fn takes(&self) -> Takes {
        match self.outcome.borrow().is_some() {
            true => Takes {
                disk: 0,
                ..self.takes
            },
            false => self.takes,
        }
    }
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
                Step::Outcome { name } | Step::Mean { name, .. } => {
                    self.is_in(&Memory::key(driver, order), name)
                }
                Step::Train(_) | Step::Join(_) => false,
            },
            _ => false,
        }
    }

    /// That there is room for what a round takes, beside the rounds that other clients of this node are in and are not left for it.
    ///
    /// # Errors
    /// `limit`, with the number of the configuration that would not hold.
    pub(super) fn check_room(
        &self,
        key: &Key,
        takes: Takes,
        limits: &FederatedConfig,
    ) -> Result<(), TaskError> {
        self.0.lock().check_room(key, takes, limits)
    }

    /// Has this client take part in a round: it waits for it when this returns. It leaves whatever round it was in.
    ///
    /// # Errors
    /// What keeps it from taking part; `limit` where there is no room for it.
    pub(super) fn take(
        self: &Arc<Self>,
        key: &Key,
        name: String,
        (takes, limits): (Takes, &FederatedConfig),
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
        let mut table = self.0.lock();
        if let Err(full) = table.check_room(key, takes, limits) {
            waits.abort();
            return Err(full);
        }
        let seat = Seat {
            name,
            takes,
            outcome,
            waits: waits.abort_handle(),
        };
        table.put(key, seat);
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

impl Table<Seat> {
    fn check_room(&self, key: &Key, takes: Takes, limits: &FederatedConfig) -> Result<(), TaskError> {
        let others = self.staying(key);
        let (disk, memory) = others.fold((takes.disk, takes.memory), |(disk, memory), seat| {
            let other = seat.takes();
            (
                disk.saturating_add(other.disk),
                memory.saturating_add(other.memory),
            )
        });
        let numbers = [
            ("round-disk", "this round", takes.disk, limits.round_disk),
            ("disk", "all rounds here", disk, limits.disk),
            ("memory", "all rounds here", memory, limits.memory),
        ];
        let over = numbers.into_iter().find(|(_, _, need, most)| *need > most.0);
        let Some((key, of, need, most)) = over else {
            return Ok(());
        };
        let says =
            format!("the updates of {of} would take {need} bytes: `{key}` under `[federated]` is {most}");
        Err(TaskError::limit(says)
            .with_field(format!("federated.{key}"))
            .with_hint("its operator sets it in node.toml; fewer clients, or a smaller model, take less"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::fed::wire::RunId;
    use karman_fed::{AssignmentId, ClientId, Run};
    use karman_types::ByteSize;

    const LIMITS: FederatedConfig = FederatedConfig {
        round_disk: ByteSize(10),
        disk: ByteSize(15),
        memory: ByteSize(8),
        kept: ByteSize(0),
        neglect: Duration::MAX,
        adapter_rank: None,
        most_epsilon: None,
        require_local_privacy: false,
    };

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

    fn usual() -> (Takes, &'static FederatedConfig) {
        (Takes::default(), &LIMITS)
    }

    fn waits() -> BoxFuture<'static, Result<SwarmOutcome, TaskError>> {
        futures::future::pending().boxed()
    }

    #[tokio::test]
    async fn a_client_is_in_one_round_and_a_driver_of_many_takes_no_room_but_its_own() {
        let seats = Arc::new(Seats::default());
        seats.take(&key(0, 0), "one".into(), usual(), waits()).unwrap();
        seats.take(&key(0, 0), "two".into(), usual(), waits()).unwrap();
        assert!(!seats.is_in(&key(0, 0), "one"));
        assert!(seats.outcome(&key(0, 0), "one").await.is_err());
        for run in 0..=ROOM.of_a_driver {
            seats
                .take(&key(1, run), "round".into(), usual(), waits())
                .unwrap();
        }
        assert!(!seats.is_in(&key(1, 0), "round"), "it was begun first");
        assert!(seats.is_in(&key(1, 1), "round") && seats.is_in(&key(0, 0), "two"));
        for driver in 2..=ROOM.all {
            seats
                .take(&key(driver, 0), "round".into(), usual(), waits())
                .unwrap();
        }
        assert_eq!(seats.0.lock().newest_first().len(), ROOM.all);
    }

    #[tokio::test]
    async fn what_has_come_of_a_round_is_asked_by_its_driver() {
        let seats = Arc::new(Seats::default());
        seats.take(&key(0, 1), "round".into(), usual(), waits()).unwrap();
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
        let refused = seats
            .take(&key(0, 0), "round".into(), usual(), refuses)
            .unwrap_err();
        assert_eq!(refused.message, "not so");
        assert!(!seats.is_in(&key(0, 0), "round"));
        let fails = async {
            tokio::task::yield_now().await;
            Err::<SwarmOutcome, _>(TaskError::failed("later"))
        };
        seats
            .take(&key(0, 0), "round".into(), usual(), fails.boxed())
            .unwrap();
        let failed = seats.outcome(&key(0, 0), "round").await.unwrap_err();
        assert_eq!(failed.message, "later");
    }

    #[tokio::test]
    async fn a_round_that_takes_too_much_beside_the_others_is_refused_by_the_number_that_says_so() {
        let seats = Arc::new(Seats::default());
        let take = |of, disk, memory, joining| {
            let takes = (Takes { disk, memory }, &LIMITS);
            let taken = seats.take(&key(of, 0), "round".into(), takes, joining);
            taken.map_err(|error| error.field.unwrap_or(error.message))
        };
        let over = |number: &str| Err(format!("federated.{number}"));
        assert_eq!(take(0, 11, 0, waits()), over("round-disk"));
        assert!(!seats.is_in(&key(0, 0), "round"));
        assert_eq!(take(0, 10, 4, waits()), Ok(()));
        assert_eq!(take(1, 6, 4, waits()), over("disk"));
        assert_eq!(take(1, 5, 5, waits()), over("memory"));
        assert_eq!(take(1, 5, 4, waits()), Ok(()));
        // It leaves the round that it was in.
        assert_eq!(take(1, 4, 3, waits()), Ok(()));
        // One that is over leaves its mean behind.
        let outcome = SwarmOutcome {
            mean: vec![0.5],
            rebuilt: Vec::new(),
            of: 2,
            left_out: Vec::new(),
            covered: true,
            unprotected: 0,
            altered: Vec::new(),
        };
        let ends = async { Ok::<_, TaskError>(outcome) }.boxed();
        assert_eq!(take(0, 10, 4, ends), Ok(()));
        seats.outcome(&key(0, 0), "round").await.unwrap();
        assert_eq!(take(2, 10, 1, waits()), Ok(()));
        assert_eq!(take(3, 0, 1, waits()), over("memory"));
    }

    #[tokio::test]
    async fn a_round_that_is_left_for_a_new_one_takes_no_room_from_it() {
        let seats = Arc::new(Seats::default());
        let take = |of, run, memory| {
            let takes = (Takes { disk: 0, memory }, &LIMITS);
            let taken = seats.take(&key(of, run), "round".into(), takes, waits());
            taken.map_err(|error| error.field.unwrap_or(error.message))
        };
        let over = || Err("federated.memory".to_owned());
        let each = LIMITS.memory.0 / ROOM.of_a_driver as u64;
        for run in 0..ROOM.of_a_driver {
            assert_eq!(take(0, run, each), Ok(()));
        }
        assert_eq!(take(1, 0, 1), over(), "nothing is left for another driver");
        // The oldest of its own driver makes room for as much as it took.
        assert_eq!(take(0, ROOM.of_a_driver, each + 1), over());
        assert!(seats.is_in(&key(0, 0), "round"));
        assert_eq!(take(0, ROOM.of_a_driver, each), Ok(()));
        assert!(!seats.is_in(&key(0, 0), "round") && seats.is_in(&key(0, 1), "round"));
    }
}
