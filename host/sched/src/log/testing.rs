//! A load that policies are logged under, for the tests of this module.

use super::{Entry, Logged};
use crate::select::testing::{candidate, millis, task};
use crate::select::{Asked, Call, Heard, Task};
use karman_types::TaskId;
use std::time::Duration;

/// One task, that three run; the large one has this p95 in milliseconds.
pub(super) fn tasks(p95: f64) -> Vec<Task> {
    let candidates = vec![
        candidate("small", 0.9, 20.0, 0.1),
        candidate("large", 0.99, p95, 1.0),
        candidate("far", 0.995, 90.0, 2.0),
    ];
    vec![task("classify", candidates)]
}

/// A request by its number, from the question to the answer, which takes so many times as long as usual. One candidate comes and goes.
pub(super) fn request(policy: &mut Logged, n: u64, rng: &mut fastrand::Rng, slow: f64) -> Vec<Entry> {
    let request = TaskId::from_parts(n, 0);
    let asked = Asked {
        now: Duration::from_millis(n * 10),
        task: 0,
        queue: rng.usize(1..5),
        unreachable: if n % 50 > 30 { vec![2] } else { Vec::new() },
    };
    let (decision, mut entries) = policy.choose(n * 10, request, asked).unwrap();
    let latency = millis(slow * (10.0 + rng.f64() * 60.0));
    let call = Call {
        task: 0,
        candidate: decision.chosen,
        latency,
        cost: 0.1 + decision.chosen as f64,
        energy: None,
        right: Some(rng.f64() < 0.9),
    };
    let heard = Heard {
        now: Duration::from_millis(n * 10 + 9),
        queue: 0,
        latency,
        calls: vec![call],
    };
    entries.extend(policy.report(n * 10 + 9, request, heard).unwrap());
    entries
}
