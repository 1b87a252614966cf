use super::*;
use crate::services::Carried;
use karman_mesh::membership::{Rights, UnixTime};
use karman_tasks::{Batch, Operation};
use karman_types::{TaskResponse, Tier};

fn member(rights: &[&str]) -> Member {
    Member {
        key: [7; 32],
        node: NodeId::of_key(&[7; 32]),
        tier: Tier::Space,
        rights: rights
            .iter()
            .map(|right| right.parse::<Right>().unwrap())
            .collect::<Rights>(),
        issued: UnixTime::from_seconds(1),
        not_after: UnixTime::from_seconds(2),
    }
}

fn kind(reply: Reply) -> Option<ErrorKind> {
    match reply {
        Reply::Failed(error) => Some(error.kind),
        Reply::Done(_) | Reply::Needs(_) => None,
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
        Reply::Done(Box::new(Answer {
            response: TaskResponse::default(),
            batch: Some(Batch {
                home: NodeId::of_key(b"elsewhere"),
                reads: Vec::new(),
                operations: vec![set],
            }),
        }))
    };
    let needs = |keys: usize| {
        Reply::Needs(
            (0..keys)
                .map(|key| ("tally".into(), key.to_string().into()))
                .collect(),
        )
    };
    let all = member(&["bucket-read:*", "bucket-write:*"]);
    let none = member(&["bucket-read:other", "bucket-write:other"]);
    assert_eq!(kind(judged(&all, writes())), None);
    assert_eq!(kind(judged(&none, writes())), Some(ErrorKind::Denied));
    assert_eq!(kind(judged(&all, needs(MOST_NEEDED))), None);
    assert_eq!(kind(judged(&none, needs(1))), Some(ErrorKind::Denied));
    assert_eq!(kind(judged(&all, needs(MOST_NEEDED + 1))), Some(ErrorKind::Limit));
}

#[test]
fn what_goes_along_is_bounded_in_bytes() {
    let value = |key: &str, bytes| Value {
        bucket: "counts".into(),
        key: key.into(),
        version: 1,
        value: Some(vec![0; bytes].into()),
    };
    let mut carried = Vec::new();
    carry(&mut carried, value("one", MOST_CARRIED / 2)).unwrap();
    let over = carry(&mut carried, value("two", MOST_CARRIED / 2)).unwrap_err();
    assert_eq!(
        (over.kind, over.field.as_deref()),
        (ErrorKind::Limit, Some("buckets"))
    );
    assert_eq!(carried.len(), 1);
}

#[test]
fn what_is_on_its_way_is_known_after_a_restart_until_it_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let (soon, over) = (TaskId::from_parts(1, 1), TaskId::from_parts(1, 2));
    let to = NodeId::of_key(b"above");
    let sent = |expires_ms| Sent {
        to,
        bundle: Digest::of(b"bundle"),
        expires_ms,
    };
    let away = Away::open(store.clone()).unwrap();
    away.remember(soon, sent(now_ms() + 3_600_000)).unwrap();
    away.remember(over, sent(now_ms() - 1)).unwrap();
    assert_eq!((away.is_at(soon), away.is_at(over)), (Some(to), None));
    let away = Away::open(store.clone()).unwrap();
    assert_eq!((away.is_at(soon), away.sent.lock().len()), (Some(to), 1));
    assert!(away.forget(soon).unwrap().is_some());
    assert!(Away::open(store).unwrap().sent.lock().is_empty());
}

#[test]
fn orders_and_replies_are_read_as_they_were_written_and_garbage_is_not() {
    let needs = Reply::Needs(vec![("tally".into(), "bridge".into())]);
    let read_again: Reply = read("answer", &write(&needs).unwrap()).unwrap();
    assert!(matches!(read_again, Reply::Needs(places) if places == [("tally".into(), "bridge".into())]));
    for garbage in [&b""[..], b"\xff\xff", &[0x81; 4096]] {
        assert_eq!(
            read::<Reply>("answer", garbage).unwrap_err().kind,
            ErrorKind::Invalid
        );
        let refused = readable(&Bytes::copy_from_slice(garbage)).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
    }
}

#[tokio::test]
async fn an_attempt_has_what_it_brought_and_asks_for_what_it_missed() {
    let carried = Arc::new(Carried::new(vec![Value {
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
    assert_eq!(carried.missing(), [("tally".into(), "road".into())]);
}
