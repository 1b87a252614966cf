//! Ends other than an answer: deadlines, draining, and results that are forgotten.

use super::*;

#[test]
fn time_in_doubt_holds_a_task_until_the_clock_is_trusted() {
    let doubt = Reading {
        wall: UnixMs(0),
        trusted: false,
        floor: UnixMs(900_000),
    };
    for (wall, late) in [(1_000_500, false), (1_002_000, true)] {
        let mut before = machine(Limits::default());
        let within = Some(Duration::from_secs(1));
        let submission = Submission {
            within,
            ..work(Guarantee::Local)
        };
        let actions = submit(&mut before, TASK, submission);
        let [
            Action::Persist {
                write: Write::Put(record),
                ..
            },
        ] = &actions[..]
        else {
            panic!("{actions:?}")
        };
        // The power is cut.
        let records = [TaskRecord::clone(record)];
        let mut after = Machine::recover(node("here"), Limits::default(), Instant(0), doubt, 2, records);
        assert_eq!(after.handle(Instant(0), Event::Tick), []);
        assert_eq!(after.status(TASK), Some(Status::DeadlineUnknown));
        let wall = UnixMs(wall);
        let actions = after.handle(Instant(9), Event::Clock(Reading { wall, ..TRUSTED }));
        match late {
            false => assert!(matches!(&actions[..], [Action::Place { .. }]), "{actions:?}"),
            true => {
                let ticket = ticket(&actions);
                after.handle(Instant(9), Event::Saved { ticket });
                assert_eq!(after.status(TASK), Some(Status::Ended(&Outcome::Expired)));
            }
        }
    }
}

#[test]
fn tasks_are_looked_at_again_only_where_the_clock_was_set() {
    let mut machine = machine(Limits::default());
    let submission = Submission {
        within: Some(Duration::from_secs(60)),
        ..work(Guarantee::Local)
    };
    let saved = ticket(&submit(&mut machine, TASK, submission));
    machine.handle(Instant(0), Event::Saved { ticket: saved });
    for (ahead, due) in [(0, 60_000), (900, 60_000), (5_000, 55_000)] {
        let wall = UnixMs(TRUSTED.wall.0 + 10_000 + ahead);
        let actions = machine.handle(Instant(10_000), Event::Clock(Reading { wall, ..TRUSTED }));
        assert_eq!((actions, machine.next_timeout()), (vec![], Some(Instant(due))));
    }
}

#[test]
fn a_draining_node_hands_over_what_waits_and_finishes_what_runs() {
    let mut machine = machine(Limits::default());
    let saved = ticket(&submit(&mut machine, TASK, work(Guarantee::Local)));
    machine.handle(Instant(1), Event::Saved { ticket: saved });
    let (_, attempt) = started(&offer(&mut machine, 2, &["a"]));
    let saved = ticket(&submit(&mut machine, OTHER, work(Guarantee::Local)));
    machine.handle(Instant(2), Event::Saved { ticket: saved });

    let actions = machine.handle(Instant(3), drain(&["heir"], &[]));
    // The move is written down before the heir hears of it.
    let ticket_of_move = ticket(&actions);
    let actions = machine.handle(
        Instant(4),
        Event::Saved {
            ticket: ticket_of_move,
        },
    );
    assert!(matches!(&actions[..], [Action::HandOver { handover, .. }] if handover.record.task == OTHER));
    machine.handle(Instant(5), Event::HandedOver { task: OTHER });
    assert_eq!(machine.status(OTHER), Some(Status::Moved(node("heir"))));

    let saved = ticket(&answer(&mut machine, 6, attempt, Ok(())));
    let actions = machine.handle(Instant(7), Event::Saved { ticket: saved });
    assert_eq!(actions, [Action::Ended { task: TASK }, Action::Drained]);
    let actions = submit(&mut machine, TaskId::from_parts(0, 3), work(Guarantee::Direct));
    assert!(matches!(
        &actions[..],
        [Action::Refuse {
            error: SubmitError::Draining,
            ..
        }]
    ));
}

#[test]
fn a_task_that_is_bound_to_its_disk_waits_there_for_the_next_start() {
    let mut machine = machine(Limits::default());
    let bound = Submission {
        stays: true,
        key: Some("run/step#2".into()),
        effect: Some("run/step".into()),
        ..work(Guarantee::Local)
    };
    let saved = ticket(&submit(&mut machine, TASK, bound));
    machine.handle(Instant(1), Event::Saved { ticket: saved });
    let actions = offer(&mut machine, 2, &["a"]);
    let (_, attempt) = started(&actions);
    // What its buckets know it by is the same for every such task.
    assert!(matches!(&actions[..], [Action::Start { call, .. }] if &*call.key == "run/step"));
    assert_eq!(machine.handle(Instant(3), drain(&["heir"], &[])), []);
    let gone = TaskError::unavailable("the node is draining");
    assert_eq!(answer(&mut machine, 4, attempt, Err(gone)), [Action::Drained]);
    assert_eq!(machine.status(TASK), Some(Status::Waiting));
    assert_eq!(machine.next_timeout().filter(|at| at.0 < 1_000), None);
}

#[test]
fn what_no_heir_takes_stays_on_the_disk() {
    let mut machine = machine(Limits::default());
    let saved = ticket(&submit(&mut machine, TASK, work(Guarantee::Local)));
    machine.handle(Instant(1), Event::Saved { ticket: saved });
    let mut actions = machine.handle(Instant(2), drain(&["full", "strange"], &[]));
    for (now, heir) in [(100, "full"), (200, "strange")] {
        let ticket_of_move = ticket(&actions);
        let sent = machine.handle(
            Instant(now),
            Event::Saved {
                ticket: ticket_of_move,
            },
        );
        assert!(
            matches!(&sent[..], [Action::HandOver { to, .. }] if *to == node(heir)),
            "{sent:?}"
        );
        let (task, refused) = (TASK, true);
        let stays = machine.handle(Instant(now + 1), Event::HandOverFailed { task, refused });
        let [
            Action::Persist {
                ticket,
                write: Write::Put(record),
            },
        ] = &stays[..]
        else {
            panic!("{stays:?}")
        };
        assert!(matches!(record.state, Saved::Open(_)));
        let ticket = *ticket;
        actions = machine.handle(Instant(now + 2), Event::Saved { ticket });
        if heir == "full" {
            let then = machine.next_timeout().unwrap();
            actions = machine.handle(then, Event::Tick);
        }
    }
    assert_eq!(actions, [Action::Drained]);
    assert_eq!(machine.status(TASK), Some(Status::Waiting));
}

#[test]
fn a_result_is_forgotten_then_its_key() {
    forgets(Some("alice/7"), Duration::from_millis(8 * 86_400_000 - 2));
}

#[test]
fn without_a_key_little_is_remembered() {
    forgets(None, Duration::from_secs(600));
}

fn forgets(key: Option<&str>, expected: Duration) {
    let mut machine = machine(Limits::default());
    let submission = Submission {
        key: key.map(Into::into),
        ..work(Guarantee::Local)
    };
    let saved = ticket(&submit(&mut machine, TASK, submission));
    machine.handle(Instant(1), Event::Saved { ticket: saved });
    let (_, attempt) = started(&offer(&mut machine, 2, &["a"]));
    let saved = ticket(&answer(&mut machine, 3, attempt, Ok(())));
    machine.handle(Instant(4), Event::Saved { ticket: saved });
    let saved = ticket(&machine.handle(Instant(5), Event::Fetched { task: TASK }));
    machine.handle(Instant(6), Event::Saved { ticket: saved });
    assert_eq!(machine.status(TASK), Some(Status::Forgotten));
    assert_eq!((machine.held().results, machine.held().keys), (0, 1));
    let then = Instant(5).after(expected);
    assert_eq!(machine.next_timeout(), Some(then));
    let actions = machine.handle(then, Event::Tick);
    assert!(matches!(
        &actions[..],
        [Action::Persist {
            write: Write::Delete(TASK),
            ..
        }]
    ));
    machine.handle(
        then,
        Event::Saved {
            ticket: ticket(&actions),
        },
    );
    assert_eq!(machine.status(TASK), None);
}

/// A task that is withdrawn while its effect is on the way to its home.
fn withdrawn_late(submission: Submission) -> (Machine, AttemptId) {
    let mut machine = machine(Limits::default());
    let saved = ticket(&submit(&mut machine, TASK, submission));
    machine.handle(Instant(1), Event::Saved { ticket: saved });
    let (home, attempt) = started(&offer(&mut machine, 1, &["a"]));
    let answer = to_commit(home);
    machine.handle(Instant(2), Event::Answered { attempt, answer });
    machine.handle(Instant(3), Event::Cancel { asked: TASK });
    (machine, attempt)
}

fn outcome(machine: &Machine) -> Option<&Outcome> {
    machine.record(TASK)?.outcome()
}

#[test]
fn a_step_of_a_run_that_is_withdrawn_while_its_effect_is_on_the_way_ends_by_what_its_home_says() {
    let step = || Submission {
        stays: true,
        effect: Some("effect".into()),
        ..work(Guarantee::Local)
    };
    let conflict = || Verdict::Conflict {
        bucket: "road".into(),
        key: "last".into(),
    };
    for (verdict, ends) in [
        (Verdict::Applied, Outcome::Done(TaskResponse::default())),
        (conflict(), Outcome::Cancelled),
    ] {
        let (mut machine, attempt) = withdrawn_late(step());
        assert_eq!(outcome(&machine), None);
        let verdict = Ok(verdict);
        machine.handle(Instant(4), Event::Committed { attempt, verdict });
        assert_eq!(outcome(&machine), Some(&ends));
    }
    // Whoever withdraws it once more waits for nobody, as with any other task.
    let (mut machine, _) = withdrawn_late(step());
    machine.handle(Instant(2_000), Event::Cancel { asked: TASK });
    assert_eq!(outcome(&machine), Some(&Outcome::Cancelled));
    let (machine, _) = withdrawn_late(work(Guarantee::Local));
    assert_eq!(outcome(&machine), Some(&Outcome::Cancelled));
}
