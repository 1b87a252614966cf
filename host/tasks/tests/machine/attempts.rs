//! Attempts: where they go, how many there are, and which answer counts.

use super::*;

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

/// A machine that has accepted a task, and gives it one attempt.
fn with_one_attempt() -> Machine {
    let limits = Limits {
        attempts: 1,
        longest_pause: Duration::from_millis(200),
        ..Limits::default()
    };
    let mut machine = machine(limits);
    submit(&mut machine, TASK, work(Guarantee::Direct));
    machine
}

#[test]
fn a_task_waits_for_its_home_without_losing_an_attempt() {
    let mut machine = with_one_attempt();
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
fn a_full_provider_costs_no_attempt_and_the_next_one_goes_elsewhere() {
    let mut machine = with_one_attempt();
    for (now, expected) in [(1_000, "a"), (2_000, "b"), (3_000, "a")] {
        let (provider, attempt) = started(&offer(&mut machine, now, &["a", "b"]));
        assert_eq!(provider, node(expected));
        let full = machine.handle(Instant(now + 1), Event::Crowded { attempt });
        assert_eq!(full, [], "it pauses");
        let due = machine.handle(Instant(now + 300), Event::Tick);
        assert!(
            matches!(&due[..], [Action::Place { avoid, .. }] if avoid.contains(&provider)),
            "{due:?}"
        );
    }
}

#[test]
fn a_task_expires_by_its_own_time_and_no_other() {
    for (now, expired) in [(999, false), (1_000, true)] {
        let mut machine = machine(Limits::default());
        let submission = Submission {
            within: Some(Duration::from_secs(1)),
            ..work(Guarantee::Direct)
        };
        submit(&mut machine, TASK, submission);
        let (_, attempt) = started(&offer(&mut machine, 1, &["a"]));
        let late = TaskError::deadline("it did not finish within its own limit");
        let actions = answer(&mut machine, now, attempt, Err(late));
        assert!(matches!(&actions[..], [Action::Answer { .. }]), "{actions:?}");
        assert_eq!(machine.stats().expired, u64::from(expired));
    }
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

#[test]
fn a_place_wakes_who_waits_for_it() {
    let mut machine = machine(Limits {
        running_per_provider: 1,
        ..Limits::default()
    });
    // Of four tasks the first two run at `a` and `b`, and of the others each waits for one of these.
    let tasks = [1, 2, 3, 4].map(|n| TaskId::from_parts(0, n));
    let mut attempts = Vec::new();
    for (task, name) in tasks.into_iter().zip(["a", "b", "a", "b"]) {
        submit(&mut machine, task, work(Guarantee::Direct));
        let providers = vec![node(name)];
        let offered = machine.handle(Instant(1), Event::Offered { task, providers });
        attempts.extend(offered.iter().map(|action| match action {
            Action::Start { call, .. } => call.attempt,
            other => panic!("{other:?}"),
        }));
    }
    assert_eq!(attempts.len(), 2);
    let actions = answer(&mut machine, 2, attempts[1], Ok(()));
    assert!(
        matches!(&actions[..], [Action::Answer { .. }, Action::Place { task, .. }] if *task == tasks[3]),
        "{actions:?}"
    );
}

#[test]
fn a_batch_that_no_bucket_takes_ends_its_task() {
    let mut machine = machine(Limits::default());
    submit(&mut machine, TASK, work(Guarantee::Direct));
    let (home, attempt) = started(&offer(&mut machine, 1, &["a"]));
    let answer = to_commit(home);
    machine.handle(Instant(2), Event::Answered { attempt, answer });
    let error = TaskError::limit("the key is too long");
    let verdict = Err(CommitError::Unfit(error.clone()));
    let actions = machine.handle(Instant(3), Event::Committed { attempt, verdict });
    let (asked, result) = (TASK, Err(error));
    assert_eq!(actions, [Action::Answer { asked, result }]);
}
