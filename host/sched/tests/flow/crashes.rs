//! Any workflow, with its coordinator killed anywhere.

use super::ID;
use karman_sched::flow::{Action, Call, Event, Machine, Outcome, Phase, Record, RunId, StepState, What};
use karman_types::{TaskError, Workflow};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What runs tasks: knows every key, applies an effect once for it, and answers an attempt that it knows with how that ended.
#[derive(Default)]
struct Runner {
    /// How often an attempt fails before one succeeds; the key of the run that never does.
    flaky: u32,
    broken: Option<String>,
    /// The input of each key, and what became of each attempt.
    inputs: BTreeMap<Arc<str>, Value>,
    ended: BTreeMap<(Arc<str>, u32), Result<Value, TaskError>>,
    /// Keys whose effect was applied, in this order.
    effects: Vec<Arc<str>>,
}

impl Runner {
    fn run(&mut self, call: &Call) -> Result<Value, TaskError> {
        let known = self
            .inputs
            .entry(call.key.clone())
            .or_insert_with(|| call.input.clone());
        assert_eq!(*known, call.input, "another input under the key {}", call.key);
        let attempt = (call.key.clone(), call.attempt.number);
        if let Some(ended) = self.ended.get(&attempt) {
            return ended.clone();
        }
        let broken = self.broken.as_deref() == Some(&*call.key);
        let result = match (broken, call.attempt.number <= self.flaky) {
            (true, _) => Err(TaskError::failed("broken")),
            (_, true) => Err(TaskError::unavailable("flaky")),
            _ => Ok(json!({ "key": *call.key, "list": [1, 2, 3], "x": call.key.len() })),
        };
        if result.is_ok() && !self.effects.contains(&call.key) {
            self.effects.push(call.key.clone());
        }
        self.ended.insert(attempt, result.clone());
        result
    }
}

/// A coordinator with its store and its runner, in virtual time.
struct World {
    flow: Arc<Workflow>,
    machine: Machine,
    /// Bytes of the longest record that is saved.
    most: usize,
    saved: Option<Record>,
    runner: Runner,
    /// What is under way.
    todo: VecDeque<Action>,
    now: Duration,
    rng: fastrand::Rng,
    ended: Option<Outcome>,
    steps: usize,
}

impl World {
    fn new(flow: &Arc<Workflow>, runner: Runner, seed: u64) -> Self {
        Self {
            flow: flow.clone(),
            machine: Machine::new(ID, flow.clone(), json!({ "list": [1, 2] }), Duration::ZERO),
            most: usize::MAX,
            saved: None,
            runner,
            todo: VecDeque::new(),
            now: Duration::ZERO,
            rng: fastrand::Rng::with_seed(seed),
            ended: None,
            steps: 0,
        }
    }

    /// Until the run has ended, with the coordinator killed after this many steps.
    fn live(mut self, crash: Option<usize>) -> Self {
        let mut event = Event::Tick;
        while self.ended.is_none() {
            self.steps += 1;
            assert!(self.steps < 5_000, "{:?}", self.machine.record());
            let actions = self.machine.handle(self.now, event);
            let is_kept = !self.machine.is_unkept();
            for action in &actions {
                if let Action::Start { call } = action
                    && is_kept
                {
                    self.is_written_down(call);
                }
            }
            self.todo.extend(actions);
            if crash == Some(self.steps) && is_kept {
                self.crash();
            }
            event = self.next();
        }
        self
    }

    /// Nothing starts that the last saved record does not know of.
    fn is_written_down(&self, call: &Call) {
        let saved = self.saved.as_ref().expect("saved before anything starts");
        let number = match (&saved.phase, call.attempt.of.undo) {
            (Phase::Undoing(undoing), true) => undoing.attempt,
            (_, undo) => {
                assert!(!undo);
                saved.steps[call.attempt.of.task].runs[call.attempt.of.item].attempt
            }
        };
        assert_eq!(number, call.attempt.number);
    }

    /// What is told of a durable record keeps its place in every later one.
    fn is_told_on(&self, record: &Record) {
        if let Some(saved) = &self.saved {
            let before: Vec<_> = saved.history.after(0).collect();
            let now: Vec<_> = record.history.after(0).take(before.len()).collect();
            assert_eq!(before, now);
        }
    }

    fn crash(&mut self) {
        self.now += Duration::from_secs(1);
        // A write that nobody waits for any more may be durable or not; what ran goes on, unheard.
        for action in std::mem::take(&mut self.todo) {
            match action {
                Action::Save { record, .. } if self.fits(&record) && self.rng.bool() => {
                    self.saved = Some(*record);
                }
                Action::Start { call } if self.rng.bool() => _ = self.runner.run(&call),
                _ => {}
            }
        }
        self.machine = match &self.saved {
            Some(record) => {
                let bytes = serde_json::to_vec(record).unwrap();
                let record = serde_json::from_slice(&bytes).unwrap();
                Machine::resume(self.flow.clone(), record, Duration::ZERO, self.now).unwrap()
            }
            None => Machine::new(ID, self.flow.clone(), json!({ "list": [1, 2] }), self.now),
        };
    }

    /// Does one of the things that are under way, in any order, and says what came of it.
    fn next(&mut self) -> Event {
        if self.todo.is_empty() {
            self.now = self.now.max(self.machine.next_timeout().unwrap_or(self.now));
            return Event::Tick;
        }
        let any = self.rng.usize(..self.todo.len());
        let action = self.todo.remove(any).expect("it is there");
        match action {
            Action::Save { ticket, .. } if self.rng.u8(..8) == 0 => Event::Unsaved { ticket },
            Action::Save { ticket, record } if !self.fits(&record) => Event::TooLong {
                ticket,
                error: TaskError::limit("too long"),
            },
            Action::Save { ticket, record } => {
                self.is_told_on(&record);
                self.saved = Some(*record);
                Event::Saved { ticket }
            }
            Action::Start { call } => {
                let result = self.runner.run(&call);
                let attempt = call.attempt;
                Event::Answered { attempt, result }
            }
            Action::Stop { attempt, .. } => Event::Stopped { attempt },
            Action::End { outcome } => {
                let saved = self.saved.as_ref().and_then(Record::outcome);
                assert!(saved == Some(&outcome) || self.machine.is_unkept());
                self.ended = Some(outcome);
                Event::Tick
            }
        }
    }

    fn fits(&self, record: &Record) -> bool {
        serde_json::to_vec(record).unwrap().len() <= self.most
    }

    /// Effects without those that were undone.
    fn net(&self) -> Vec<&str> {
        let undone = |key: &str| {
            self.runner
                .effects
                .iter()
                .any(|other| **other == format!("{key}/undo"))
        };
        let mut net: Vec<&str> = self.runner.effects.iter().map(AsRef::as_ref).collect();
        net.retain(|key| !key.ends_with("/undo") && !undone(key));
        net.sort_unstable();
        net
    }
}

/// A few tasks in layers, some of them over lists, all with compensation and two retries.
fn flow() -> impl Strategy<Value = Arc<Workflow>> {
    let link = (0usize..5, 1usize..5, 0u8..4);
    (proptest::collection::vec(link, 3..9), 0u8..32).prop_map(|(links, lists)| {
        let links: BTreeMap<(usize, usize), u8> = links
            .into_iter()
            .map(|(a, b, kind)| ((a.min(b - 1), b), kind))
            .collect();
        let mut text = String::from("name = 'flow'\nstart = [");
        for task in (0..5).filter(|task| links.keys().all(|(_, to)| to != task)) {
            text += &format!("'t{task}',");
        }
        text += "]\n";
        for task in 0..5 {
            text += &format!("[task.t{task}]\nretries = 2\nundo = 'u{task}'\nat-once = 2\n");
            // Only a task with the workflow's input or a single output before it finds a list.
            let before: Vec<_> = links.keys().filter(|(_, to)| *to == task).collect();
            if lists & (1 << task) != 0 && before.is_empty() {
                text += "each = 'list'\n";
            }
        }
        for ((from, to), kind) in &links {
            let list = lists & (1 << from) != 0 && links.keys().all(|(_, into)| into != from);
            let field = if list { "0.x" } else { "x" };
            let when = match kind {
                0 | 1 => String::new(),
                2 => format!("when = {{ field = '{field}', exists = true }}\n"),
                _ => format!("when = {{ field = '{field}', less-than = 3 }}\n"),
            };
            text += &format!("[[edge]]\nfrom = 't{from}'\nto = 't{to}'\n{when}");
        }
        Arc::new(Workflow::from_toml(&text).unwrap())
    })
}

fn runner(broken: Option<usize>, flaky: u32) -> Runner {
    Runner {
        flaky,
        broken: broken.map(|task| format!("{ID}/t{task}")),
        ..Runner::default()
    }
}

/// How often it is told that a task has begun, was skipped, is done.
fn told(record: &Record, asked: usize) -> [usize; 3] {
    let mut times = [0; 3];
    for (_, change) in record.history.after(0) {
        match change.what {
            What::Begun { task, .. } if task == asked => times[0] += 1,
            What::Skipped { task } if task == asked => times[1] += 1,
            What::Done { task } if task == asked => times[2] += 1,
            _ => {}
        }
    }
    times
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 64, ..ProptestConfig::default() })]

    /// Killed at every single step, the run ends as it does when nobody is killed; every effect is applied at most once for its
    /// key, and of a failed run none is left.
    #[test]
    fn a_coordinator_may_be_killed_at_any_step(
        flow in flow(), broken in proptest::option::of(0usize..5), flaky in 0u32..3, seed in any::<u64>(),
    ) {
        let calm = World::new(&flow, runner(broken, flaky), seed).live(None);
        for crash in 1..=calm.steps {
            let world = World::new(&flow, runner(broken, flaky), seed).live(Some(crash));
            match (&calm.ended, &world.ended) {
                (Some(Outcome::Done(calm)), Some(Outcome::Done(output))) => prop_assert_eq!(calm, output),
                (Some(Outcome::Failed { why: calm, .. }), Some(Outcome::Failed { why, not_undone })) => {
                    prop_assert_eq!(&calm.task, &why.task);
                    prop_assert!(not_undone.is_empty());
                    prop_assert_eq!(world.net(), Vec::<&str>::new());
                }
                other => prop_assert!(false, "{:?}", other),
            }
            let runs = world.machine.record().steps.iter().map(|step| step.runs.len()).sum::<usize>();
            prop_assert!(world.runner.inputs.len() <= 2 * runs);
            for task in 0..flow.tasks().len() {
                let record = world.machine.record();
                let step = &record.steps[task];
                let is = |state| usize::from(step.state == state);
                let begun = usize::from(!step.runs.is_empty());
                let (skipped, done) = (is(StepState::Skipped), is(StepState::Done));
                prop_assert_eq!(told(record, task), [begun, skipped, done]);
            }
        }
    }

    /// Where more is known of it than is kept, a run fails and leaves no effect, also when it is killed while there is still a record.
    #[test]
    fn however_little_is_kept_of_a_run_that_fails_none_of_its_effects_is_left(
        flow in flow(), most in 400usize..6_000, flaky in 0u32..3, crash in 1usize..60, seed in any::<u64>(),
    ) {
        let calm = World::new(&flow, runner(None, flaky), seed).live(None);
        for crash in [None, Some(crash)] {
            let world = World { most, ..World::new(&flow, runner(None, flaky), seed) }.live(crash);
            match (&calm.ended, &world.ended) {
                (calm, Some(Outcome::Failed { not_undone, .. })) => {
                    prop_assert!(not_undone.is_empty(), "{:?}, {:?}", calm, world.machine.record());
                    prop_assert_eq!(world.net(), Vec::<&str>::new());
                }
                (calm, ended) => prop_assert_eq!(calm, ended),
            }
        }
    }

    #[test]
    fn compensation_goes_backwards(flow in flow(), broken in 0usize..5, seed in any::<u64>()) {
        let world = World::new(&flow, runner(Some(broken), 1), seed).live(None);
        if matches!(world.ended, Some(Outcome::Failed { .. })) {
            let undone = world.runner.effects.iter().filter_map(|key| key.strip_suffix("/undo"));
            let key = |run: &RunId| {
                let task = &flow.tasks()[run.task];
                let item = task.each.as_ref().map(|_| format!("/{}", run.item)).unwrap_or_default();
                format!("{ID}/{}{item}", task.name)
            };
            let mut effects: Vec<String> = world.machine.record().effects.iter().map(key).collect();
            effects.reverse();
            prop_assert_eq!(undone.collect::<Vec<_>>(), effects);
        }
    }
}
