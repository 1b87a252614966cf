use super::testing::*;
use super::*;
use crate::log::{CHECKPOINT_EVERY, Entry, Logged, Policy, What, explain, replay, replay_with, tails};
use crate::select::{Asked, Heard};
use karman_types::TaskId;
use std::collections::BTreeMap;

#[test]
fn what_a_plugin_decides_is_made_again_from_any_checkpoint() {
    for script in [Script::Behaves, Script::Forgets, Script::TrapsAtSeven] {
        let (decisions, log, guests) = recorded(script, 700);
        let whole = replay_with(&log, &guests);
        assert!(
            whole.holds() && whole.same == 700,
            "{:?}",
            whole.different.first()
        );
        let rest = replay_with(&log[100..], &guests);
        assert!(rest.holds() && rest.without_checkpoint > 0);
        let chosen = log[100..]
            .iter()
            .filter(|entry| matches!(entry.what, What::Chosen(_)));
        assert_eq!(rest.same + rest.without_checkpoint, chosen.count());
        let said = |decision: &Decision| matches!(decision.reason, Reason::Said(_));
        let by_plugin = decisions.iter().filter(|decision| said(decision)).count();
        assert_eq!(
            by_plugin < 700,
            matches!(script, Script::TrapsAtSeven),
            "{by_plugin}"
        );
    }
}

/// It loses nothing, and what it decides afterwards is made again, too; also where it is told of answers in between.
#[test]
fn one_that_rested_goes_on_from_where_it_was() {
    let (policy, guests) = brought(Script::Behaves);
    let mut policy = Logged::new("digits", Policy::Brought(Box::new(policy)), tasks(), 1);
    let mut log = Vec::new();
    for n in 0..60 {
        let request = TaskId::from_parts(n, 0);
        let (decision, entries) = policy.choose(n, request, Asked::default()).unwrap();
        assert!(
            matches!(&decision.reason, Reason::Said(said) if *said == format!("it is turn {} after {n} answers", n + 1)),
            "{decision:?}"
        );
        log.extend(entries);
        if n % 10 == 3 {
            assert!(policy.rest() && !policy.rest());
        }
        log.extend(policy.report(n, request, Heard::default()).unwrap());
        if n % 10 == 6 {
            assert!(policy.rest());
        }
    }
    let checkpoints = log
        .iter()
        .filter(|entry| matches!(entry.what, What::Checkpoint(_)));
    assert_eq!(checkpoints.count(), 13);
    let replayed = replay_with(&log, &guests);
    assert!(
        replayed.holds() && replayed.same == 60,
        "{:?}",
        replayed.different
    );
}

#[test]
fn one_whose_node_was_stopped_goes_on_from_its_log() {
    let of = karman_types::Digest::of(b"a workflow");
    let new = |instance| {
        let (policy, _) = brought(Script::Behaves);
        let policy = Policy::Brought(Box::new(policy));
        Logged::new("digits", policy, tasks(), instance).known_by(of)
    };
    let served = |policy: &mut Logged, n: u64| {
        let request = TaskId::from_parts(n, 0);
        let (decision, mut entries) = policy.choose(n, request, Asked::default()).unwrap();
        entries.extend(policy.report(n, request, Heard::default()).unwrap());
        (decision, entries)
    };
    let stopped = u64::from(CHECKPOINT_EVERY) + 30;
    let mut never = new(1);
    let log: Vec<Entry> = (0..stopped).flat_map(|n| served(&mut never, n).1).collect();
    let (mut resumed, now) = new(2).resumed(tails(log).remove(&of).unwrap());
    assert!(now.is_some());
    for n in stopped..stopped + 30 {
        assert_eq!(served(&mut resumed, n).0, served(&mut never, n).0);
    }
}

#[test]
fn without_the_plugin_it_is_told_that_it_is_missing() {
    let (_, log, _) = recorded(Script::Behaves, 250);
    let replayed = replay(&log);
    assert!(!replayed.holds());
    assert_eq!((replayed.same, replayed.different.len()), (0, 0));
    let absent = &replayed.without_plugin[0];
    assert_eq!((absent.plugin.as_str(), absent.decisions), ("turns 1.0.0", 250));
}

#[test]
fn another_plugin_of_the_name_is_found_out() {
    let (_, log, _) = recorded(Script::Behaves, 50);
    let other: Arc<dyn Guests> = Arc::new(Plugins(Script::TrapsAtSeven));
    let replayed = replay_with(&log, &other);
    let different = &replayed.different[0];
    let [then, now] = &different.failures;
    assert!(then.is_empty() && now[0].failure == trap(), "{different:?}");
}

#[test]
fn one_that_traps_now_and_then_goes_on_from_its_checkpoint() {
    let (decisions, log, _) = recorded(Script::TrapsAtSeven, 20);
    let said = |n: usize| matches!(&decisions[n].reason, Reason::Said(_));
    // Its seventh is the default's, and so is every seventh after that.
    let by_default: Vec<usize> = (0..20).filter(|n| !said(*n)).collect();
    assert_eq!(by_default, [6, 13]);
    assert_eq!(failures(&log), [trap(), trap()]);
    let told = explain(&log, TaskId::from_parts(6, 0))[0].to_string();
    assert!(
        told.contains("; policy turns 1.0.0 did not decide, the default did: it trapped: unreachable"),
        "{told}"
    );
    let told = explain(&log, TaskId::from_parts(0, 0))[0].to_string();
    assert!(told.contains("because it is turn 1 after 0 answers"), "{told}");
}

#[test]
fn one_that_always_traps_is_left_out_until_the_next_checkpoint() {
    let (decisions, log, guests) = recorded(Script::AlwaysTraps, 203);
    assert!(
        !decisions
            .iter()
            .any(|decision| matches!(decision.reason, Reason::Said(_)))
    );
    let failures = failures(&log);
    let trapped: Vec<usize> = (0..failures.len()).filter(|n| failures[*n] == trap()).collect();
    assert_eq!(trapped, [0, 1, 2, 200, 201, 202]);
    assert!(
        failures[3..200]
            .iter()
            .all(|failure| *failure == Failure::LeftOut { failures: 3 })
    );
    assert!(replay_with(&log, &guests).holds());
}

#[test]
fn what_cannot_be_chosen_is_not() {
    for (named, wrong) in [(3, 20), (usize::MAX, 20), (2, 4)] {
        let (decisions, log, _) = recorded(Script::Names(named), 20);
        assert!(decisions.iter().all(|decision| decision.chosen < 3));
        let answers = failures(&log);
        let answer = |failure: &Failure| !matches!(failure, Failure::LeftOut { .. } | Failure::Answer { .. });
        assert!(
            !answers.iter().any(answer) && answers.len() == wrong,
            "{named}: {answers:?}"
        );
    }
}

#[test]
fn who_saves_too_much_goes_on_from_what_is_kept() {
    let (_, log, guests) = recorded(Script::SavesTooMuch, 450);
    let state = Failure::State {
        bytes: MOST_STATE + 1,
        most: MOST_STATE,
    };
    assert_eq!(failures(&log), [state.clone(), state]);
    assert!(replay_with(&log, &guests).holds());
    // It did decide.
    let told = explain(&log, TaskId::from_parts(200, 0))[0].to_string();
    assert!(
        told.contains("turns 1.0.0 failed when it was saved: its state has")
            && !told.contains("the default did"),
        "{told}"
    );
}

#[test]
fn one_that_fails_when_it_is_told_is_said_to() {
    let (_, log, guests) = recorded(Script::TrapsWhenTold, 3);
    assert!(failed(&log).iter().all(|failed| failed.during == During::Report));
    let told = explain(&log, TaskId::from_parts(0, 0))[0].to_string();
    assert!(
        told.contains("failed when it was told what became of a request: it trapped")
            && told.contains("it is turn 1"),
        "{told}"
    );
    assert!(replay_with(&log, &guests).holds());
}

/// Where nobody can be reached nothing is decided, and what failed before is not lost with it.
#[test]
fn a_checkpoint_is_made_for_a_decision_only() {
    let nobody = [0, 1, 2];
    let (policy, _) = brought(Script::SavesTooMuch);
    let counts = FailureCounts::default();
    let mut unlogged = Unlogged::new(policy.clone(), counts.clone());
    let mut logged = Logged::new("digits", Policy::Brought(Box::new(policy)), tasks(), 1);
    let request = TaskId::from_parts(1, 1);
    let unreachable = Asked {
        unreachable: nobody.to_vec(),
        ..Asked::default()
    };
    let mut last = Vec::new();
    for n in 0..=CHECKPOINT_EVERY {
        if n == CHECKPOINT_EVERY {
            assert!(logged.choose(0, request, unreachable.clone()).is_err());
        }
        assert!(unlogged.choose(&unreachable.as_ask()).is_err());
        last = logged.choose(0, request, Asked::default()).unwrap().1;
        unlogged.choose(&Ask::default()).unwrap();
    }
    let saved = failed(&last);
    assert_eq!(saved.len(), 1);
    assert_eq!(saved[0].during, During::Save);
    let words = (During::Save, saved[0].to_string());
    assert_eq!(*counts.borrow(), BTreeMap::from([(words, 1)]));
}

/// Cannot run it the first five times.
struct Full(std::sync::atomic::AtomicUsize);

impl Guests for Full {
    fn has(&self, _: &PolicyPlugin) -> bool {
        true
    }

    fn start(
        &self,
        plugin: &PolicyPlugin,
        tasks: &[Task],
        slo: &Slo,
        state: Option<&[u8]>,
    ) -> Result<Box<dyn Guest>, Failure> {
        match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0..4 => Err(Failure::Busy { most: 7 }),
            4 => Err(Failure::Host {
                why: "no room".into(),
            }),
            _ => Plugins(Script::Behaves).start(plugin, tasks, slo, state),
        }
    }
}

#[test]
fn what_the_node_could_not_do_is_taken_from_the_log() {
    let (mut policy, guests) = brought(Script::Behaves);
    policy.attach(Arc::new(Full(0.into())));
    let (decisions, log) = live(policy, 450);
    let busy = |failure: &&Failure| matches!(failure, Failure::Busy { .. } | Failure::Host { .. });
    // None of them is held against it: it decides as soon as there is room.
    let failures = failures(&log);
    assert_eq!((failures.len(), failures.iter().filter(busy).count()), (5, 5));
    let said = |decision: &Decision| matches!(decision.reason, Reason::Said(_));
    assert!(decisions[3..].iter().all(said));
    let replayed = replay_with(&log, &guests);
    assert!(
        replayed.holds() && replayed.same == 450,
        "{:?}",
        replayed.different.first()
    );
}

/// Has two places.
struct Two(Arc<()>);

/// In one of them.
struct Placed {
    guest: Box<dyn Guest>,
    _place: Arc<()>,
}

impl Guest for Placed {
    fn choose(&mut self, ask: &Ask<'_>) -> Result<Choice, Failure> {
        self.guest.choose(ask)
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), Failure> {
        self.guest.report(served)
    }

    fn save(&mut self) -> Result<Vec<u8>, Failure> {
        self.guest.save()
    }
}

impl Guests for Two {
    fn has(&self, _: &PolicyPlugin) -> bool {
        true
    }

    fn start(
        &self,
        plugin: &PolicyPlugin,
        tasks: &[Task],
        slo: &Slo,
        state: Option<&[u8]>,
    ) -> Result<Box<dyn Guest>, Failure> {
        if Arc::strong_count(&self.0) > 2 {
            return Err(Failure::Busy { most: 2 });
        }
        let guest = Plugins(Script::Behaves).start(plugin, tasks, slo, state)?;
        let _place = self.0.clone();
        Ok(Box::new(Placed { guest, _place }))
    }
}

#[test]
fn a_log_may_hold_more_policies_than_there_are_places() {
    let logs: Vec<Vec<Entry>> = (0..3)
        .map(|instance| {
            let (_, mut log, _) = recorded(Script::Behaves, 250);
            log.iter_mut().for_each(|entry| entry.instance = instance);
            log
        })
        .collect();
    let together = (0..logs[0].len()).flat_map(|place| logs.iter().map(move |log| log[place].clone()));
    let mut together: Vec<Entry> = together.collect();
    let two: Arc<dyn Guests> = Arc::new(Two(Arc::default()));
    let replayed = replay_with(&together, &two);
    assert!(
        replayed.holds() && replayed.same == 750,
        "{:?}",
        replayed.different.first()
    );
    // What comes out different is told in the order of the log.
    for entry in &mut together {
        if let What::Chosen(chosen) = &mut entry.what {
            chosen.decision.runner_up = None;
        }
    }
    let different = replay_with(&together, &two).different;
    assert!(different.len() == 750 && different.is_sorted_by_key(|different| different.entry));
}

#[test]
fn its_words_are_cut_and_plain() {
    let (policy, _) = brought(Script::Behaves);
    let choice = Choice {
        chosen: 0,
        runner_up: Some(0),
        because: format!("a\nb\u{1b}[31m\u{202e}ä\u{200b}{}", "x".repeat(500)),
    };
    let decision = policy.checked(&Ask::default(), choice).unwrap();
    let Reason::Said(words) = decision.reason else {
        panic!("{decision:?}")
    };
    assert!(words.starts_with("a b [31mäx") && words.chars().count() == 200);
    assert_eq!(decision.runner_up, None);
}
