//! Runs of which more is known than whoever keeps them takes.

use super::ID;
use karman_sched::flow::{Action, Event, Machine, Outcome, Record, RunState};
use karman_types::{ErrorKind, TaskError, Workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A run that is kept in a record of at most so many bytes.
struct Kept {
    machine: Machine,
    most: usize,
    last: Option<Record>,
    now: Duration,
}

impl Kept {
    fn new(text: &str, most: usize) -> Self {
        let flow = Arc::new(Workflow::from_toml(text).unwrap());
        Self {
            machine: Machine::new(ID, flow, json!({ "of": "all" }), Duration::ZERO),
            most,
            last: None,
            now: Duration::ZERO,
        }
    }

    /// What it does once all is saved that can be.
    fn hears(&mut self, event: Event) -> Vec<Action> {
        self.now += Duration::from_millis(1);
        let mut actions = self.machine.handle(self.now, event);
        let is_save = |action: &Action| matches!(action, Action::Save { .. });
        while let Some(at) = actions.iter().position(is_save) {
            let Action::Save { ticket, record } = actions.remove(at) else {
                unreachable!()
            };
            let saved = match serde_json::to_vec(&record).unwrap().len() <= self.most {
                true => {
                    self.last = Some(*record);
                    Event::Saved { ticket }
                }
                false => Event::TooLong {
                    ticket,
                    error: TaskError::limit("too long"),
                },
            };
            actions.extend(self.machine.handle(self.now, saved));
        }
        actions
    }

    fn answers(&mut self, action: &Action, output: Value) -> Vec<Action> {
        let attempt = call(action).attempt;
        let result = Ok(output);
        self.hears(Event::Answered { attempt, result })
    }
}

fn call(action: &Action) -> &karman_sched::flow::Call {
    let Action::Start { call } = action else {
        panic!("{action:?}")
    };
    call
}

/// The only thing that is to be done: something is called.
fn only(actions: &[Action]) -> &Action {
    let [action @ Action::Start { .. }] = actions else {
        panic!("{actions:?}")
    };
    action
}

/// The task that the run failed in.
fn failed_in(actions: &[Action]) -> Option<String> {
    let [
        Action::End {
            outcome: Outcome::Failed { why, not_undone },
        },
    ] = actions
    else {
        panic!("{actions:?}")
    };
    assert_eq!((why.error.kind, not_undone.len()), (ErrorKind::Limit, 0));
    why.task.clone()
}

const CHAIN: &str = "name = 'f'\n[task.a]\nundo = 'un-a'\n[task.b]\nafter = ['a']\nundo = 'un-b'\n\
    [task.c]\nafter = ['b']\nundo = 'un-c'";

fn long() -> Value {
    "x".repeat(10_000).into()
}

#[test]
fn a_run_that_is_too_long_to_be_kept_fails_and_what_it_did_is_undone() {
    let mut run = Kept::new(CHAIN, 6_000);
    let a = run.hears(Event::Tick);
    let b = run.answers(only(&a), json!("out"));
    // What comes after it never begins, and its output is as good as unknown.
    let un_b = run.answers(only(&b), long());
    let undo = call(only(&un_b));
    assert_eq!(
        (undo.run.as_ref(), &undo.input),
        ("un-b", &json!({ "input": "out", "output": null }))
    );
    let un_a = run.answers(only(&un_b), Value::Null);
    let undo = call(only(&un_a));
    assert_eq!(
        (undo.run.as_ref(), &undo.input),
        ("un-a", &json!({ "input": { "of": "all" }, "output": "out" }))
    );
    let ended = run.answers(only(&un_a), Value::Null);
    assert_eq!(failed_in(&ended).as_deref(), Some("b"));
    // All of that is kept.
    assert!(!run.machine.is_unkept());
    assert!(run.last.is_some_and(|record| record.outcome().is_some()));
}

#[test]
fn another_coordinator_undoes_it_in_the_same_way() {
    let mut run = Kept::new(CHAIN, 6_000);
    let a = run.hears(Event::Tick);
    let b = run.answers(only(&a), json!("out"));
    let un_b = run.answers(only(&b), long());
    let flow = Arc::new(Workflow::from_toml(CHAIN).unwrap());
    let last = run.last.clone().unwrap();
    run.machine = Machine::resume(flow, last, Duration::ZERO, run.now).unwrap();
    assert_eq!(run.hears(Event::Tick), un_b);
}

#[test]
fn what_runs_beside_it_is_stopped_before_anything_is_undone() {
    let text = "name = 'f'\nstart = ['a', 'b']\n[task.a]\nundo = 'un-a'\n[task.b]\nundo = 'un-b'";
    let mut run = Kept::new(text, 6_000);
    let both = run.hears(Event::Tick);
    let actions = run.answers(&both[0], long());
    let [Action::Stop { attempt, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(attempt, call(&both[1]).attempt);
    // It may have had its effect.
    let un_b = run.hears(Event::Stopped { attempt });
    assert_eq!(call(only(&un_b)).run.as_ref(), "un-b");
    let un_a = run.answers(only(&un_b), Value::Null);
    assert_eq!(call(only(&un_a)).run.as_ref(), "un-a");
    let ended = run.answers(only(&un_a), Value::Null);
    assert_eq!(failed_in(&ended).as_deref(), Some("a"));
}

#[test]
fn an_output_that_cannot_be_kept_is_no_end() {
    let mut run = Kept::new("name = 'f'\n[task.a]\nundo = 'un-a'", 6_000);
    let a = run.hears(Event::Tick);
    let un_a = run.answers(only(&a), long());
    assert_eq!(call(only(&un_a)).run.as_ref(), "un-a");
    let ended = run.answers(only(&un_a), Value::Null);
    assert_eq!(failed_in(&ended).as_deref(), Some("a"));
}

#[test]
fn what_no_undoing_takes_makes_room_for_it() {
    let text = "name = 'f'\n[task.a]\nundo = 'un-a'\n[task.b]\nafter = ['a']\n[task.c]\nafter = ['b']";
    let mut run = Kept::new(text, 6_000);
    let a = run.hears(Event::Tick);
    let b = run.answers(only(&a), json!("out"));
    let c = run.answers(only(&b), "x".repeat(3_000).into());
    let un_a = run.answers(only(&c), long());
    assert_eq!(call(only(&un_a)).run.as_ref(), "un-a");
    let outputs = |run: &Kept| {
        let steps = run.machine.record().steps.iter();
        let outputs = steps.map(|step| match &step.runs[0].state {
            RunState::Done(output) => output.to_string().len(),
            other => panic!("{other:?}"),
        });
        outputs.collect::<Vec<usize>>()
    };
    // Nobody takes the output of `b`: its only successor is not undone.
    assert_eq!(outputs(&run), ["\"out\"".len(), "null".len(), "null".len()]);
}

#[test]
fn a_run_of_which_nothing_can_be_kept_any_more_is_undone_all_the_same() {
    let mut run = Kept::new(CHAIN, 6_000);
    let a = run.hears(Event::Tick);
    let b = run.answers(only(&a), json!("out"));
    run.most = 0;
    let un_b = run.answers(only(&b), json!("more"));
    assert_eq!(call(only(&un_b)).run.as_ref(), "un-b");
    assert!(run.machine.is_unkept());
    let un_a = run.answers(only(&un_b), Value::Null);
    assert_eq!(call(only(&un_a)).run.as_ref(), "un-a");
    let ended = run.answers(only(&un_a), Value::Null);
    assert_eq!(failed_in(&ended).as_deref(), Some("b"));
}

#[test]
fn a_run_of_which_not_even_the_beginning_can_be_kept_does_nothing() {
    let mut run = Kept::new(CHAIN, 0);
    let ended = run.hears(Event::Tick);
    assert_eq!(failed_in(&ended), None);
}

#[test]
fn a_run_that_has_outlived_its_time_is_undone() {
    let mut run = Kept::new(CHAIN, usize::MAX);
    let a = run.hears(Event::Tick);
    let b = run.answers(only(&a), json!("out"));
    let error = TaskError::deadline("it has lived for 7 days");
    let actions = run.hears(Event::Outlived { error: error.clone() });
    let [Action::Stop { attempt, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(attempt, call(only(&b)).attempt);
    let un_b = run.hears(Event::Stopped { attempt });
    let un_a = run.answers(only(&un_b), Value::Null);
    let ended = run.answers(only(&un_a), Value::Null);
    let [
        Action::End {
            outcome: Outcome::Failed { why, .. },
        },
    ] = &ended[..]
    else {
        panic!("{ended:?}")
    };
    assert_eq!(why.error, error);
}
