//! One behaviour each, on a single machine.

mod acceptance;
mod attempts;
mod drain;
mod ends;
mod results;

use karman_tasks::{
    Action, Answer, AttemptId, Batch, CommitError, Entry, Event, Guarantee, Handover, Instant, KeptError,
    Limits, Machine, Outcome, Reading, SaveError, Saved, Status, Submission, SubmitError, TaskRecord, Ticket,
    UnixMs, Verdict, Write,
};
use karman_types::{ByteSize, ErrorKind, NodeId, TaskError, TaskId, TaskRequest, TaskResponse};
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
    machine.handle(Instant(0), Event::submit(asked, submission))
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

/// The answer of an attempt that would write to buckets.
fn to_commit(home: NodeId) -> Result<Box<Answer>, TaskError> {
    Ok(Box::new(Answer {
        batch: Some(Batch {
            home,
            reads: Vec::new(),
            operations: Vec::new(),
        }),
        ..Answer::default()
    }))
}

fn drain(heirs: &[&str], keepers: &[&str]) -> Event {
    let nodes = |names: &[&str]| names.iter().map(|name| node(name)).collect();
    Event::Drain {
        heirs: nodes(heirs),
        keepers: nodes(keepers),
    }
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
