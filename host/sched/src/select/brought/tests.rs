use super::super::testing::{candidate, millis, task};
use super::*;
use crate::log::{Logged, Policy, What, explain, replay, replay_with};
use crate::select::{Asked, Call, Heard};
use karman_types::{ByteSize, Digest, TaskId};

/// Takes the next in turn, counts what it is told, and does what its script says on the way.
struct Turns {
    script: Script,
    turn: usize,
    told: u64,
}

#[derive(Clone, Copy)]
enum Script {
    Behaves,
    /// Traps at every seventh decision.
    TrapsAtSeven,
    /// Names a candidate that there is not.
    Names(usize),
    /// Traps at every question.
    AlwaysTraps,
    /// Does not save how far it is.
    Forgets,
    /// Saves more than is kept.
    SavesTooMuch,
}

struct Plugins(Script);

/// Cannot run it the first five times.
struct Full(std::sync::atomic::AtomicUsize);

fn trap() -> Failure {
    Failure::Trapped {
        trap: "unreachable".into(),
    }
}

impl Guest for Turns {
    fn choose(&mut self, ask: &Ask<'_>) -> Result<Choice, Failure> {
        self.turn += 1;
        match self.script {
            Script::AlwaysTraps => return Err(trap()),
            Script::TrapsAtSeven if self.turn.is_multiple_of(7) => return Err(trap()),
            Script::Names(chosen) => {
                return Ok(Choice {
                    chosen,
                    runner_up: None,
                    because: String::new(),
                });
            }
            _ => {}
        }
        let mut turns = (0..3).map(|step| (self.turn + step) % 3);
        Ok(Choice {
            chosen: turns.find(|n| ask.reaches(*n)).unwrap(),
            runner_up: Some((self.turn + 2) % 3),
            because: format!("it is turn {} after {} answers", self.turn, self.told),
        })
    }

    fn report(&mut self, _: &Served<'_>) -> Result<(), Failure> {
        self.told += 1;
        Ok(())
    }

    fn save(&mut self) -> Result<Vec<u8>, Failure> {
        match self.script {
            Script::Forgets => Ok(Vec::new()),
            Script::SavesTooMuch => Ok(vec![0; MOST_STATE + 1]),
            _ => Ok([self.turn.to_le_bytes(), (self.told as usize).to_le_bytes()].concat()),
        }
    }
}

impl Guests for Plugins {
    fn has(&self, plugin: &PolicyPlugin) -> bool {
        plugin.name == "turns"
    }

    fn start(
        &self,
        _: &PolicyPlugin,
        _: &[Task],
        _: &Slo,
        state: Option<&[u8]>,
    ) -> Result<Box<dyn Guest>, Failure> {
        let number = |at: usize| {
            let bytes = state.and_then(|state| state.get(at..at + 8));
            bytes.map_or(0, |bytes| usize::from_le_bytes(bytes.try_into().unwrap()))
        };
        Ok(Box::new(Turns {
            script: self.0,
            turn: number(0),
            told: number(8) as u64,
        }))
    }
}

fn tasks() -> Vec<Task> {
    vec![task(
        "classify",
        vec![
            candidate("s", 0.9, 20.0, 0.1),
            candidate("m", 0.95, 40.0, 0.2),
            candidate("l", 0.99, 80.0, 1.0),
        ],
    )]
}

fn brought(script: Script) -> (Brought, Arc<dyn Guests>) {
    let guests: Arc<dyn Guests> = Arc::new(Plugins(script));
    let plugin = PolicyPlugin {
        name: "turns".into(),
        version: "1.0.0".into(),
        id: Digest::of(b"turns"),
        fuel: 1000,
        memory: ByteSize::mib(1),
    };
    let policy = Brought::new(plugin, guests.clone(), tasks(), Slo::over(1000)).unwrap();
    (policy, guests)
}

/// What it decides for so many requests, one of which comes now and then while the large one is away, and the log of it.
fn recorded(script: Script, requests: u64) -> (Vec<Decision>, Vec<crate::log::Entry>, Arc<dyn Guests>) {
    let (policy, guests) = brought(script);
    let (decisions, log) = live(policy, requests);
    (decisions, log, guests)
}

fn live(policy: Brought, requests: u64) -> (Vec<Decision>, Vec<crate::log::Entry>) {
    let mut policy = Logged::new("digits", Policy::Brought(Box::new(policy)), tasks(), 1);
    let (mut decisions, mut log) = (Vec::new(), Vec::new());
    for n in 0..requests {
        let request = TaskId::from_parts(n, 0);
        let asked = Asked {
            unreachable: if n % 20 > 15 { vec![2] } else { Vec::new() },
            ..Asked::default()
        };
        let (decision, entries) = policy.choose(n, request, asked).unwrap();
        log.extend(entries);
        let call = Call {
            task: 0,
            candidate: decision.chosen,
            latency: millis(10.0),
            cost: 0.1,
            energy: None,
            right: None,
        };
        let heard = Heard {
            calls: vec![call],
            ..Heard::default()
        };
        log.extend(policy.report(n, request, heard).unwrap());
        decisions.push(decision);
    }
    (decisions, log)
}

fn failures(log: &[crate::log::Entry]) -> Vec<Failure> {
    let failure = |entry: &crate::log::Entry| match &entry.what {
        What::FellBack(fell_back) => Some(fell_back.failure.clone()),
        _ => None,
    };
    log.iter().filter_map(failure).collect()
}

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
    assert!(!replayed.holds() && replayed.different[0].failures == [vec![], vec![trap()]]);
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
}

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
    // Three of them leave it out until the next checkpoint, where it finds none twice more.
    assert_eq!(failures(&log).iter().filter(busy).count(), 5);
    assert!(matches!(decisions[449].reason, Reason::Said(_)));
    let replayed = replay_with(&log, &guests);
    assert!(
        replayed.holds() && replayed.same == 450,
        "{:?}",
        replayed.different.first()
    );
}

#[test]
fn its_words_are_cut_and_plain() {
    let (policy, _) = brought(Script::Behaves);
    let choice = Choice {
        chosen: 0,
        runner_up: Some(0),
        because: format!("a\nb\u{1b}[31m{}", "x".repeat(500)),
    };
    let decision = policy.checked(&Ask::default(), choice).unwrap();
    let Reason::Said(words) = decision.reason else {
        panic!("{decision:?}")
    };
    assert!(words.starts_with("a b [31m") && words.chars().count() == MOST_WORDS);
    assert_eq!(decision.runner_up, None);
}
