//! What a node has given to the secure sums of a run, or to its other clients. It decides what it may still give.

use super::wire::RunId;
use karman_fed::{AssignmentId, ClientId};
use karman_store::Store;
use karman_types::{NodeId, TaskError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The runs of one driver that a node knows to have given updates to.
const MOST_GIVEN: usize = 4096;

/// The last update that a node gave to a secure sum of a run or spread among its clients, and as which client. Nothing else of that
/// run leaves the node any more: neither an update in the open, nor one as another client, nor one in the other way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Given {
    client: ClientId,
    assignment: AssignmentId,
    /// Whether it was spread.
    spread: bool,
}

impl Given {
    /// What it is once the update of this order is given too.
    ///
    /// # Errors
    /// It must not be: it is that of another client, or in a sum already.
    pub(super) fn next(
        before: Option<Self>,
        client: ClientId,
        assignment: AssignmentId,
    ) -> Result<Self, TaskError> {
        match Self::check(before, client, false)? {
            // Two sums with and without somebody else's update would tell what that is.
            Some(before) if before.assignment >= assignment => {
                let says = "the update of this order is in a sum already, and goes into no second one";
                Err(TaskError::denied(says).with_field("assignment"))
            }
            _ => Ok(Self {
                client,
                assignment,
                spread: false,
            }),
        }
    }

    /// What it is once the update of this order is spread among the clients. A round that is begun again, because its driver was, spreads
    /// the same update once more. Who has a round begun again with one client less, and takes both means, learns what that one has changed: a
    /// driver is trusted not to.
    ///
    /// # Errors
    /// It must not be: it is that of another client, or of an order before the last, or the run's updates go into secure sums.
    pub(super) fn next_spread(
        before: Option<Self>,
        client: ClientId,
        assignment: AssignmentId,
    ) -> Result<Self, TaskError> {
        match Self::check(before, client, true)? {
            Some(before) if before.assignment > assignment => {
                let says = "the update of a later order has gone to the clients of that run already";
                Err(TaskError::denied(says).with_field("assignment"))
            }
            _ => Ok(Self {
                client,
                assignment,
                spread: true,
            }),
        }
    }

    /// What was given before, if the same client goes on in the same way.
    fn check(before: Option<Self>, client: ClientId, spread: bool) -> Result<Option<Self>, TaskError> {
        let Some(given) = before else { return Ok(None) };
        if given.client != client {
            let says = format!(
                "this node is {} of that run, and gives nothing as another client",
                given.client
            );
            return Err(TaskError::denied(says).with_field("client"));
        }
        if given.spread != spread {
            let way = if spread {
                "into secure sums"
            } else {
                "from client to client"
            };
            let says = format!("the updates of this run go {way}, and nowhere else");
            return Err(TaskError::denied(says).with_field("work"));
        }
        Ok(before)
    }
}

/// What a node has given, on its disk.
pub(super) struct Gifts {
    store: Store,
    /// The runs of one driver that are known.
    most: usize,
    /// The number of the last gift to each driver that was given something since the start.
    last: Mutex<HashMap<NodeId, u64>>,
}

/// A gift as it is written down.
#[derive(Deserialize, Serialize)]
struct Gift {
    client: ClientId,
    assignment: AssignmentId,
    spread: bool,
    /// Gifts to one driver are counted: which run was given to longest ago shows in that.
    number: u64,
}

impl Gifts {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            most: MOST_GIVEN,
            last: Mutex::default(),
        }
    }

    pub(super) fn get(&self, driver: NodeId, run: &RunId) -> Result<Option<Given>, TaskError> {
        let gift = self.read(&(of_driver(driver) + &run.0))?;
        Ok(gift.map(|gift| Given {
            client: gift.client,
            assignment: gift.assignment,
            spread: gift.spread,
        }))
    }

    /// Puts a gift down, for good. Where too many runs of the driver are known, the one that was given to longest ago makes room. That one has
    /// ended in all likelihood; and a driver that wants an update in two sums need not have it forgotten for that: it begins another run.
    pub(super) fn put(&self, driver: NodeId, run: &RunId, given: Given) -> Result<(), TaskError> {
        let mut last = self.last.lock();
        let name = of_driver(driver) + &run.0;
        let known = self.store.runs().names(&of_driver(driver))?;
        let makes_room = known.len() >= self.most && !known.contains(&name);
        let before = last.get(&driver).copied();
        if before.is_none() || makes_room {
            let numbers = self.numbers(known)?;
            let newest = numbers.iter().map(|(number, _)| *number).max();
            last.insert(driver, before.max(newest).unwrap_or_default());
            if let Some((_, oldest)) = numbers.into_iter().min().filter(|_| makes_room) {
                tracing::info!(
                    oldest,
                    "what was given to a secure sum or other clients longest ago is forgotten"
                );
                self.store.runs().remove(&[&oldest])?;
            }
        }
        let number = last.get(&driver).copied().unwrap_or_default() + 1;
        let gift = Gift {
            client: given.client,
            assignment: given.assignment,
            spread: given.spread,
            number,
        };
        self.store.runs().put(&name, &gift)?;
        last.insert(driver, number);
        Ok(())
    }

    fn numbers(&self, names: Vec<String>) -> Result<Vec<(u64, String)>, TaskError> {
        let number = |name: String| {
            let gift = self.read(&name)?;
            Ok((gift.map_or(0, |gift| gift.number), name))
        };
        names.into_iter().map(number).collect()
    }

    fn read(&self, name: &str) -> Result<Option<Gift>, TaskError> {
        self.store.runs().get(name).map_err(TaskError::from)
    }
}

fn of_driver(driver: NodeId) -> String {
    format!("given/{driver}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_given_once_and_by_one_client() {
        let next = |before, client, order| Given::next(before, ClientId(client), AssignmentId(order));
        let first = next(None, 2, 5).unwrap();
        let field = |given: Result<Given, TaskError>| given.unwrap_err().field;
        assert_eq!(field(next(Some(first), 2, 5)).as_deref(), Some("assignment"));
        assert_eq!(field(next(Some(first), 2, 4)).as_deref(), Some("assignment"));
        assert_eq!(field(next(Some(first), 3, 6)).as_deref(), Some("client"));
        assert!(next(Some(first), 2, 6).is_ok());
    }

    #[test]
    fn an_update_is_spread_again_with_its_round_and_goes_into_no_sum() {
        let next = |before, client, order| Given::next_spread(before, ClientId(client), AssignmentId(order));
        let first = next(None, 2, 5).unwrap();
        assert_eq!(next(Some(first), 2, 5).unwrap(), first);
        assert!(next(Some(first), 2, 6).is_ok());
        let field = |given: Result<Given, TaskError>| given.unwrap_err().field;
        assert_eq!(field(next(Some(first), 2, 4)).as_deref(), Some("assignment"));
        assert_eq!(field(next(Some(first), 3, 6)).as_deref(), Some("client"));
        let (client, later) = (ClientId(2), AssignmentId(6));
        assert_eq!(
            field(Given::next(Some(first), client, later)).as_deref(),
            Some("work")
        );
        let summed = Given::next(None, client, later).unwrap();
        assert_eq!(field(next(Some(summed), 2, 7)).as_deref(), Some("work"));
    }

    #[test]
    fn the_run_that_was_given_to_longest_ago_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let gifts = Gifts::new(Store::open(folder.path()).unwrap());
            Gifts { most: 3, ..gifts }
        };
        let (driver, other) = (NodeId::of_key(b"driver"), NodeId::of_key(b"other"));
        let run = |number: u8| RunId(format!("{number:02x}"));
        let given = |order| Given::next(None, ClientId(1), AssignmentId(order)).unwrap();
        let gifts = open();
        gifts.put(other, &run(0), given(1)).unwrap();
        for number in [1, 2, 3] {
            gifts.put(driver, &run(number), given(1)).unwrap();
        }
        // The first goes on; of the others the second has had nothing for longest, also as seen after a restart.
        gifts.put(driver, &run(1), given(2)).unwrap();
        drop(gifts);
        let gifts = open();
        gifts.put(driver, &run(4), given(1)).unwrap();
        let known = |driver, number| gifts.get(driver, &run(number)).unwrap();
        assert_eq!(known(driver, 1), Some(given(2)));
        assert_eq!(known(driver, 2), None);
        assert_eq!(known(driver, 3), Some(given(1)));
        assert_eq!(known(driver, 4), Some(given(1)));
        gifts.put(driver, &run(5), given(1)).unwrap();
        assert_eq!([known(driver, 3), known(driver, 5)], [None, Some(given(1))]);
        assert_eq!(known(other, 0), Some(given(1)), "that is another driver's");
    }
}
