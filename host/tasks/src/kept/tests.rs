use super::*;
use crate::{Due, Guarantee, Outcome};
use karman_types::{Digest, TaskRequest};

const TASK: TaskId = TaskId::from_parts(0, 1);

fn node(name: &str) -> NodeId {
    NodeId::of_key(name.as_bytes())
}

fn accept(task: TaskId, asks: &str) -> Entry {
    let record = TaskRecord {
        task,
        name: "classify".into(),
        guarantee: Guarantee::Kept,
        key: Some("k".into()),
        effect: None,
        fingerprint: Digest::of(asks.as_bytes()),
        epoch: Epoch::FIRST,
        home: Some(node("a")),
        attempts: 0,
        written: None,
        due: Due::default(),
        hedge_after: None,
        stays: false,
        state: Saved::Open(TaskRequest {
            body: "12345".into(),
            ..TaskRequest::default()
        }),
    };
    Entry::Accept {
        owner: node("a"),
        record: Box::new(record),
    }
}

fn own(name: &str, epoch: u64) -> Entry {
    Entry::Own {
        task: TASK,
        node: node(name),
        epoch: Epoch(epoch),
    }
}

fn end(epoch: u64, outcome: Outcome) -> Entry {
    Entry::End {
        task: TASK,
        epoch: Epoch(epoch),
        outcome,
        at: None,
    }
}

#[test]
fn a_former_owner_has_no_effect() {
    let mut kept = KeptState::new(8);
    kept.apply(accept(TASK, "x")).unwrap();
    kept.apply(own("b", 2)).unwrap();
    // The second candidate comes too late, the first may say it twice.
    assert!(matches!(kept.apply(own("c", 2)), Err(KeptError::Stale(_))));
    kept.apply(own("b", 2)).unwrap();
    let (given, current) = (Epoch::FIRST, Epoch(2));
    assert_eq!(
        kept.stale(&end(1, Outcome::Expired)),
        Some(StaleEpoch {
            task: TASK,
            given,
            current
        })
    );
    assert_eq!(kept.stale(&end(2, Outcome::Expired)), None);
    assert!(matches!(
        kept.apply(end(1, Outcome::Expired)),
        Err(KeptError::Stale(_))
    ));
    kept.apply(end(2, Outcome::Cancelled)).unwrap();
    let error = kept.apply(end(2, Outcome::Expired)).unwrap_err();
    assert!(
        matches!(error, KeptError::Ended { outcome: Some(outcome), .. } if *outcome == Outcome::Cancelled)
    );
    assert_eq!(kept.refused_stale(), 2);
    assert_eq!(kept.owned_by(node("b")).len(), 1);
}

#[test]
fn a_key_is_accepted_once() {
    let mut kept = KeptState::new(1);
    let other = TaskId::from_parts(0, 2);
    kept.apply(accept(TASK, "x")).unwrap();
    assert_eq!(kept.apply(accept(TASK, "x")), Ok(Effect::Accepted(TASK)));
    assert_eq!(kept.apply(accept(other, "x")), Err(KeptError::Same(TASK)));
    assert!(matches!(
        kept.apply(accept(other, "y")),
        Err(KeptError::KeyReused(_))
    ));
    let epoch = Epoch::FIRST;
    kept.apply(Entry::Forget { task: TASK, epoch }).unwrap();
    kept.apply(accept(other, "y")).unwrap();
}

#[test]
fn what_nobody_was_told_of_is_withdrawn() {
    let withdraw = Entry::Withdraw {
        task: TASK,
        epoch: Epoch::FIRST,
    };
    let mut kept = KeptState::new(8);
    kept.apply(accept(TASK, "x")).unwrap();
    assert_eq!(kept.apply(withdraw.clone()), Ok(Effect::Withdrawn(TASK)));
    assert_eq!((kept.len(), kept.bytes()), (0, 0));
    assert_eq!(kept.apply(withdraw.clone()), Err(KeptError::Unknown(TASK)));

    // The same came to another node, whose caller now waits for this one.
    kept.apply(accept(TASK, "x")).unwrap();
    let other = TaskId::from_parts(0, 2);
    assert_eq!(kept.apply(accept(other, "x")), Err(KeptError::Same(TASK)));
    assert_eq!(kept.apply(withdraw), Err(KeptError::Joined(TASK)));
    assert!(matches!(kept.get(TASK).unwrap().record.state, Saved::Open(_)));
}

#[test]
fn progress_goes_to_the_next_owner_and_an_older_one_adds_none() {
    let progress = |epoch, text: &'static str| Entry::Progress {
        task: TASK,
        epoch: Epoch(epoch),
        progress: text.into(),
    };
    let dispatch = |epoch, number| Entry::Dispatch {
        task: TASK,
        epoch: Epoch(epoch),
        number,
        provider: node("b"),
    };
    let mut kept = KeptState::new(8);
    kept.apply(accept(TASK, "x")).unwrap();
    kept.apply(dispatch(1, 3)).unwrap();
    kept.apply(progress(1, "half")).unwrap();
    assert_eq!(kept.bytes(), 9);
    // It got on, so that its attempts are no reason to give it up.
    assert_eq!(kept.get(TASK).unwrap().record.attempts, 0);
    kept.apply(own("b", 2)).unwrap();
    assert!(matches!(
        kept.apply(progress(1, "more")),
        Err(KeptError::Stale(_))
    ));
    assert_eq!(kept.get(TASK).unwrap().progress.as_deref(), Some(&b"half"[..]));
    kept.apply(end(2, Outcome::Cancelled)).unwrap();
    assert!(matches!(
        kept.apply(progress(2, "late")),
        Err(KeptError::Ended { .. })
    ));
    let epoch = Epoch(2);
    kept.apply(Entry::Trim { task: TASK, epoch }).unwrap();
    assert_eq!((kept.bytes(), &kept.get(TASK).unwrap().progress), (0, &None));
}

#[test]
fn a_result_displaces_those_that_were_accepted_first_and_no_task_that_goes_on() {
    let epoch = Epoch::FIRST;
    let task = |n| TaskId::from_parts(0, n);
    let accepted = |n, is_part: bool| {
        let Entry::Accept { owner, mut record } = accept(task(n), "x") else {
            unreachable!()
        };
        record.key = None;
        record.stays = is_part;
        record.effect = is_part.then(|| "run/step".into());
        Entry::Accept { owner, record }
    };
    let ends = |n, bytes: usize| Entry::End {
        task: task(n),
        epoch,
        outcome: Outcome::Done(karman_types::TaskResponse {
            body: vec![0; bytes].into(),
            ..Default::default()
        }),
        at: None,
    };
    let mut kept = KeptState::new(8);
    // The first does not end, and the second is part of another.
    for n in 1..=5 {
        kept.apply(accepted(n, n == 2)).unwrap();
    }
    for n in [4, 3, 2] {
        kept.apply(ends(n, 20)).unwrap();
    }
    assert_eq!(kept.bytes(), 70);
    assert_eq!(kept.bytes_with(&ends(5, 30)), 95);
    assert_eq!(kept.making_room(&ends(5, 30), 95), []);
    let trim = |n| Entry::Trim { task: task(n), epoch };
    assert_eq!(kept.making_room(&ends(5, 30), 94), [trim(3)]);
    assert_eq!(kept.making_room(&ends(5, 30), 60), [trim(3), trim(4)]);
    // Where it would not help nothing is lost for it.
    assert_eq!(kept.making_room(&ends(5, 30), 54), []);
    for trim in kept.making_room(&ends(5, 30), 60) {
        kept.apply(trim).unwrap();
    }
    kept.apply(ends(5, 30)).unwrap();
    assert_eq!(kept.bytes(), 55);
}

#[test]
fn bytes_are_those_of_inputs_and_results() {
    let mut kept = KeptState::new(8);
    kept.apply(accept(TASK, "x")).unwrap();
    assert_eq!(kept.bytes(), 5);
    let response = karman_types::TaskResponse {
        body: "123".into(),
        ..Default::default()
    };
    kept.apply(end(1, Outcome::Done(response))).unwrap();
    assert_eq!(kept.bytes(), 3);
    let epoch = Epoch::FIRST;
    kept.apply(Entry::Trim { task: TASK, epoch }).unwrap();
    assert_eq!(kept.bytes(), 0);
}
