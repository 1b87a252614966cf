//! A policy that follows a script, and what it decides.

use super::super::testing::{candidate, millis, task};
use super::*;
use crate::log::{Entry, Logged, Policy, What};
use crate::select::{Asked, Call, Heard};
use karman_types::{ByteSize, Digest, TaskId};

/// Takes the next in turn, counts what it is told, and does what its script says on the way.
pub(super) struct Turns {
    script: Script,
    turn: usize,
    told: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Script {
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
    /// Traps at every answer.
    TrapsWhenTold,
}

pub(super) struct Plugins(pub(super) Script);

pub(super) fn trap() -> Failure {
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
        match self.script {
            Script::TrapsWhenTold => Err(trap()),
            _ => Ok(()),
        }
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

pub(super) fn tasks() -> Vec<Task> {
    vec![task(
        "classify",
        vec![
            candidate("s", 0.9, 20.0, 0.1),
            candidate("m", 0.95, 40.0, 0.2),
            candidate("l", 0.99, 80.0, 1.0),
        ],
    )]
}

pub(super) fn brought(script: Script) -> (Brought, Arc<dyn Guests>) {
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

/// What it decides for this many requests, one of which comes now and then while the large one is away, and the log of it.
pub(super) fn recorded(script: Script, requests: u64) -> (Vec<Decision>, Vec<Entry>, Arc<dyn Guests>) {
    let (policy, guests) = brought(script);
    let (decisions, log) = live(policy, requests);
    (decisions, log, guests)
}

pub(super) fn live(policy: Brought, requests: u64) -> (Vec<Decision>, Vec<Entry>) {
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

pub(super) fn failed(log: &[Entry]) -> Vec<Failed> {
    let failed = |entry: &Entry| match &entry.what {
        What::PolicyFailed { failed, .. } => Some(failed.clone()),
        _ => None,
    };
    log.iter().filter_map(failed).collect()
}

pub(super) fn failures(log: &[Entry]) -> Vec<Failure> {
    failed(log).into_iter().map(|failed| failed.failure).collect()
}
