use super::answers::judged;
use super::*;
use crate::services::{Carried, Origin};
use karman_mesh::membership::{Member, Right, Rights, UnixTime};
use karman_tasks::{Batch, Operation, Place};
use karman_types::{TaskResponse, Tier};

const TASK: TaskId = TaskId::from_parts(1, 1);
const OTHER: TaskId = TaskId::from_parts(1, 2);

fn member(rights: &[&str]) -> Member {
    Member {
        key: [7; 32],
        node: NodeId::of_key(&[7; 32]),
        issuer: None,
        tier: Tier::Space,
        rights: rights
            .iter()
            .map(|right| right.parse::<Right>().unwrap())
            .collect::<Rights>(),
        issued: UnixTime::from_seconds(1),
        not_after: UnixTime::from_seconds(2),
    }
}

fn place(key: impl ToString) -> Place {
    ("tally".into(), key.to_string().into())
}

fn kind(reply: AwayReply) -> Option<ErrorKind> {
    match reply {
        AwayReply::Failed(error) => Some(error.kind),
        AwayReply::Done(_) | AwayReply::Needs(_) => None,
    }
}

#[test]
fn a_node_writes_and_reads_only_what_it_may() {
    let writes = || {
        let set = Operation::Set {
            bucket: "tally".into(),
            key: "bridge".into(),
            value: Bytes::from_static(b"1"),
        };
        AwayReply::Done(Box::new(Answer {
            response: TaskResponse::default(),
            batch: Some(Batch {
                home: NodeId::of_key(b"elsewhere"),
                reads: Vec::new(),
                operations: vec![set],
            }),
        }))
    };
    let needs = |keys: usize| AwayReply::Needs((0..keys).map(place).collect());
    let all = member(&["bucket-read:*", "bucket-write:*"]);
    let none = member(&["bucket-read:other", "bucket-write:other"]);
    assert_eq!(kind(judged(&all, writes())), None);
    assert_eq!(kind(judged(&none, writes())), Some(ErrorKind::Denied));
    assert_eq!(kind(judged(&all, needs(Needs::MOST))), None);
    assert_eq!(kind(judged(&none, needs(1))), Some(ErrorKind::Denied));
    assert_eq!(kind(judged(&all, needs(Needs::MOST + 1))), Some(ErrorKind::Limit));
}

#[test]
fn a_key_that_is_asked_for_a_thousand_times_is_looked_up_once() {
    let same = AwayReply::Needs(vec![place("bridge"); Needs::MOST]);
    let judged = judged(&member(&["bucket-read:*"]), same);
    assert_eq!(judged, AwayReply::Needs(vec![place("bridge")]));
}

#[tokio::test]
async fn an_attempt_has_what_it_brought_and_asks_for_what_it_missed() {
    let carried = Arc::new(Carried::new(vec![AwayValue {
        bucket: "tally".into(),
        key: "bridge".into(),
        version: 4,
        value: Some(Bytes::from_static(b"7")),
    }]));
    let origin = Origin::Carried(carried.clone());
    let found = origin
        .clone()
        .read("tally".into(), "bridge".into())
        .await
        .unwrap();
    assert_eq!(found, (4, Some(Bytes::from_static(b"7"))));
    assert!(carried.missing().is_empty());
    let missed = origin.read("tally".into(), "road".into()).await.unwrap_err();
    assert_eq!(missed.kind, ErrorKind::Unavailable);
    assert_eq!(carried.missing(), [place("road")]);
}

#[test]
fn an_attempt_is_under_way_until_the_last_of_its_task_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let away = Away::open(Store::open(folder.path()).unwrap(), |_| true).unwrap();
    let attempt = |number| AttemptId {
        task: TASK,
        run: 1,
        number,
    };
    let first = UnderWay::new(&away, attempt(1));
    // The first one is dropped some time after it was stopped.
    let second = UnderWay::new(&away, attempt(2));
    drop(first);
    assert!(away.is_under_way(TASK) && !away.is_under_way(OTHER));
    drop(second);
    assert!(!away.is_under_way(TASK));
}
