use super::*;

pub(crate) fn profile(accuracy: f64, p95_ms: f64, cost: f64) -> wit::Profile {
    let nanoseconds = |ms: f64| (ms * 1e6) as u64;
    wit::Profile {
        accuracy: Some(accuracy),
        mean: nanoseconds(p95_ms * 0.6),
        p50: nanoseconds(p95_ms / 2.0),
        p95: nanoseconds(p95_ms),
        p99: nanoseconds(p95_ms * 1.5),
        cost,
        energy: None,
        samples: 500,
    }
}

pub(crate) fn call(task: u32, candidate: u32, ms: f64, cost: f64) -> wit::Call {
    wit::Call {
        task,
        candidate,
        latency: (ms * 1e6) as u64,
        cost,
        energy: None,
        right: None,
    }
}

fn tasks() -> Vec<wit::Task> {
    let candidate = |name: &str, accuracy, p95_ms, cost| wit::Candidate {
        name: name.into(),
        profile: profile(accuracy, p95_ms, cost),
    };
    vec![wit::Task {
        name: "answer".into(),
        visits: 1.0,
        within: 1.0,
        candidates: vec![
            candidate("small", 0.7, 40.0, 0.0),
            candidate("middle", 0.85, 80.0, 1.0),
            candidate("large", 0.95, 200.0, 10.0),
        ],
    }]
}

fn slo(cost: Option<f64>, p95_ms: Option<f64>) -> wit::Slo {
    wit::Slo {
        requests: 1000,
        accuracy: None,
        latency_p95: p95_ms.map(|ms| (ms * 1e6) as u64),
        cost,
        energy: None,
    }
}

const ASK: wit::Ask = wit::Ask {
    now: 0,
    task: 0,
    queue: 1,
    unreachable: Vec::new(),
};

/// A batch; who served each request.
fn batch(policy: &mut Policy, tasks: &[wit::Task], late: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let one = |n: usize| {
        let chosen = policy.choose(&ASK).unwrap().chosen;
        let of = &tasks[0].candidates[chosen as usize].profile;
        let ms = if late(n, chosen as usize) { 1e6 } else { 1.0 };
        let call = call(0, chosen, ms, of.cost);
        let served = wit::Served {
            now: 0,
            queue: 0,
            latency: call.latency,
            calls: vec![call],
        };
        policy.report(&served).unwrap();
        chosen as usize
    };
    (0..1000).map(one).collect()
}

fn count(of: &[usize]) -> [usize; 3] {
    [0, 1, 2].map(|n| of.iter().filter(|chosen| **chosen == n).count())
}

#[test]
fn without_limits_the_most_accurate_serves() {
    let mut policy = Policy::new(&tasks(), &slo(None, None));
    assert_eq!(count(&batch(&mut policy, &tasks(), |_, _| false)), [0, 0, 1000]);
}

#[test]
fn money_lasts_and_is_spent() {
    // The best mix: 1000 = 1 * middle + 10 * large, all of them served: middle and small, or middle and large.
    for (budget, least) in [(500.0, 0.77), (1000.0, 0.845), (4000.0, 0.875)] {
        let tasks = tasks();
        let mut policy = Policy::new(&tasks, &slo(Some(budget), None));
        let served = batch(&mut policy, &tasks, |_, _| false);
        let [_, middle, large] = count(&served);
        let cost = middle as f64 + 10.0 * large as f64;
        let accuracy = served.iter().map(|n| [0.7, 0.85, 0.95][*n]).sum::<f64>() / 1000.0;
        assert!(cost <= budget && accuracy >= least, "{budget}: {cost} {accuracy}");
    }
}

#[test]
fn lateness_is_a_budget_too() {
    let tasks = tasks();
    let mut policy = Policy::new(&tasks, &slo(None, Some(100.0)));
    // Of the large one's calls every second is late, of the middle one's one in forty.
    let late = |n: usize, chosen| match chosen {
        2 => n.is_multiple_of(2),
        1 => n.is_multiple_of(40),
        _ => false,
    };
    let served = batch(&mut policy, &tasks, late);
    let many = served
        .iter()
        .enumerate()
        .filter(|(n, chosen)| late(*n, **chosen))
        .count();
    let [small, middle, large] = count(&served);
    assert!(many <= 50, "{many} late: {small} {middle} {large}");
    assert!(middle > 800, "{small} {middle} {large}");
}

#[test]
fn who_turns_out_slow_is_left() {
    let tasks = tasks();
    let mut policy = Policy::new(&tasks, &slo(None, Some(250.0)));
    // By its profile the large one is fast enough.
    let served = batch(&mut policy, &tasks, |n, chosen| chosen == 2 && n >= 100);
    let many = served
        .iter()
        .enumerate()
        .filter(|(n, chosen)| **chosen == 2 && *n >= 100)
        .count();
    assert!(
        served[..100].iter().all(|chosen| *chosen == 2) && many <= 50,
        "{many} late"
    );
}

#[test]
fn nobody_out_of_reach_serves() {
    let mut policy = Policy::new(&tasks(), &slo(Some(1000.0), Some(100.0)));
    for gone in [vec![0], vec![1, 2], vec![0, 2]] {
        let ask = wit::Ask {
            unreachable: gone.clone(),
            ..ASK
        };
        let choice = policy.choose(&ask).unwrap();
        assert!(!gone.contains(&choice.chosen));
        assert!(
            choice
                .runner_up
                .is_none_or(|other| !gone.contains(&other) && other != choice.chosen)
        );
    }
    let nobody = wit::Ask {
        unreachable: vec![0, 1, 2],
        ..ASK
    };
    assert!(policy.choose(&nobody).is_err());
}

#[test]
fn choices_that_nobody_follows_are_forgotten() {
    let tasks = tasks();
    let mut policy = Policy::new(&tasks, &slo(Some(4000.0), None));
    for _ in 0..3_000 {
        policy.choose(&ASK).unwrap();
    }
    let served = batch(&mut policy, &tasks, |_, _| false);
    let [_, middle, large] = count(&served);
    let accuracy = served.iter().map(|n| [0.7, 0.85, 0.95][*n]).sum::<f64>() / 1000.0;
    assert!(
        middle + 10 * large <= 4000 && accuracy >= 0.85,
        "{middle} {large} {accuracy}"
    );
}

#[test]
fn what_is_saved_goes_on_as_if_nothing_had_been() {
    let tasks = tasks();
    let slo = slo(Some(800.0), Some(100.0));
    let mut policy = Policy::new(&tasks, &slo);
    let late = |n: usize, chosen: usize| (n * 7 + chosen).is_multiple_of(30);
    batch(&mut policy, &tasks, late);
    let mut other = Policy::new(&tasks, &slo);
    other.resume(&policy.save()).unwrap();
    assert_eq!(other.save(), policy.save());
    assert_eq!(batch(&mut other, &tasks, late), batch(&mut policy, &tasks, late));
    assert!(other.resume(&policy.save()[..16]).is_err());
    assert!(other.resume(&[0; 7]).is_err());
}
