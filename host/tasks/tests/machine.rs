//! One behaviour each, on a single machine.

use karman_tasks::{
    Action, Answer, AttemptId, Entry, Event, Guarantee, Instant, KeptError, Limits, Machine, Outcome,
    Reading, SaveError, Status, Submission, SubmitError, TaskRecord, Ticket, UnixMs, Write,
};
use karman_types::{ErrorKind, NodeId, TaskError, TaskId, TaskRequest, TaskResponse};
use std::time::Duration;

const TASK: TaskId = TaskId::from_parts(0, 1);
const OTHER: TaskId = TaskId::from_parts(0, 2);
const TRUSTED: Reading = Reading {
    wall: UnixMs(1_000_000),
    trusted: true,
    floor: UnixMs(0),
};

fn node(name: &str) -> NodeId {
    NodeId::of_key(name.as_bytes())
}

fn machine(limits: Limits) -> Machine {
    let mut machine = Machine::new(node("here"), limits, Instant(0), TRUSTED, 1);
    let (total, majority) = (3, true);
    machine.handle(Instant(0), Event::Keepers { total, majority });
    machine
}

fn work(guarantee: Guarantee) -> Submission {
    Submission {
        guarantee,
        ..Submission::new("classify", TaskRequest::default())
    }
}

fn submit(machine: &mut Machine, asked: TaskId, submission: Submission) -> Vec<Action> {
    let submission = Box::new(submission);
    machine.handle(Instant(0), Event::Submit { asked, submission })
}

fn offer(machine: &mut Machine, now: u64, nodes: &[&str]) -> Vec<Action> {
    let providers = nodes.iter().map(|name| node(name)).collect();
    machine.handle(
        Instant(now),
        Event::Offered {
            task: TASK,
            providers,
        },
    )
}

fn answer(machine: &mut Machine, now: u64, attempt: AttemptId, answer: Result<(), TaskError>) -> Vec<Action> {
    let answer = answer.map(|()| Box::new(Answer::default()));
    machine.handle(Instant(now), Event::Answered { attempt, answer })
}

fn started(actions: &[Action]) -> (NodeId, AttemptId) {
    match actions {
        [Action::Start { provider, call }] => (*provider, call.attempt),
        _ => panic!("{actions:?}"),
    }
}

fn ticket(actions: &[Action]) -> Ticket {
    match actions {
        [Action::Persist { ticket, .. } | Action::Propose { ticket, .. }] => *ticket,
        _ => panic!("{actions:?}"),
    }
}

#[test]
fn what_another_node_could_cure_goes_to_another_node() {
    let mut machine = machine(Limits::default());
    submit(&mut machine, TASK, work(Guarantee::Direct));
    let (first, attempt) = started(&offer(&mut machine, 1, &["a", "b"]));
    assert_eq!(first, node("a"));
    assert_eq!(
        answer(&mut machine, 2, attempt, Err(TaskError::unavailable("no GPU"))),
        []
    );
    let then = machine.next_timeout().unwrap();
    assert!(then >= Instant(52) && then <= Instant(102), "{then:?}");
    let actions = machine.handle(then, Event::Tick);
    assert!(matches!(&actions[..], [Action::Place { avoid, .. }] if *avoid == [node("a")]));
    let (second, attempt) = started(&offer(&mut machine, 200, &["a", "b"]));
    assert_eq!(second, node("b"));
    let actions = answer(
        &mut machine,
        201,
        attempt,
        Err(TaskError::failed("no face in the picture")),
    );
    assert!(
        matches!(&actions[..], [Action::Answer { result: Err(error), .. }] if error.kind == ErrorKind::Failed)
    );
    assert_eq!(machine.held().open, 0);
}

#[test]
fn attempts_are_limited() {
    let mut machine = machine(Limits {
        attempts: 1,
        ..Limits::default()
    });
    submit(&mut machine, TASK, work(Guarantee::Direct));
    let (_, attempt) = started(&offer(&mut machine, 1, &["a", "b"]));
    let actions = machine.handle(Instant(2), Event::AttemptLost { attempt });
    assert!(
        matches!(&actions[..], [Action::Answer { result: Err(error), .. }] if error.kind == ErrorKind::Unavailable)
    );
}

#[test]
fn the_first_answer_wins_and_the_other_attempt_is_stopped() {
    let mut machine = machine(Limits::default());
    let hedge_after = Some(Duration::from_millis(50));
    let submission = Submission {
        hedge_after,
        ..work(Guarantee::Direct)
    };
    submit(&mut machine, TASK, submission);
    let (_, first) = started(&offer(&mut machine, 10, &["a", "b"]));
    assert_eq!(machine.next_timeout(), Some(Instant(60)));
    machine.handle(Instant(60), Event::Tick);
    let (provider, second) = started(&offer(&mut machine, 61, &["a", "b"]));
    assert_eq!(provider, node("b"));
    let actions = answer(&mut machine, 70, second, Ok(()));
    let provider = node("a");
    let stop = Action::Stop {
        provider,
        attempt: first,
    };
    let result = Ok(TaskResponse::default());
    assert_eq!(actions, [stop, Action::Answer { asked: TASK, result }]);
    assert_eq!(answer(&mut machine, 71, first, Ok(())), []);
    assert_eq!(machine.stats().late, 1);
}

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
fn a_kept_attempt_starts_once_the_keepers_know_of_it() {
    let mut machine = machine(Limits::default());
    let saved = ticket(&submit(&mut machine, TASK, work(Guarantee::Kept)));
    machine.handle(Instant(1), Event::Saved { ticket: saved });
    let actions = offer(&mut machine, 2, &["a"]);
    assert!(matches!(
        &actions[..],
        [Action::Propose {
            entry: Entry::Dispatch { number: 1, .. },
            ..
        }]
    ));
    let actions = machine.handle(
        Instant(3),
        Event::Saved {
            ticket: ticket(&actions),
        },
    );
    assert_eq!(started(&actions).0, node("a"));
}

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
fn a_draining_node_hands_over_what_waits_and_finishes_what_runs() {
    let mut machine = machine(Limits::default());
    let saved = ticket(&submit(&mut machine, TASK, work(Guarantee::Local)));
    machine.handle(Instant(1), Event::Saved { ticket: saved });
    let (_, attempt) = started(&offer(&mut machine, 2, &["a"]));
    let saved = ticket(&submit(&mut machine, OTHER, work(Guarantee::Local)));
    machine.handle(Instant(2), Event::Saved { ticket: saved });

    let heirs = vec![node("heir")];
    let actions = machine.handle(Instant(3), Event::Drain { heirs });
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
    let heirs = vec![node("heir")];
    assert_eq!(machine.handle(Instant(3), Event::Drain { heirs }), []);
    let gone = TaskError::unavailable("the node is draining");
    assert_eq!(answer(&mut machine, 4, attempt, Err(gone)), [Action::Drained]);
    assert_eq!(machine.status(TASK), Some(Status::Waiting));
    assert_eq!(machine.next_timeout().filter(|at| at.0 < 1_000), None);
}

#[test]
fn a_result_is_forgotten_then_its_key() {
    let mut machine = machine(Limits::default());
    let saved = ticket(&submit(&mut machine, TASK, work(Guarantee::Local)));
    machine.handle(Instant(1), Event::Saved { ticket: saved });
    let (_, attempt) = started(&offer(&mut machine, 2, &["a"]));
    let saved = ticket(&answer(&mut machine, 3, attempt, Ok(())));
    machine.handle(Instant(4), Event::Saved { ticket: saved });
    let saved = ticket(&machine.handle(Instant(5), Event::Fetched { task: TASK }));
    machine.handle(Instant(6), Event::Saved { ticket: saved });
    assert_eq!(machine.status(TASK), Some(Status::Forgotten));
    assert_eq!((machine.held().results, machine.held().keys), (0, 1));
    let then = machine.next_timeout().unwrap();
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

#[test]
fn a_task_waits_for_its_home_without_losing_an_attempt() {
    let limits = Limits {
        attempts: 1,
        longest_pause: Duration::from_millis(200),
        ..Limits::default()
    };
    let mut machine = machine(limits);
    submit(&mut machine, TASK, work(Guarantee::Direct));
    for now in (1..5).map(|n| n * 1_000) {
        let (_, attempt) = started(&offer(&mut machine, now, &["a"]));
        let away = machine.handle(Instant(now + 1), Event::Excused { attempt });
        assert_eq!(away, [], "it pauses");
        let due = machine.handle(Instant(now + 300), Event::Tick);
        assert!(matches!(&due[..], [Action::Place { .. }]), "{due:?}");
    }
    let (_, attempt) = started(&offer(&mut machine, 9_000, &["a"]));
    let failed = answer(&mut machine, 9_001, attempt, Err(TaskError::internal("a defect")));
    assert!(matches!(&failed[..], [Action::Answer { .. }]), "{failed:?}");
}

#[test]
fn tasks_that_wait_look_for_new_providers_some_at_a_time_the_oldest_first() {
    let mut machine = machine(Limits::default());
    let tasks: Vec<TaskId> = (1..=100).map(|n| TaskId::from_parts(0, n)).collect();
    for task in &tasks {
        submit(&mut machine, *task, work(Guarantee::Direct));
        let nobody = Event::Offered {
            task: *task,
            providers: Vec::new(),
        };
        machine.handle(Instant(1), nobody);
    }
    let placed = |actions: Vec<Action>| -> Vec<TaskId> {
        let place = |action| match action {
            Action::Place { task, .. } => task,
            other => panic!("{other:?}"),
        };
        actions.into_iter().map(place).collect()
    };
    assert_eq!(
        placed(machine.handle(Instant(2), Event::ProvidersChanged)),
        tasks[..64]
    );
    assert_eq!(machine.next_timeout(), Some(Instant(22)));
    assert_eq!(placed(machine.handle(Instant(22), Event::Tick)), tasks[64..]);
}
