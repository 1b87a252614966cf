use super::super::{Outcome, Scenario, ScenarioError, run_scenario, run_scenario_with};
use karman_sched::select::Fixed;

const PHOTOS: &str = r#"
length = "1000 s"

[[model]]
name = "large"
slo = "1 s"
cost = 0.01
variation = { log-normal = { sigma = 0.2 } }
exit = [{ accuracy = 0.95, time = "80 ms" }]

[[model]]
name = "small"
slo = "1 s"
exit = [{ accuracy = 0.7, time = "10 ms" }]

[[node]]
name = "camera"
cores = 4
serve = "edf-final"

[[workload]]
name = "photos"
model = "large"
others = ["small"]
at = "camera"
rate = 2
SELECT

[workload.slo]
requests = 1000
latency-p95 = "500 ms"
cost = 4.0
"#;

fn run(select: &str) -> Outcome {
    run_scenario(&PHOTOS.replace("SELECT", select), Some(3))
        .unwrap()
        .0
}

/// Answers of the large model and of the small one.
fn served(outcome: &Outcome) -> (u64, u64) {
    let [(large, by_large), (small, by_small)] = &outcome.workloads[0].served_by[..] else {
        panic!("{outcome:?}")
    };
    assert_eq!((large.as_str(), small.as_str()), ("large", "small"));
    (*by_large, *by_small)
}

#[test]
fn who_serves_is_chosen_within_the_limits() {
    let (large, small) = served(&run(""));
    // Money for 400 of 1,000 by the large one: what is not spent comes back with the next batch only.
    let share = large as f64 / (large + small) as f64;
    assert!(
        large + small > 1900 && (0.36..=0.401).contains(&share),
        "{large} {small}"
    );
    assert_eq!(served(&run("select = 'greedy-cost'")).0, 0);
    assert_eq!(served(&run("select = 'greedy-accuracy'")).1, 0);
    let outcome = run("");
    let photos = &outcome.workloads[0];
    assert_eq!(photos.answered_by_exit, [large, small]);
    assert_eq!(photos.accuracy_of_exit, [0.95, 0.7]);
    assert_eq!(outcome, run(""));
}

#[test]
fn a_policy_of_ones_own_is_asked_by_its_name() {
    let text = PHOTOS.replace("SELECT", "select = 'mine'");
    let mut asked = Vec::new();
    let ran = run_scenario_with(&text, None, &mut |named, tasks, slo| {
        let task = &tasks[0];
        let profile = &task.candidates[0].profile;
        assert_eq!((task.name.as_str(), task.candidates.len()), ("photos", 2));
        // As it was measured: log-normal around 80 ms.
        let p95 = profile.p95.as_secs_f64();
        assert!((0.10..0.12).contains(&p95) && profile.cost == 0.01, "{profile:?}");
        asked.push(named.name);
        Ok(Box::new(Fixed::new(tasks, &slo, vec![1]).unwrap()))
    });
    assert_eq!(served(&ran.unwrap().0).0, 0);
    assert_eq!(asked, ["mine"]);
}

#[test]
fn what_does_not_fit_is_named() {
    let error = |text: &str| Scenario::from_toml(text).unwrap_err().to_string();
    let alone = PHOTOS.replace("others = [\"small\"]\n", "");
    let says = error(&alone.replace("SELECT", ""));
    assert!(
        says.contains("`slo`") && says.contains("no choice to make"),
        "{says}"
    );
    let says = error(&PHOTOS.replace("[\"small\"]", "[\"tiny\"]").replace("SELECT", ""));
    assert!(says.contains("`others` names `tiny`"), "{says}");
    let says = error(&PHOTOS.replace("cost = 4.0", "cost = -1").replace("SELECT", ""));
    assert!(says.contains("`cost` is -1"), "{says}");
    let unknown = run_scenario(&PHOTOS.replace("SELECT", "select = 'nobody'"), None).unwrap_err();
    assert!(matches!(unknown, ScenarioError::Select { .. }), "{unknown}");
    assert!(
        unknown.to_string().contains("there is no policy `nobody`"),
        "{unknown}"
    );
}
