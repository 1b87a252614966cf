//! How many bytes results may have together.

use super::acceptance::{handover, receive};
use super::*;

const THIRD: TaskId = TaskId::from_parts(0, 3);
const LAST: TaskId = TaskId::from_parts(0, 4);

fn limits(results_bytes: u64) -> Limits {
    Limits {
        results_bytes: ByteSize(results_bytes),
        ..Limits::default()
    }
}

/// A task of a workflow.
fn part() -> Submission {
    Submission {
        effect: Some("run/step".into()),
        stays: true,
        ..work(Guarantee::Local)
    }
}

fn accept(machine: &mut Machine, task: TaskId, submission: Submission) {
    let ticket = ticket(&submit(machine, task, submission));
    machine.handle(Instant(1), Event::Saved { ticket });
}

/// An attempt answers so many bytes, and would write to a bucket where `writes`.
fn answers(machine: &mut Machine, now: u64, task: TaskId, bytes: usize, writes: bool) -> Vec<Action> {
    let providers = vec![node("a")];
    let offered = machine.handle(Instant(now), Event::Offered { task, providers });
    let (home, attempt) = started(&offered);
    let batch = writes.then(|| Batch {
        home,
        reads: Vec::new(),
        operations: Vec::new(),
    });
    let response = TaskResponse {
        body: vec![0; bytes].into(),
        ..TaskResponse::default()
    };
    let answer = Ok(Box::new(Answer { response, batch }));
    machine.handle(Instant(now), Event::Answered { attempt, answer })
}

/// The same, and its end is on the disk: what is written down of it, and what else that leads to.
fn ends(machine: &mut Machine, now: u64, task: TaskId, bytes: usize) -> (TaskRecord, Vec<Action>) {
    let mut actions = answers(machine, now, task, bytes, false);
    let Action::Persist {
        ticket,
        write: Write::Put(record),
    } = actions.remove(0)
    else {
        panic!("{actions:?}")
    };
    actions.extend(machine.handle(Instant(now), Event::Saved { ticket }));
    (*record, actions)
}

fn displaced(actions: &[Action]) -> Vec<TaskId> {
    let displaced = actions.iter().filter_map(|action| match action {
        Action::Displaced { task } => Some(*task),
        _ => None,
    });
    displaced.collect()
}

fn refused(actions: &[Action]) -> SubmitError {
    match actions {
        [Action::Refuse { error, .. }] => error.clone(),
        _ => panic!("{actions:?}"),
    }
}

#[test]
fn the_result_that_has_waited_longest_goes_first_and_no_task_that_goes_on() {
    let mut machine = machine(limits(100));
    for task in [TASK, OTHER, THIRD, LAST] {
        accept(&mut machine, task, work(Guarantee::Local));
    }
    assert_eq!(displaced(&ends(&mut machine, 10, OTHER, 40).1), []);
    assert_eq!(displaced(&ends(&mut machine, 20, TASK, 40).1), []);
    assert_eq!(machine.held().result_bytes, 80);
    assert_eq!(displaced(&ends(&mut machine, 30, THIRD, 40).1), [OTHER]);
    assert_eq!(machine.held().result_bytes, 80);
    assert_eq!(machine.status(OTHER), Some(Status::Forgotten));
    for task in [TASK, THIRD] {
        assert!(matches!(
            machine.status(task),
            Some(Status::Ended(Outcome::Done(_)))
        ));
    }
    assert_eq!(machine.status(LAST), Some(Status::Waiting));
}

/// A node that hands it over may ask this heir alone: it would wait until somebody fetches results that are not its own.
#[test]
fn what_another_node_has_accepted_does_not_wait_for_results_to_be_fetched() {
    let mut machine = machine(limits(100));
    accept(&mut machine, TASK, work(Guarantee::Local));
    ends(&mut machine, 10, TASK, 76);
    let record = handover(OTHER, &work(Guarantee::Local));
    let ticket = ticket(&receive(&mut machine, record));
    machine.handle(Instant(20), Event::Saved { ticket });
    assert_eq!(machine.status(OTHER), Some(Status::Waiting));
    assert_eq!(displaced(&ends(&mut machine, 30, OTHER, 40).1), [TASK]);
}

#[test]
fn nothing_more_is_accepted_when_three_quarters_are_taken() {
    let mut machine = machine(limits(100));
    accept(&mut machine, TASK, work(Guarantee::Local));
    ends(&mut machine, 10, TASK, 76);
    for guarantee in [Guarantee::Local, Guarantee::Kept] {
        let error = refused(&submit(&mut machine, OTHER, work(guarantee)));
        assert!(
            matches!(&error, SubmitError::Limit(reached) if reached.name == "results-bytes" && reached.most == 100),
            "{error}"
        );
        let told = TaskError::from(error);
        assert_eq!(
            (told.kind, told.field.as_deref()),
            (ErrorKind::Limit, Some("results-bytes"))
        );
    }
    // What belongs to a task that was accepted before has room, and so has what is not written down.
    accept(&mut machine, THIRD, part());
    assert!(matches!(
        submit(&mut machine, LAST, work(Guarantee::Direct))[..],
        [Action::Place { .. }]
    ));
    machine.handle(Instant(20), Event::Fetched { task: TASK });
    accept(&mut machine, OTHER, work(Guarantee::Local));
}

#[test]
fn what_is_part_of_another_task_stays_until_that_one_has_it() {
    let mut machine = machine(limits(100));
    accept(&mut machine, TASK, part());
    accept(&mut machine, OTHER, work(Guarantee::Local));
    accept(&mut machine, THIRD, work(Guarantee::Local));
    ends(&mut machine, 10, TASK, 50);
    ends(&mut machine, 20, OTHER, 30);
    assert_eq!(displaced(&ends(&mut machine, 30, THIRD, 30).1), [OTHER]);
    assert!(matches!(machine.status(TASK), Some(Status::Ended(_))));
}

#[test]
fn a_result_that_has_no_room_at_all_fails_before_it_has_an_effect() {
    let mut machine = machine(limits(100));
    accept(&mut machine, TASK, work(Guarantee::Local));
    let actions = answers(&mut machine, 10, TASK, 101, true);
    let [
        Action::Persist {
            write: Write::Put(record),
            ..
        },
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    let Some(Outcome::Failed(error)) = record.outcome() else {
        panic!("{record:?}")
    };
    assert_eq!(
        (error.kind, error.field.as_deref()),
        (ErrorKind::Limit, Some("results-bytes"))
    );
}

#[test]
fn results_from_before_a_restart_count() {
    let mut before = machine(Limits::default());
    let records = [(TASK, 10), (OTHER, 20)].map(|(task, now)| {
        accept(&mut before, task, work(Guarantee::Local));
        ends(&mut before, now, task, 60).0
    });
    let mut after = Machine::recover(node("here"), limits(100), Instant(0), TRUSTED, 2, records);
    assert_eq!(after.held().result_bytes, 120);
    assert_eq!(displaced(&after.handle(Instant(0), Event::Tick)), [TASK]);
    assert_eq!(after.held().result_bytes, 60);
}
