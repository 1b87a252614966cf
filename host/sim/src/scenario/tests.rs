use super::*;
use crate::Quality;
use proptest::prelude::*;
use std::time::Duration;

const QUEUES: &str = r#"
length = "2000 s"
warm-up = "200 s"

[[model]]
name = "work"
slo = "10 s"
variation = "exponential"
exit = [{ time = "1 s" }]

[[node]]
name = "edge"
count = 10
serve = "edf-final"
idle-watts = 1
busy-watts = 3

[[workload]]
name = "jobs"
model = "work"
at = "edge"
rate = 0.7
route = "random"
"#;

const SPACE: &str = include_str!("../../scenarios/contacts.toml");

fn scenario(text: &str) -> Scenario {
    Scenario::from_toml(text).unwrap()
}

fn traced(scenario: &Scenario) -> (Vec<(Instant, Event)>, Outcome) {
    let mut trace = Vec::new();
    let policy = |group: &NodeGroup| group.serve.policy(group.refuse_late);
    let outcome = scenario
        .run_traced(policy, |at, event| trace.push((at, *event)))
        .unwrap();
    (trace, outcome)
}

#[test]
fn a_network_of_queues_is_as_theory_says() {
    // Each of ten queues is an M/M/1 with load 0.7: 1 / (1 - 0.7) s in the system, of Poisson streams split at random. An
    // M/M/1 with this load forgets in 40 s: the tolerances are four standard errors of the means over 10 times 18,000 s.
    let outcome = scenario(&QUEUES.replace("2000 s", "18200 s")).run().unwrap();
    let jobs = &outcome.workloads[0];
    let mean = jobs.mean_response.unwrap();
    assert!((mean - 1.0 / 0.3).abs() < 0.28, "{mean}");
    let busy = outcome.nodes[0].utilisation;
    assert!((busy - 0.7).abs() < 0.012, "{busy}");
    // The time in the system is exponential.
    let late = (-10.0_f64 * 0.3).exp();
    assert!((jobs.violations() - late).abs() < 0.012, "{}", jobs.violations());
    let joules = 10.0 * 18_000.0 * (1.0 + 2.0 * busy);
    assert!((outcome.nodes[0].joules - joules).abs() < 1e-6 * joules);
}

#[test]
fn the_same_seed_gives_the_same_trace_also_after_it_was_written() {
    for text in [QUEUES, SPACE] {
        let written = scenario(text);
        let read = scenario(&written.to_toml().unwrap());
        assert_eq!(read, written);
        let (trace, outcome) = traced(&written);
        assert!(trace.len() > 1000);
        assert!((trace, outcome) == traced(&read));
        let other = Scenario {
            seed: written.seed + 1,
            ..written
        };
        assert!(traced(&other).0 != traced(&read).0);
    }
}

#[test]
fn every_request_is_accounted_for() {
    let (trace, outcome) = traced(&scenario(SPACE));
    let frames = &outcome.workloads[0];
    let came = trace
        .iter()
        .filter(|(_, event)| matches!(event, Event::Come { .. }))
        .count() as u64;
    assert_eq!(frames.requests, came);
    assert!(frames.lost > 0 && frames.on_time > 1000, "{frames:?}");
    assert_eq!(outcome.answers.len() as u64, came - frames.unfinished);
    assert_eq!(
        frames.answered_by_exit.iter().sum::<u64>(),
        frames.on_time + frames.late
    );
    // Something went over the contact, and none of it before that began.
    let sat: Vec<_> = outcome.answers.iter().filter(|answer| answer.node == 4).collect();
    assert!(!sat.is_empty());
    let answered = |answer: &&&Answer| matches!(answer.verdict, Verdict::Answered { .. }) && answer.home == 0;
    assert!(
        sat.iter()
            .filter(answered)
            .all(|answer| answer.ended > Instant::from_secs_f64(10.0))
    );
    assert!(outcome.nodes[1].failures > 0 && outcome.nodes[0].joules > 0.0);
}

#[test]
fn a_node_that_says_nothing_more_is_not_the_idlest() {
    let text = QUEUES
        .replace("[[model]]", "[telemetry]\nperiod = \"200 ms\"\n\n[[model]]")
        .replace(
            "count = 10",
            "count = 4\nfailures = { mean-up = \"100 s\", mean-down = \"20 s\" }",
        )
        .replace("rate = 0.7", "rate = 0.5")
        .replace("\"random\"", "\"least-loaded\"");
    let outcome = scenario(&text).run().unwrap();
    let jobs = &outcome.workloads[0];
    // Of the sixth of the time that each is down, it is asked for less than a second.
    assert!(outcome.nodes[0].failures > 20, "{outcome:?}");
    assert!(jobs.lost > 0 && jobs.lost * 10 < jobs.requests, "{jobs:?}");
}

#[test]
fn files_say_what_came_of_it() {
    let (outcome, files) = run_scenario(SPACE, Some(9)).unwrap();
    assert_eq!(outcome.seed, 9);
    let file = |name: &str| &files.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!(file("answers.csv").lines().count(), outcome.answers.len() + 1);
    assert_eq!(file("workloads.csv").lines().count(), 2);
    assert_eq!(file("series.csv").lines().count(), 3 * outcome.sampled.len() + 1);
    assert!(file("outcome.json").contains("\"p95_response\""));
    assert!(file("responses.svg").contains("frames") && file("waiting.svg").contains("hall"));
    assert!(outcome.to_string().contains("frames"));
    assert!(files.iter().map(|(name, _)| name.as_str()).eq(Outcome::FILES));
    let jobs = &outcome.workloads[0];
    let ended = jobs.on_time + jobs.late + jobs.refused + jobs.lost;
    assert_eq!(jobs.unfinished, jobs.requests - ended);
}

#[test]
fn ten_thousand_nodes_fit() {
    let text = QUEUES
        .replace("count = 10", "count = 10000")
        .replace("2000 s", "3 s")
        .replace("200 s", "0 s");
    let outcome = scenario(&text).run().unwrap();
    assert!(outcome.workloads[0].requests > 20_000);
}

#[test]
fn what_does_not_fit_is_named() {
    let says = |from: &str, to: &str| {
        assert!(SPACE.contains(from));
        Scenario::from_toml(&SPACE.replacen(from, to, 1))
            .unwrap_err()
            .to_string()
    };
    assert!(says("keep-answers", "keep-answer").contains("did you mean `keep-answers`?"));
    assert!(says("speed = 0.25", "sped = 0.25").contains("did you mean `speed`?"));
    assert!(says("delay = \"36 ms\"", "dely = \"36 ms\"").contains("did you mean `delay`?"));
    assert!(says("loss = 0.01", "loss = 1.0").contains("`loss`"));
    assert!(says("speed = 0.25", "speed = nan").contains("node camera: `speed` is NaN"));
    assert!(says("speed = 0.25", "foreign = 1.0").contains("node camera: `foreign` is 1"));
    assert!(says("rate = 4.0", "rate = -4.0").contains("workload frames"));
    assert!(says("model = \"screen\"", "model = \"scren\"").contains("`model` names `scren`"));
    assert!(says("at = \"camera\"", "at = \"cam\"").contains("`at` names `cam`"));
    assert!(says("to = [\"hall\"", "to = [\"hal\"").contains("`to` names `hal`"));
    assert!(says("route = \"least-loaded\"", "route = \"here\"").contains("workload frames: `to` is"));
    assert!(says("to = \"sat-0\"", "to = \"sat-1\"").contains("`to` names `sat-1`"));
    assert!(says("end = \"40 s\"", "end = \"9 s\"").contains("`end` must be later"));
    assert!(says("name = \"hall\"", "name = \"camera\"").contains("two of the same kind"));
    assert!(says("name = \"hall\"", "name = \"a,b\"").contains("letters"));
    assert!(says("sigma = 0.1", "sigma = 9.0").contains("model screen: `sigma`"));
    assert!(says("batch = 4", "batch = 0").contains("model screen: `most`"));
    assert!(says("length = \"2 min\"", "length = \"0 s\"").contains("`length`"));
    let late = says("length = \"2 min\"", "length = \"2 min\"\nwarm-up = \"2000 s\"");
    assert!(late.contains("`warm-up` is 33 min 20 s"), "{late}");
    let memory = says("batch = 4", "batch = 4\nmemory = \"2 GiB\"");
    assert!(
        memory.contains("node camera: the models") && memory.contains("`memory` is 1 GiB"),
        "{memory}"
    );
    assert!(says("count = 3", "count = 200000").contains("at most 100,000"));
    assert!(says("mean-up = \"20 s\"", "mean-up = \"0 s\"").contains("`mean-up`"));
    assert!(says("dropped = 0.1", "dropped = 1.1").contains("`dropped`"));
    let perfect = Quality {
        lag: Duration::ZERO,
        noise: 0.0,
        dropped: 0.0,
    };
    assert_eq!(scenario(QUEUES).telemetry.quality(), perfect);
}

#[test]
fn a_policy_that_errs_is_named() {
    struct Wrong;
    impl Serve for Wrong {
        fn choose(
            &mut self,
            _: Duration,
            _: &karman_sched::serve::Backlog,
        ) -> Option<karman_sched::serve::Choice> {
            Some(karman_sched::serve::Choice::Run {
                model: 9,
                exit: 0,
                batch: 1,
            })
        }
    }
    let error = scenario(QUEUES).run_with(|_| Box::new(Wrong)).unwrap_err();
    assert!(error.to_string().contains("the policy chose"), "{error}");
    assert!(error.to_string().starts_with("edge-"), "{error}");
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,300}") {
        let _ = Scenario::from_toml(&text);
    }
}
