//! What a node has given to the secure sums of a run. It decides what it may still give.

use karman_fed::{AssignmentId, ClientId};
use karman_types::TaskError;
use serde::{Deserialize, Serialize};

/// The runs of one driver that a node gives updates to. It forgets none of them.
const MOST_GIVEN: usize = 4096;

/// The last update that a node gave to a secure sum of a run, and as which client. Nothing else of that run leaves the node any
/// more: neither an update in the open, nor one as another client.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Given {
    client: ClientId,
    assignment: AssignmentId,
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
        match before {
            Some(before) if before.client != client => {
                let says = format!(
                    "this node is {} of that run, and gives nothing as another client",
                    before.client
                );
                Err(TaskError::denied(says).with_field("client"))
            }
            // Two sums with and without somebody else's update would tell what that is.
            Some(before) if before.assignment >= assignment => {
                let says = "the update of this order is in a sum already, and goes into no second one";
                Err(TaskError::denied(says).with_field("assignment"))
            }
            _ => Ok(Self { client, assignment }),
        }
    }
}

/// Whether a node that has given to so many runs of a driver gives to one more.
pub(super) fn check_room(known: usize) -> Result<(), TaskError> {
    if known < MOST_GIVEN {
        return Ok(());
    }
    let says = format!(
        "this node has given updates to secure sums of {MOST_GIVEN} runs of that driver, and forgets none of them: have another \
         node drive the run"
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
    fn nothing_is_forgotten_to_make_room() {
        assert!(check_room(MOST_GIVEN - 1).is_ok());
        assert_eq!(check_room(MOST_GIVEN).unwrap_err().field.as_deref(), Some("run"));
    }
}
