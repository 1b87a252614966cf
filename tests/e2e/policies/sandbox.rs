//! Policies without a node: every way to fail, what they may use, and that the same questions get the same answers.

use crate::support::guest;
use karman_engine::policy::{DEFAULT_FUEL, MOST_FUEL, Policies};
use karman_engine::{CompileCache, Engine, EngineOptions, LoadError, Plugin};
use karman_package::{Package, ReadLimits};
use karman_sched::log::{Entry, Logged, Policy, What, replay_with};
use karman_sched::plugin::{During, Failure, Guests, PolicyPlugin};
use karman_sched::select::{Ask, Asked, Brought, Call, Decision, Heard, Reason, Selector, Task};
use karman_types::{Binding, ByteSize, GrantSet, Implementation, Limits, Manifest, Profile, Slo, TaskId};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn loaded(name: &str) -> Arc<Plugin> {
    loaded_with(name, None)
}

/// The same by an engine of its own; Python takes long to compile, and may have it from the cache.
fn loaded_with(name: &str, cache: Option<&CompileCache>) -> Arc<Plugin> {
    let options = EngineOptions {
        cache: cache.cloned(),
        ..EngineOptions::default()
    };
    let engine = Engine::new(options).unwrap();
    let file = std::fs::read(guest(name)).unwrap();
    let foreign = |world| Manifest::foreign(name, world);
    engine.load(&file, &GrantSet::default(), foreign).unwrap()
}

/// The file of a policy with other limits.
pub(super) fn limited(name: &str, limits: impl FnOnce(&mut Limits)) -> Vec<u8> {
    let file = std::fs::read(guest(name)).unwrap();
    let package = Package::read(&file, &ReadLimits::default()).unwrap();
    let mut manifest = package.manifest.unwrap();
    limits(&mut manifest.limits);
    karman_package::embed(&file, &manifest).unwrap()
}

pub(super) fn guests(plugin: &Arc<Plugin>) -> Arc<dyn Guests> {
    Arc::new([plugin.clone()].into_iter().collect::<Policies>())
}

/// A task of this name with three candidates, each better, slower and dearer than the one before.
fn tasks(name: &str) -> Vec<Task> {
    let candidate = |n: u64| Implementation {
        name: format!("model-{n}"),
        binding: Binding::Model(format!("model-{n}")),
        profile: Profile {
            accuracy: Some(0.7 + 0.1 * n as f64),
            mean: Duration::from_millis(20 << n),
            p50: Duration::from_millis(20 << n),
            p95: Duration::from_millis(40 << n),
            p99: Duration::from_millis(60 << n),
            cost: 0.1 * n as f64 * n as f64,
            energy: None,
            samples: 200,
        },
    };
    vec![Task {
        name: name.into(),
        visits: 1.0,
        within: 1.0,
        candidates: (0..3).map(candidate).collect(),
    }]
}

fn slo() -> Slo {
    Slo {
        cost: Some(60.0),
        latency_p95: Some(Duration::from_millis(150)),
        ..Slo::over(500)
    }
}

fn brought(plugin: &Arc<Plugin>, task: &str) -> Brought {
    let policy = plugin.select_policy().unwrap();
    Brought::new(policy, guests(plugin), tasks(task), slo()).unwrap()
}

/// Lets a policy decide for so many requests, whose latencies and answers follow a fixed pattern.
fn recorded(plugin: &Arc<Plugin>, requests: u64) -> (Vec<Decision>, Vec<Entry>) {
    let policy = Policy::Brought(Box::new(brought(plugin, "answer")));
    let mut policy = Logged::new("answers", policy, tasks("answer"), 1);
    let (mut decisions, mut log) = (Vec::new(), Vec::new());
    for n in 0..requests {
        let asked = Asked {
            now: Duration::from_millis(n * 50),
            unreachable: if n % 40 > 30 { vec![2] } else { Vec::new() },
            ..Asked::default()
        };
        let request = TaskId::from_parts(n, 0);
        let (decision, entries) = policy.choose(n, request, asked).unwrap();
        log.extend(entries);
        let latency = Duration::from_millis((20 << decision.chosen) + (n * 37) % 90);
        let call = Call {
            task: 0,
            candidate: decision.chosen,
            latency,
            cost: tasks("answer")[0].candidates[decision.chosen].profile.cost,
            energy: None,
            right: Some(n % 10 < 8),
        };
        let heard = Heard {
            now: Duration::from_millis(n * 50 + 20),
            queue: 0,
            latency,
            calls: vec![call],
        };
        log.extend(policy.report(n, request, heard).unwrap());
        decisions.push(decision);
    }
    (decisions, log)
}

#[test]
fn a_policy_is_a_plugin_with_limits() {
    let plugin = loaded("prices");
    let policy = plugin.select_policy().unwrap();
    assert_eq!(
        (policy.to_string().as_str(), policy.fuel),
        ("prices 0.1.0", 20_000_000)
    );
    assert!(policy.fuel < DEFAULT_FUEL);
    let error = loaded("tiny").select_policy().unwrap_err();
    assert!(error.to_string().contains("karman:policy/select"), "{error}");
}

#[test]
fn fuel_has_a_ceiling() {
    let engine = Engine::new(EngineOptions::default()).unwrap();
    let load = |fuel| {
        let file = limited("bad-policy", |limits| limits.fuel = Some(fuel));
        let foreign = |world| Manifest::foreign("bad-policy", world);
        engine.load(&file, &GrantSet::default(), foreign)
    };
    assert_eq!(load(MOST_FUEL).unwrap().select_policy().unwrap().fuel, MOST_FUEL);
    let refused = load(MOST_FUEL + 1).unwrap_err();
    assert!(
        matches!(&refused, LoadError::OverLimit { limit: "fuel", asked, .. } if asked == "10000000001"),
        "{refused}"
    );
}

#[test]
fn a_log_gives_its_policies_no_more_than_they_may_have_here() {
    let plugin = loaded("bad-policy");
    let own = plugin.select_policy().unwrap();
    for (policy, names) in [
        (
            PolicyPlugin {
                fuel: MOST_FUEL + 1,
                ..own.clone()
            },
            "fuel",
        ),
        (
            PolicyPlugin {
                memory: ByteSize::gib(2),
                ..own
            },
            "memory",
        ),
    ] {
        let started = guests(&plugin).start(&policy, &tasks("answer"), &slo(), None);
        let refused = started.err();
        assert!(
            matches!(&refused, Some(Failure::OverLimit { limit, .. }) if limit == names),
            "{refused:?}"
        );
    }
}

#[test]
fn each_way_to_fail_has_its_name() {
    let plugin = loaded("bad-policy");
    let forbidden = |failure: &Failure, of: &str| matches!(failure, Failure::Forbidden { import } if import.starts_with(of));
    for (task, is) in [
        (
            "traps",
            &(|failure: &Failure| matches!(failure, Failure::Trapped { .. })) as &dyn Fn(&Failure) -> bool,
        ),
        (
            "panics",
            &|failure| matches!(failure, Failure::Trapped { trap } if trap.contains("nobody knows")),
        ),
        ("spins", &|failure| {
            matches!(failure, Failure::Fuel { fuel: 3_000_000 })
        }),
        ("copies", &|failure| matches!(failure, Failure::Fuel { .. })),
        ("floods", &|failure| matches!(failure, Failure::Fuel { .. })),
        ("eats", &|failure| matches!(failure, Failure::Memory { .. })),
        ("asks-the-time", &|failure| {
            forbidden(failure, "wasi:clocks/monotonic-clock")
        }),
        ("draws", &|failure| forbidden(failure, "wasi:random/")),
        ("reads", &|failure| forbidden(failure, "wasi:filesystem/")),
        ("invents", &|failure| {
            matches!(failure, Failure::Answer { candidate: 99, .. })
        }),
        (
            "refuses",
            &|failure| matches!(failure, Failure::Refused { why } if why == "it is not for me to say"),
        ),
        ("never-begins", &|failure| {
            matches!(failure, Failure::Refused { .. })
        }),
        ("talks", &|failure| matches!(failure, Failure::Unreadable { .. })),
    ] {
        let mut policy = brought(&plugin, task);
        let decision = policy.choose(&Ask::default()).unwrap();
        assert!(
            !matches!(decision.reason, Reason::Said(_)),
            "{task}: {decision:?}"
        );
        let failures = policy.failures();
        assert!(
            failures.len() == 1 && is(&failures[0].failure) && failures[0].during == During::Choose,
            "{task}: {failures:?}"
        );
    }
}

#[test]
fn one_that_fails_when_it_is_told_still_decides() {
    let plugin = loaded("bad-policy");
    let mut policy = brought(&plugin, "traps-when-told");
    for _ in 0..3 {
        let decision = policy.choose(&Ask::default()).unwrap();
        assert!(matches!(decision.reason, Reason::Said(_)), "{decision:?}");
        policy
            .report(&karman_sched::select::Served {
                now: Duration::ZERO,
                queue: 0,
                latency: Duration::ZERO,
                calls: &[],
            })
            .unwrap();
        let failures = policy.failures();
        let [failed] = &failures[..] else {
            panic!("{failures:?}")
        };
        assert_eq!(failed.during, During::Report);
        assert!(matches!(failed.failure, Failure::Trapped { .. }), "{failed:?}");
    }
}

#[test]
fn what_policies_decided_is_decided_again_by_other_instances() {
    let folder = tempfile::tempdir().unwrap();
    let kept = CompileCache::open(folder.path(), [7; 32]).unwrap();
    for (name, requests, cache) in [
        ("prices", 650, None),
        ("throttle", 250, Some(&kept)),
        ("bad-policy", 450, None),
    ] {
        let plugin = loaded_with(name, cache);
        let (decisions, log) = recorded(&plugin, requests);
        let said = |decision: &&Decision| matches!(decision.reason, Reason::Said(_));
        assert_eq!(decisions.iter().filter(said).count() as u64, requests, "{name}");
        let other = loaded_with(name, cache);
        let replayed = replay_with(&log, &guests(&other));
        assert!(replayed.holds(), "{name}: {:?}", replayed.different.first());
        assert_eq!(replayed.same as u64, requests);
        // From the middle, too.
        let rest = replay_with(&log[150..], &guests(&other));
        assert!(rest.holds() && rest.same > 0 && rest.without_checkpoint > 0);
    }
}

#[test]
fn a_log_that_was_tampered_with_is_found_out() {
    let plugin = loaded("prices");
    let (_, mut log) = recorded(&plugin, 250);
    let state = log.iter_mut().filter_map(|entry| match &mut entry.what {
        What::Checkpoint(checkpoint) => Some(&mut checkpoint.state),
        _ => None,
    });
    // The second checkpoint is given the first one's state: as if nothing had been spent.
    let mut states: Vec<&mut Policy> = state.collect();
    let first = states[0].clone();
    *states[1] = first;
    assert!(!replay_with(&log, &guests(&plugin)).holds());
}
