//! A step that another node withdraws: what its owner does.

use crate::drive::cbor::write;
use crate::{LogRing, Node, NodeConfig, RuntimeOptions};
use karman_mesh::membership::{Member, Right, Rights, UnixTime};
use karman_tasks::{Guarantee, Outcome, Submission};
use karman_types::{ErrorKind, NodeId, TaskError, TaskId, TaskRequest, Tier};
use serde::Serialize;
use std::time::Duration;

/// The time within which a task has ended.
const ENDED: Duration = Duration::from_secs(60);

/// Messages to the owner of a task, by the names under which they travel.
#[derive(Serialize)]
enum Message {
    Remove(TaskId),
    Withdraw(TaskId),
    /// One that only a later version knows.
    Later(TaskId),
}

async fn tell(node: &Node, message: &Message) -> Result<(), TaskError> {
    let right: Right = "call:*".parse().unwrap();
    let from = Member {
        key: [7; 32],
        node: NodeId::of_key(&[7; 32]),
        issuer: None,
        tier: Tier::Cloud,
        rights: [right].into_iter().collect::<Rights>(),
        issued: UnixTime::from_seconds(1),
        not_after: UnixTime::from_seconds(2),
    };
    let body = write(message).unwrap();
    node.tasks().keepers().serve(&from, &body).await.map(drop)
}

#[tokio::test]
async fn what_came_of_it_stays_where_it_has_ended_before_it_is_withdrawn() {
    let folder = tempfile::tempdir().unwrap();
    let options = RuntimeOptions {
        state: folder.path().join("state"),
        cache: folder.path().join("cache"),
        program: None,
    };
    let node = Node::start(NodeConfig::default(), options, LogRing::default());
    let node = node.await.unwrap();
    let submission = Submission {
        guarantee: Guarantee::Local,
        ..Submission::new("nowhere", TaskRequest::default())
    };
    let task = node.tasks().submit(submission).await.unwrap();
    let outcome = || node.tasks().outcome(task, ENDED);
    // The first time it is open, and the second time it has ended.
    for _ in 0..2 {
        tell(&node, &Message::Withdraw(task)).await.unwrap();
        assert_eq!(outcome().await, Ok(Some(Outcome::Cancelled)));
    }
    tell(&node, &Message::Remove(task)).await.unwrap();
    let forgotten = outcome().await.unwrap_err();
    assert_eq!(forgotten.field.as_deref(), Some("task"), "{forgotten}");
    // What only a later version says is refused as a message, not as a task.
    let unread = tell(&node, &Message::Later(task)).await.unwrap_err();
    assert_eq!(
        (unread.kind, unread.field.as_deref()),
        (ErrorKind::Invalid, Some("message"))
    );
}
