//! What a node has given to the secure sums of a run, or to its other clients. It decides what it may still give.

use karman_fed::{AssignmentId, ClientId};
use karman_types::TaskError;
use serde::{Deserialize, Serialize};

/// The runs of one driver that a node gives updates to. It forgets none of them.
const MOST_GIVEN: usize = 4096;

/// The last update that a node gave to a secure sum of a run or spread among its clients, and as which client. Nothing else of that
/// run leaves the node any more: neither an update in the open, nor one as another client, nor one in the other way.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Given {
    client: ClientId,
    assignment: AssignmentId,
    /// Whether it was spread.
    #[serde(default)]
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
    /// the same update once more: there is nothing more to learn from that.
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

/// Whether a node that has given to so many runs of a driver gives to one more.
pub(super) fn check_room(known: usize) -> Result<(), TaskError> {
    if known < MOST_GIVEN {
        return Ok(());
    }
    let says = format!(
        "this node has given updates to secure sums or other clients of {MOST_GIVEN} runs of that driver, and forgets none of \
         them: have another node drive the run"
    );
    Err(TaskError::limit(says).with_field("run"))
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
    fn nothing_is_forgotten_to_make_room() {
        assert!(check_room(MOST_GIVEN - 1).is_ok());
        assert_eq!(check_room(MOST_GIVEN).unwrap_err().field.as_deref(), Some("run"));
    }
}
