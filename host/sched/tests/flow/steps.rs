//! What a run does, step by step.

use super::ID;
use karman_sched::flow::{Action, Event, Machine, Outcome, Phase, RunState, What};
use karman_types::{ErrorKind, NodeId, TaskError, Workflow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn machine(text: &str) -> Machine {
    let flow = Arc::new(Workflow::from_toml(text).unwrap());
    Machine::new(ID, flow, json!({}), Duration::ZERO)
}

/// What it does after every record is saved at once.
fn saved(machine: &mut Machine, now: u64, event: Event) -> Vec<Action> {
    let now = Duration::from_millis(now);
    let mut actions = machine.handle(now, event);
    while let Some(at) = actions
        .iter()
        .position(|action| matches!(action, Action::Save { .. }))
    {
        let Action::Save { ticket, .. } = actions.remove(at) else {
            unreachable!()
        };
        actions.extend(machine.handle(now, Event::Saved { ticket }));
    }
    actions
}

fn answer(machine: &mut Machine, now: u64, action: &Action, result: Result<Value, TaskError>) -> Vec<Action> {
    let Action::Start { call } = action else {
        panic!("{action:?}")
    };
    let attempt = call.attempt;
    saved(machine, now, Event::Answered { attempt, result })
}

#[test]
fn an_attempt_that_takes_too_long_is_stopped_and_tried_again_under_its_key() {
    let mut machine = machine("name = 'f'\n[task.a]\ntimeout = '1 s'\nretries = 1\npause = '200 ms'");
    let first = saved(&mut machine, 0, Event::Tick);
    let [Action::Start { call }] = &first[..] else {
        panic!("{first:?}")
    };
    assert_eq!(machine.next_timeout(), Some(Duration::from_secs(1)));
    let actions = saved(&mut machine, 1_000, Event::Tick);
    let [Action::Stop { attempt, key }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((*attempt, key), (call.attempt, &call.key));
    assert_eq!(
        saved(&mut machine, 1_001, Event::Stopped { attempt: *attempt }),
        []
    );
    let second = saved(&mut machine, 1_201, Event::Tick);
    let [Action::Start { call: again }] = &second[..] else {
        panic!("{second:?}")
    };
    assert_eq!((&again.key, again.attempt.number), (&call.key, 2));
    // The answer to the first attempt comes too late to count.
    assert_eq!(answer(&mut machine, 1_202, &first[0], Ok(json!(1))), []);
    let actions = answer(&mut machine, 1_203, &second[0], Ok(json!(2)));
    assert_eq!(
        actions,
        [Action::End {
            outcome: Outcome::Done(json!(2))
        }]
    );
}

#[test]
fn when_the_time_is_over_what_runs_is_stopped_and_what_was_done_is_undone() {
    let text = "name = 'f'\ndeadline = '5 s'\n[task.a]\nundo = 'un-a'\n[task.b]\nafter = ['a']";
    let mut machine = machine(text);
    let actions = saved(&mut machine, 0, Event::Tick);
    let actions = answer(&mut machine, 1_000, &actions[0], Ok(json!("out")));
    let [Action::Start { call }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(call.within, Some(Duration::from_secs(4)));
    let actions = saved(&mut machine, 5_000, Event::Tick);
    let [Action::Stop { attempt, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    let actions = saved(&mut machine, 5_001, Event::Stopped { attempt });
    let [Action::Start { call }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(
        (call.run.as_ref(), &call.input),
        ("un-a", &json!({ "input": {}, "output": "out" }))
    );
    let actions = answer(&mut machine, 5_002, &actions[0], Ok(Value::Null));
    let [
        Action::End {
            outcome: Outcome::Failed { why, not_undone },
        },
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!((why.error.kind, not_undone.len()), (ErrorKind::Deadline, 0));
    assert!(why.error.message.contains("`deadline` (5 s)"), "{}", why.error);
}

#[test]
fn what_nobody_undoes_in_time_is_left_and_what_was_done_before_it_is_undone() {
    for (timeout, ends) in [("timeout = '5 s'\n", 5_000), ("", 600_000)] {
        let text = format!(
            "name = 'f'\n[task.a]\nundo = 'un-a'\n[task.b]\nafter = ['a']\nundo = 'un-b'\n{timeout}[task.c]\nafter = ['b']"
        );
        let mut machine = machine(&text);
        let a = saved(&mut machine, 0, Event::Tick);
        let b = answer(&mut machine, 0, &a[0], Ok(json!(1)));
        let c = answer(&mut machine, 0, &b[0], Ok(json!(2)));
        let un_b = answer(&mut machine, 0, &c[0], Err(TaskError::failed("broken")));
        let [Action::Start { call }] = &un_b[..] else {
            panic!("{un_b:?}")
        };
        let flow = Arc::new(Workflow::from_toml(&text).unwrap());
        let undoes = |machine: &Machine| {
            let (of, undoing) = machine.record().being_undone()?;
            Some((flow.tasks()[of.task].name.clone(), undoing.stopping))
        };
        assert_eq!(undoes(&machine), Some(("b".into(), false)));
        let stop = saved(&mut machine, ends, Event::Tick);
        let [Action::Stop { attempt, key }] = &stop[..] else {
            panic!("{stop:?}")
        };
        assert_eq!((*attempt, key), (call.attempt, &call.key));
        // Until that is answered it may have its effect yet. Who takes the run up then stops it too.
        assert_eq!(undoes(&machine), Some(("b".into(), true)));
        let record = machine.record().clone();
        let mut again = Machine::resume(flow.clone(), record, Duration::ZERO, Duration::ZERO).unwrap();
        assert_eq!(saved(&mut again, 0, Event::Tick), stop);
        for withdrawn in [
            Event::Stopped { attempt: *attempt },
            Event::Answered {
                attempt: *attempt,
                result: Err(TaskError::cancelled("withdrawn")),
            },
        ] {
            let mut machine = machine.clone();
            let un_a = saved(&mut machine, ends + 1, withdrawn);
            let ended = answer(&mut machine, ends + 2, &un_a[0], Ok(Value::Null));
            let [
                Action::End {
                    outcome: Outcome::Failed { why, not_undone },
                },
            ] = &ended[..]
            else {
                panic!("{ended:?}")
            };
            assert_eq!(why.error.message, "broken");
            let [left] = &not_undone[..] else {
                panic!("{not_undone:?}")
            };
            assert_eq!((left.task.as_str(), left.error.kind), ("b", ErrorKind::Deadline));
            assert!(left.error.message.contains("`un-b`"), "{}", left.error);
        }
        // One that has ended before it could be stopped has undone it.
        let undone = Event::Answered {
            attempt: *attempt,
            result: Ok(Value::Null),
        };
        let un_a = saved(&mut machine, ends + 1, undone);
        let ended = answer(&mut machine, ends + 2, &un_a[0], Ok(Value::Null));
        let says = Outcome::Failed {
            why: karman_sched::flow::Failure {
                task: Some("c".into()),
                error: TaskError::failed("broken"),
            },
            not_undone: Vec::new(),
        };
        assert_eq!(ended, [Action::End { outcome: says }]);
    }
}

#[test]
fn an_attempt_that_ends_as_withdrawn_because_it_was_stopped_fails_with_why_it_was() {
    for says in [TaskError::cancelled("withdrawn"), TaskError::deadline("expired")] {
        let mut machine = machine("name = 'f'\n[task.a]\ntimeout = '1 s'\nretries = 1\npause = '200 ms'");
        let first = saved(&mut machine, 0, Event::Tick);
        saved(&mut machine, 1_000, Event::Tick);
        // Like any attempt that has taken too long, it is tried again.
        assert_eq!(answer(&mut machine, 1_001, &first[0], Err(says.clone())), []);
        let second = saved(&mut machine, 1_201, Event::Tick);
        saved(&mut machine, 2_201, Event::Tick);
        let ended = answer(&mut machine, 2_202, &second[0], Err(says));
        let [
            Action::End {
                outcome: Outcome::Failed { why, .. },
            },
        ] = &ended[..]
        else {
            panic!("{ended:?}")
        };
        assert_eq!(
            (why.error.kind, why.task.as_deref()),
            (ErrorKind::Deadline, Some("a"))
        );
        assert!(why.error.message.contains("`timeout` (1 s)"), "{}", why.error);
    }
}

#[test]
fn one_that_fails_by_itself_while_it_is_stopped_says_how() {
    let mut machine = machine("name = 'f'\n[task.a]");
    let first = saved(&mut machine, 0, Event::Tick);
    saved(&mut machine, 1, Event::Cancel);
    answer(&mut machine, 2, &first[0], Err(TaskError::failed("broken")));
    let run = &machine.record().steps[0].runs[0];
    assert_eq!(run.state, RunState::Failed(TaskError::failed("broken")));
}

#[test]
fn what_was_undone_is_known_while_it_goes_on_and_afterwards() {
    let text = "name = 'f'\n[task.a]\nundo = 'un-a'\n[task.b]\nafter = ['a']\nundo = 'un-b'\n\
        [task.c]\nafter = ['b']\n[task.d]\nafter = ['c']\nundo = 'un-d'";
    let flow = Workflow::from_toml(text).unwrap();
    let mut machine = machine(text);
    let undone = |machine: &Machine| {
        let undone = machine.record().undone(&flow).into_iter();
        undone
            .map(|of| flow.tasks()[of.task].name.clone())
            .collect::<Vec<String>>()
    };
    let a = saved(&mut machine, 0, Event::Tick);
    let b = answer(&mut machine, 1, &a[0], Ok(json!(1)));
    let c = answer(&mut machine, 2, &b[0], Ok(json!(2)));
    // The last one may have had its effect, and what undoes the first fails.
    let d = answer(&mut machine, 3, &c[0], Ok(json!(3)));
    let un_d = answer(&mut machine, 4, &d[0], Err(TaskError::unavailable("gone")));
    assert_eq!(undone(&machine), [""; 0]);
    let un_b = answer(&mut machine, 5, &un_d[0], Ok(Value::Null));
    assert_eq!(undone(&machine), ["d"]);
    let un_a = answer(&mut machine, 6, &un_b[0], Ok(Value::Null));
    assert_eq!(undone(&machine), ["b", "d"]);
    answer(&mut machine, 7, &un_a[0], Err(TaskError::failed("broken")));
    assert!(matches!(machine.record().phase, Phase::Ended(_)));
    assert_eq!(undone(&machine), ["b", "d"]);
}

#[test]
fn the_output_is_that_of_the_tasks_after_which_nothing_ran() {
    let text = "name = 'f'\n[task.small]\n[task.large]\n\
        [[edge]]\nfrom = 'small'\nto = 'large'\nwhen = { field = 'sure', less-than = 0.8 }";
    let ended = |actions: Vec<Action>| match &actions[..] {
        [
            Action::End {
                outcome: Outcome::Done(output),
            },
        ] => output.clone(),
        other => panic!("{other:?}"),
    };
    let first = |sure: f64| {
        let mut machine = machine(text);
        let actions = saved(&mut machine, 0, Event::Tick);
        let actions = answer(&mut machine, 1, &actions[0], Ok(json!({ "sure": sure })));
        (machine, actions)
    };
    let (_, actions) = first(0.9);
    assert_eq!(ended(actions), json!({ "sure": 0.9 }));
    let (mut machine, actions) = first(0.5);
    let actions = answer(&mut machine, 2, &actions[0], Ok(json!("large")));
    assert_eq!(ended(actions), json!("large"));
}

#[test]
fn edges_decide_by_what_came_out() {
    let text = "name = 'f'\n[task.a]\n[task.wet]\n[task.dry]\n[task.report]\nafter = ['wet', 'dry']\n\
        [[edge]]\nfrom = 'a'\nto = 'wet'\nwhen = { field = 'water', at-least = 0.2 }\n\
        [[edge]]\nfrom = 'a'\nto = 'dry'\ndefault = true";
    for (water, next) in [(json!({ "water": 0.4 }), "wet"), (json!({ "water": 0.1 }), "dry")] {
        let mut machine = machine(text);
        let actions = saved(&mut machine, 0, Event::Tick);
        let actions = answer(&mut machine, 1, &actions[0], Ok(water));
        let [Action::Start { call }] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(call.run.as_ref(), next);
        let actions = answer(&mut machine, 2, &actions[0], Ok(json!(next)));
        let [Action::Start { call }] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!((call.run.as_ref(), &call.input), ("report", &json!(next)));
    }
    let mut machine = machine(text);
    let actions = saved(&mut machine, 0, Event::Tick);
    let actions = answer(&mut machine, 1, &actions[0], Ok(json!({ "water": "much" })));
    let [
        Action::End {
            outcome: Outcome::Failed { why, .. },
        },
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert!(
        why.error.message.contains("`water` of the output is a text"),
        "{}",
        why.error
    );
}

#[test]
fn a_task_over_a_list_runs_for_each_item_and_gives_their_outputs_in_order() {
    let text = "name = 'f'\n[task.a]\neach = 'tiles'\nat-once = 2\n[task.b]\nafter = ['a']";
    let flow = Arc::new(Workflow::from_toml(text).unwrap());
    let mut machine = Machine::new(ID, flow, json!({ "tiles": ["x", "y", "z"] }), Duration::ZERO);
    let first = saved(&mut machine, 0, Event::Tick);
    let [Action::Start { call: x }, Action::Start { call: y }] = &first[..] else {
        panic!("{first:?}")
    };
    assert_eq!((&x.input, &y.input), (&json!("x"), &json!("y")));
    assert_ne!(x.key, y.key);
    let third = answer(&mut machine, 1, &first[1], Ok(json!("Y")));
    assert_eq!(answer(&mut machine, 2, &third[0], Ok(json!("Z"))), []);
    let actions = answer(&mut machine, 3, &first[0], Ok(json!("X")));
    let [Action::Start { call }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(call.input, json!(["X", "Y", "Z"]));
}

#[test]
fn contracts_are_checked_before_and_after_each_call() {
    let text = "name = 'f'\n[task.a]\nundo = 'un-a'\nretries = 1\n\
        inputs = [{ name = 'speed', type = 'f32', unit = 'm/s' }]\n\
        outputs = [{ name = 'class', type = 'u8' }]";
    let flow = Arc::new(Workflow::from_toml(text).unwrap());
    let begin = |input| Machine::new(ID, flow.clone(), input, Duration::ZERO);
    let failed = |actions: &[Action]| {
        let [
            Action::End {
                outcome: Outcome::Failed { why, .. },
            },
        ] = actions
        else {
            panic!("{actions:?}")
        };
        why.error.clone()
    };
    // Nothing is called with what does not fit, and no retry would mend it.
    let mut machine = begin(json!({ "speed": { "value": 3, "unit": "km/h" } }));
    let error = failed(&saved(&mut machine, 0, Event::Tick));
    assert_eq!(error.kind, karman_types::ErrorKind::Invalid);
    assert_eq!(error.message, "input `speed` is in `km/h`, not in `m/s`");

    // What comes out is tried again, and undone in the end: the task has run.
    let mut machine = begin(json!({ "speed": 3 }));
    let actions = saved(&mut machine, 0, Event::Tick);
    assert_eq!(
        answer(&mut machine, 1, &actions[0], Ok(json!({ "class": 300 }))),
        []
    );
    let actions = saved(&mut machine, 1_000, Event::Tick);
    let actions = answer(&mut machine, 1_001, &actions[0], Ok(json!({ "klass": 3 })));
    let [Action::Start { call }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(call.run.as_ref(), "un-a");
    let error = failed(&answer(&mut machine, 1_002, &actions[0], Ok(Value::Null)));
    assert_eq!(error.message, "output `class` is missing");

    let mut machine = begin(json!({ "speed": 3 }));
    let actions = saved(&mut machine, 0, Event::Tick);
    let actions = answer(&mut machine, 1, &actions[0], Ok(json!({ "class": 3 })));
    let done = Outcome::Done(json!({ "class": 3 }));
    assert_eq!(actions, [Action::End { outcome: done }]);
}

/// Who answers with what nobody reads has run, and who says that it failed has not.
#[test]
fn what_has_run_and_cannot_be_read_is_undone() {
    let error = TaskError::failed("its answer is no JSON");
    for (garbled, undone) in [(true, true), (false, false)] {
        let mut machine = machine("name = 'f'\n[task.a]\nundo = 'un-a'");
        let actions = saved(&mut machine, 0, Event::Tick);
        let [Action::Start { call }] = &actions[..] else {
            panic!("{actions:?}")
        };
        let (attempt, error) = (call.attempt, error.clone());
        let event = match garbled {
            true => Event::Garbled { attempt, error },
            false => Event::Answered {
                attempt,
                result: Err(error),
            },
        };
        let actions = saved(&mut machine, 1, event);
        let undoes = matches!(&actions[..], [Action::Start { call }] if call.run.as_ref() == "un-a");
        assert_eq!(undoes, undone, "{actions:?}");
    }
}

#[test]
fn what_happens_is_told_in_its_order() {
    let text = "name = 'f'\n[task.a]\nundo = 'un-a'\nretries = 1\n[task.b]\nafter = ['a']";
    let mut machine = machine(text);
    let actions = saved(&mut machine, 0, Event::Tick);
    let away = TaskError::unavailable("away");
    assert_eq!(answer(&mut machine, 10, &actions[0], Err(away.clone())), []);
    let actions = saved(&mut machine, 110, Event::Tick);
    let actions = answer(&mut machine, 120, &actions[0], Ok(json!("out")));
    let broken = TaskError::failed("broken").with_hint("mend it");
    let actions = answer(&mut machine, 130, &actions[0], Err(broken));
    let actions = answer(&mut machine, 140, &actions[0], Ok(Value::Null));
    assert!(matches!(actions[..], [Action::End { .. }]), "{actions:?}");

    let (item, broken) = (0, TaskError::failed("broken"));
    let retried = What::Retried {
        task: 0,
        item,
        attempt: 1,
        error: away,
    };
    let failed = What::Failed {
        task: 1,
        item,
        error: broken.clone(),
    };
    let undoing = What::Undoing {
        task: Some(1),
        error: broken,
    };
    let expected = [
        (0, What::Begun { task: 0, runs: 1 }),
        (10, retried),
        (120, What::Done { task: 0 }),
        (120, What::Begun { task: 1, runs: 1 }),
        (130, failed),
        (130, undoing),
        (140, What::Undone { task: 0, item }),
    ];
    let told = machine.record().history.after(0);
    let told: Vec<(u64, What)> = told
        .map(|(_, change)| (change.after_ms, change.what.clone()))
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn where_a_task_was_placed_is_written_down_with_how_it_ended() {
    let mut machine = machine("name = 'f'\n[task.a]");
    let first = saved(&mut machine, 0, Event::Tick);
    let [Action::Start { call }] = &first[..] else {
        panic!("{first:?}")
    };
    let (attempt, node) = (call.attempt, Some(NodeId::of_key(b"a")));
    let why = "it is done there first".to_owned();
    let placed = Event::Placed { attempt, node, why };
    // Nothing is written for it alone.
    assert_eq!(
        machine.handle(Duration::from_millis(5), placed.clone()),
        Vec::new()
    );
    let actions = machine.handle(
        Duration::from_millis(5),
        Event::Answered {
            attempt,
            result: Ok(json!("out")),
        },
    );
    let [Action::Save { record, .. }] = &actions[..] else {
        panic!("{actions:?}")
    };
    let told: Vec<&What> = record.history.after(0).map(|(_, change)| &change.what).collect();
    let Event::Placed { why, .. } = placed else {
        unreachable!()
    };
    let placed = What::Placed {
        task: 0,
        item: 0,
        node,
        why,
    };
    assert_eq!(told[1..], [&placed, &What::Done { task: 0 }]);
}
