use super::super::{Instead, Outcome, Scenario, ScenarioError, run_scenario, run_scenario_with};
use karman_sched::select::{Ask, Decision, Fixed, NoChoice, Reason, ReportError, Selector, Served};

const PHOTOS: &str = include_str!("../../../scenarios/photos.toml");

/// The scenario with this policy.
fn by(select: &str) -> String {
    PHOTOS.replace("pixie", select)
}

fn run(text: &str) -> Outcome {
    run_scenario(text, Some(3)).unwrap().0
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
    let outcome = run(PHOTOS);
    let (large, small) = served(&outcome);
    // Money for 400 of 1,000 by the large one: what is not spent comes back with the next batch only.
    let share = large as f64 / (large + small) as f64;
    assert!(
        large + small > 1900 && (0.36..=0.401).contains(&share),
        "{large} {small}"
    );
    assert_eq!(served(&run(&by("greedy-cost"))).0, 0);
    assert_eq!(served(&run(&by("greedy-accuracy"))).1, 0);
    let photos = &outcome.workloads[0];
    assert_eq!(photos.answered_by_exit, [large, small]);
    assert_eq!(photos.accuracy_of_exit, [0.95, 0.7]);
    assert_eq!(photos.cost, 0.01 * large as f64);
    let right = 0.95 * large as f64 + 0.7 * small as f64;
    assert_eq!(photos.mean_accuracy, Some(right / (large + small) as f64));
    let csv = &run_scenario(PHOTOS, Some(3)).unwrap().1[1].1;
    assert!(
        csv.ends_with(&format!(",{},large:{large} small:{small}\n", photos.cost)),
        "{csv}"
    );
    assert_eq!(outcome, run(PHOTOS));
    // That policy is the default.
    assert_eq!(outcome, run(&PHOTOS.replace("select = \"pixie\"\n", "")));
}

#[test]
fn who_is_not_as_accurate_as_is_wanted_does_not_serve() {
    let wants = |accuracy: &str| PHOTOS.replace("cost = 4.0", &format!("accuracy = {accuracy}"));
    assert_eq!(served(&run(&wants("0.9"))).1, 0);
    // It is the second of those that the workload names, and the only candidate.
    let (named, turned) = (
        "\"large\"\nothers = [\"small\"]",
        "\"small\"\nothers = [\"large\"]",
    );
    let outcome = run(&wants("0.9").replace(named, turned));
    let [(small, by_small), (_, by_large)] = &outcome.workloads[0].served_by[..] else {
        panic!("{outcome:?}")
    };
    assert_eq!((small.as_str(), *by_small), ("small", 0));
    assert!(*by_large > 1900, "{outcome:?}");
    let nobody = run_scenario(&wants("0.99"), None).unwrap_err().to_string();
    assert!(
        nobody.contains("nobody has an accuracy of at least 0.99: the best of 2 has 0.95"),
        "{nobody}"
    );
}

#[test]
fn who_is_refused_is_not_taken_for_fast() {
    // Nobody answers with the large one as soon as this.
    let text = PHOTOS.replacen("slo = \"1 s\"", "slo = \"50 ms\"", 1);
    let text = text.replace("\"edf-final\"", "\"edf-final\"\nrefuse-late = true");
    let photos = &run(&text).workloads[0];
    assert!(
        photos.refused > 0 && photos.refused * 5 < photos.requests,
        "{photos:?}"
    );
}

#[test]
fn a_policy_of_ones_own_is_asked_by_its_name() {
    let mut asked = Vec::new();
    let ran = run_scenario_with(&by("mine"), &Instead::default(), &mut |named, tasks, slo| {
        let task = &tasks[0];
        let profile = &task.candidates[0].profile;
        assert_eq!((task.name.as_str(), task.candidates.len()), ("photos", 2));
        // As it was measured: log-normal around 80 ms.
        let p95 = profile.p95.as_secs_f64();
        assert!((0.10..0.12).contains(&p95) && profile.cost == 0.01, "{profile:?}");
        asked.push(named.name);
        Ok(Box::new(Fixed::new(tasks, &slo, vec![1]).unwrap()))
    });
    assert_eq!(served(&ran.unwrap()).0, 0);
    assert_eq!(asked, ["mine"]);
}

#[test]
fn a_run_may_go_by_another_policy_than_its_scenario() {
    let by_another = |text: &str, policy: &str| {
        let instead = Instead {
            seed: Some(3),
            select: Some(policy.into()),
        };
        run_scenario_with(text, &instead, &mut |named, _, _| Err(named.to_string()))
    };
    let outcome = by_another(PHOTOS, "greedy-cost").unwrap();
    assert_eq!(outcome, run(&by("greedy-cost")));
    let alone = PHOTOS.replace("others = [\"small\"]\n", "");
    let alone = alone.split("select = ").next().unwrap();
    let error = by_another(alone, "greedy-cost").unwrap_err();
    assert_eq!(error, ScenarioError::NoChoice("greedy-cost".into()));
}

/// Chooses what there is not, or nobody.
struct Wrong(Option<usize>);

impl Selector for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn choose(&mut self, _: &Ask<'_>) -> Result<Decision, NoChoice> {
        let chosen = self.0.ok_or(NoChoice::Task { task: 0, tasks: 0 })?;
        Ok(Decision {
            task: 0,
            chosen,
            runner_up: None,
            reason: Reason::Fixed,
        })
    }

    fn report(&mut self, _: &Served<'_>) -> Result<(), ReportError> {
        Ok(())
    }
}

#[test]
fn a_policy_that_chooses_nobody_ends_the_run() {
    for (chosen, says) in [(Some(2), "candidate 2 of 2"), (None, "there is no task 0")] {
        let ran = run_scenario_with(&by("wrong"), &Instead::default(), &mut |_, _, _| {
            Ok(Box::new(Wrong(chosen)))
        });
        let error = ran.unwrap_err().to_string();
        assert!(
            error.contains("workload photos: `select`: wrong: ") && error.contains(says),
            "{error}"
        );
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let error = |from: &str, to: &str| {
        let text = PHOTOS.replace(from, to);
        Scenario::from_toml(&text).unwrap_err().to_string()
    };
    let alone = "others = [\"small\"]\n";
    let says = error(alone, "");
    assert!(
        says.contains("`select`") && says.contains("no choice to make"),
        "{says}"
    );
    let says = error(alone, "others = [\"tiny\"]\n");
    assert!(says.contains("`others` names `tiny`"), "{says}");
    for twice in ["others = [\"small\", \"small\"]\n", "others = [\"large\"]\n"] {
        let says = error(alone, twice);
        assert!(
            says.contains("`others`") && says.contains("each named once"),
            "{says}"
        );
    }
    let says = error("cost = 4.0", "cost = -1");
    assert!(says.contains("`cost` is -1"), "{says}");
    let unknown = run_scenario(&by("nobody"), None).unwrap_err();
    assert!(matches!(unknown, ScenarioError::Select { .. }), "{unknown}");
    assert!(
        unknown.to_string().contains("there is no policy `nobody`"),
        "{unknown}"
    );
}
