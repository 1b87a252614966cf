//! What is accepted: once for its key, within limits, by enough keepers.

use super::*;

#[test]
fn the_same_key_is_the_same_task() {
    let mut machine = machine(Limits::default());
    let keyed = |name: &str| Submission {
        key: Some("alice/7".into()),
        guarantee: Guarantee::Local,
        ..Submission::new(name, TaskRequest::default())
    };
    let ticket = ticket(&submit(&mut machine, TASK, keyed("classify")));
    // The repetition waits for the same write.
    assert_eq!(submit(&mut machine, OTHER, keyed("classify")), []);
    let actions = machine.handle(Instant(1), Event::Saved { ticket });
    let acknowledged = |asked| Action::Acknowledge { asked, task: TASK };
    assert_eq!(actions[..2], [acknowledged(TASK), acknowledged(OTHER)]);
    let actions = submit(&mut machine, OTHER, keyed("alert"));
    assert!(matches!(
        &actions[..],
        [Action::Refuse {
            error: SubmitError::KeyReused(_),
            ..
        }]
    ));
}

#[test]
fn a_limit_refuses_by_name() {
    let mut machine = machine(Limits {
        queue: 1,
        ..Limits::default()
    });
    submit(&mut machine, TASK, work(Guarantee::Direct));
    let actions = submit(&mut machine, OTHER, work(Guarantee::Direct));
    assert!(
        matches!(&actions[..], [Action::Refuse { error: SubmitError::Limit(error), .. }] if error.name == "queue")
    );
}

#[test]
fn what_stands_beside_a_body_is_bounded_too() {
    let told = |bytes: usize| TaskRequest {
        metadata: vec![("note".into(), "x".repeat(bytes))],
        ..TaskRequest::default()
    };
    let refused = |submission: Submission, limits: Limits| {
        let mut machine = machine(limits);
        match &submit(&mut machine, TASK, submission)[..] {
            [Action::Refuse { error, .. }] => Some(TaskError::from(error.clone())),
            _ => None,
        }
    };
    for guarantee in [Guarantee::Local, Guarantee::Kept] {
        let keyed = |bytes: usize| Submission {
            key: Some("k".repeat(bytes).into()),
            ..work(guarantee)
        };
        let noted = |bytes| Submission {
            guarantee,
            ..Submission::new("classify", told(bytes))
        };
        for (fits, does_not, field) in [
            (keyed(1 << 10), keyed(1025), "key"),
            (noted(16_000), noted(17_000), "metadata"),
        ] {
            assert_eq!(refused(fits, Limits::default()), None);
            let error = refused(does_not, Limits::default()).unwrap();
            assert_eq!(
                (error.kind, error.field.as_deref()),
                (ErrorKind::Limit, Some(field))
            );
        }
    }
    let narrow = Limits {
        queue_bytes: ByteSize::kib(1),
        ..Limits::default()
    };
    let submission = Submission::new("classify", told(2000));
    let error = refused(submission, narrow).unwrap();
    assert_eq!(error.field.as_deref(), Some("queue-bytes"));
}

#[test]
fn kept_work_needs_three_keepers_and_a_majority() {
    let mut machine = machine(Limits::default());
    let (total, majority) = (2, true);
    machine.handle(Instant(0), Event::Keepers { total, majority });
    let actions = submit(&mut machine, TASK, work(Guarantee::Kept));
    let error = SubmitError::TooFewKeepers { have: 2 };
    assert_eq!(actions, [Action::Refuse { asked: TASK, error }]);

    let (total, majority) = (3, false);
    machine.handle(Instant(0), Event::Keepers { total, majority });
    let actions = submit(&mut machine, TASK, work(Guarantee::Kept));
    let error = SubmitError::NotDurable(SaveError::NoMajority);
    assert_eq!(TaskError::from(error.clone()).kind, ErrorKind::Unavailable);
    assert_eq!(actions, [Action::Refuse { asked: TASK, error }]);
}

#[test]
fn an_acceptance_in_doubt_is_withdrawn_unless_somebody_was_told_of_it() {
    for joined in [false, true] {
        let mut machine = machine(Limits::default());
        let accept = ticket(&submit(&mut machine, TASK, work(Guarantee::Kept)));
        let error = SaveError::NoMajority;
        let actions = machine.handle(
            Instant(1),
            Event::Unsaved {
                ticket: accept,
                error,
            },
        );
        let [Action::Refuse { .. }, Action::Propose { ticket, entry }] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert!(matches!(entry, Entry::Withdraw { .. }), "{entry:?}");
        let ticket = *ticket;
        let outcome = match joined {
            true => Event::Unsaved {
                ticket,
                error: SaveError::Refused(KeptError::Joined(TASK)),
            },
            false => Event::Saved { ticket },
        };
        machine.handle(Instant(2), outcome);
        let runs = machine.handle(Instant(3), Event::Tick);
        match joined {
            true => assert_eq!(machine.status(TASK), Some(Status::Waiting), "{runs:?}"),
            // The key is free: the same may be submitted again.
            false => assert_eq!(machine.status(TASK), None, "{runs:?}"),
        }
    }
}

/// What a node would hand over of this task.
pub(super) fn handover(task: TaskId, submission: &Submission) -> TaskRecord {
    let actions = submit(&mut machine(Limits::default()), task, submission.clone());
    let [
        Action::Persist {
            write: Write::Put(record),
            ..
        },
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    TaskRecord {
        epoch: record.epoch.next(),
        ..TaskRecord::clone(record)
    }
}

pub(super) fn receive(machine: &mut Machine, record: TaskRecord) -> Vec<Action> {
    let within = None;
    machine.handle(Instant(1), Event::Receive(Box::new(Handover { record, within })))
}

#[test]
fn only_what_could_have_been_accepted_is_taken_over() {
    let good = handover(TASK, &work(Guarantee::Local));
    let ended = Saved::Forgotten { at: None };
    for record in [
        TaskRecord {
            guarantee: Guarantee::Direct,
            ..good.clone()
        },
        TaskRecord {
            state: ended,
            ..good.clone()
        },
        TaskRecord {
            name: "alert".into(),
            ..good.clone()
        },
        TaskRecord {
            home: Some(node("elsewhere")),
            ..good.clone()
        },
    ] {
        let actions = receive(&mut machine(Limits::default()), record);
        let error = SubmitError::NoHandover;
        assert_eq!(actions, [Action::Refuse { asked: TASK, error }]);
    }

    // However late it says that it ends, it ends in time.
    let mut heir = machine(Limits::default());
    let mut late = good;
    late.due.at = Some(UnixMs(u64::MAX));
    receive(&mut heir, late);
    let latest = TRUSTED.wall.after(Limits::default().lifetime);
    let due = heir.record(TASK).unwrap().due.at.unwrap();
    assert!(due <= UnixMs(latest.0 + 1), "{due:?}");
}

#[test]
fn a_task_of_this_node_is_replaced_by_nobody() {
    let mut machine = machine(Limits::default());
    let saved = ticket(&submit(&mut machine, TASK, work(Guarantee::Local)));
    machine.handle(Instant(1), Event::Saved { ticket: saved });
    let same = handover(TASK, &work(Guarantee::Local));
    let other = handover(
        TASK,
        &Submission {
            name: "alert".into(),
            ..work(Guarantee::Local)
        },
    );
    let refused = |actions: Vec<Action>| match &actions[..] {
        [Action::Refuse { error, .. }] => error.clone(),
        _ => panic!("{actions:?}"),
    };
    assert_eq!(refused(receive(&mut machine, same)), SubmitError::Owned);
    let error = refused(receive(&mut machine, other));
    assert!(matches!(error, SubmitError::KeyReused(_)), "{error}");
    assert_eq!(machine.status(TASK), Some(Status::Waiting));
}
