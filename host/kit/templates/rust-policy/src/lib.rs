//! Selects the cheapest candidate that is accurate and fast enough by its profile, and by what was seen of it since.

use exports::karman::policy::selector::{Ask, Choice, Guest, Served, Slo, Task};
use std::cell::RefCell;

wit_bindgen::generate!({ path: "wit", generate_all });

/// Of so many calls one may be late.
const ONE_LATE_IN: u64 = 20;

/// What this instance decides for, and how many calls by each candidate there were and were late.
#[derive(Default)]
struct State {
    tasks: Vec<Task>,
    slo: Option<Slo>,
    seen: Vec<Vec<[u64; 2]>>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

struct Policy;

impl Guest for Policy {
    fn begin(tasks: Vec<Task>, slo: Slo) -> Result<(), String> {
        let seen = tasks.iter().map(|task| vec![[0; 2]; task.candidates.len()]).collect();
        STATE.set(State { tasks, slo: Some(slo), seen });
        Ok(())
    }

    fn resume(state: Vec<u8>) -> Result<(), String> {
        STATE.with_borrow_mut(|now| {
            let counts: Vec<&mut u64> = now.seen.iter_mut().flatten().flatten().collect();
            if state.len() != 8 * counts.len() {
                return Err("the state is of other tasks".into());
            }
            for (count, bytes) in counts.into_iter().zip(state.chunks_exact(8)) {
                *count = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            }
            Ok(())
        })
    }

    fn choose(ask: Ask) -> Result<Choice, String> {
        STATE.with_borrow(|state| {
            let task = ask.task as usize;
            let candidates = &state.tasks.get(task).ok_or("there is no such task")?.candidates;
            let reachable = (0..candidates.len()).filter(|n| !ask.unreachable.contains(&(*n as u32)));
            let mut order: Vec<usize> = reachable.collect();
            // Who is good enough comes first, and of equals who costs less.
            order.sort_by(|one, other| {
                let cost = |n: usize| candidates[n].profile.cost;
                let good = |n: usize| state.is_good(task, n);
                good(*other).cmp(&good(*one)).then(cost(*one).total_cmp(&cost(*other)))
            });
            let chosen = *order.first().ok_or("nobody can be reached")?;
            let because = match state.is_good(task, chosen) {
                true => "it is the cheapest of those that are accurate and fast enough",
                false => "nobody is accurate and fast enough and it is the cheapest",
            };
            Ok(Choice {
                chosen: chosen as u32,
                runner_up: order.get(1).map(|n| *n as u32),
                because: because.into(),
            })
        })
    }

    fn report(served: Served) -> Result<(), String> {
        STATE.with_borrow_mut(|state| {
            for call in served.calls {
                let limit = state.limit(call.task as usize);
                let seen = &mut state.seen[call.task as usize][call.candidate as usize];
                seen[0] += 1;
                seen[1] += u64::from(limit.is_some_and(|limit| call.latency > limit));
            }
            Ok(())
        })
    }

    fn save() -> Result<Vec<u8>, String> {
        let bytes = |state: &State| state.seen.iter().flatten().flatten().flat_map(|count| count.to_le_bytes()).collect();
        Ok(STATE.with_borrow(bytes))
    }
}

impl State {
    /// How long a call of a task may take, in nanoseconds.
    fn limit(&self, task: usize) -> Option<u64> {
        let limit = self.slo.as_ref()?.latency_p95?;
        Some((limit as f64 * self.tasks[task].within) as u64)
    }

    fn is_good(&self, task: usize, candidate: usize) -> bool {
        let profile = &self.tasks[task].candidates[candidate].profile;
        let wanted = self.slo.as_ref().and_then(|slo| slo.accuracy);
        let accurate = wanted.is_none_or(|least| profile.accuracy.is_some_and(|accuracy| accuracy >= least));
        let [calls, late] = self.seen[task][candidate];
        let fast = match calls < ONE_LATE_IN {
            true => self.limit(task).is_none_or(|limit| profile.p95 <= limit),
            false => late * ONE_LATE_IN <= calls,
        };
        accurate && fast
    }
}

export!(Policy);
