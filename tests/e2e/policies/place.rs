//! Policies that place tasks, brought by plugins, without a node, as studies ask them.

use super::sandbox::{guests, loaded};
use karman_sched::place::{
    Brought, Component, Decision, Fate, Fleet, Input, Job, Mode, Node, Place, Reason, State, Task,
};
use karman_sched::plugin::{Failure, PolicyPlugin};
use karman_types::NodeId;

/// Nodes of two clusters, the later ones faster; the second holds the component.
fn fleet(nodes: usize) -> Fleet {
    let components = vec![Component {
        bytes: 40 << 20,
        fetch: 20 << 20,
        warm: 0.0,
        scale_out: 0.1,
        cold: 2.0,
    }];
    let node = |place: usize| {
        let id = NodeId::of_key(&place.to_le_bytes());
        Node::new(id, place % 2, 1.0 + 0.01 * place as f64, 4e6, 512 << 20, 2)
    };
    let mut nodes: Vec<Node> = (0..nodes).map(node).collect();
    nodes[1].start(&components, 0, 0, 0.0, 1.0);
    Fleet {
        nodes,
        components,
        latency: [0.01, 0.1],
    }
}

/// A job whose first task is done, with so many that are ready and one after them.
fn job(id: u64, ready: usize) -> Job {
    let task = |work, from: &[usize], state| Task {
        component: 0,
        work,
        inputs: from
            .iter()
            .map(|from| Input {
                from: Some(*from),
                bytes: 1 << 20,
            })
            .collect(),
        state,
    };
    let mut tasks = vec![task(1.0, &[], State::Done { node: 0, at: 0.5 })];
    tasks.extend((0..ready).map(|n| task(1.0 + n as f64, &[0], State::Waiting)));
    let all: Vec<usize> = (1..=ready).collect();
    tasks.push(task(1.0, &all, State::Waiting));
    Job {
        id,
        arrived: 0.0,
        deadline: Some(60.0),
        origin: 0,
        tasks,
    }
}

fn min_min() -> (PolicyPlugin, Brought) {
    let plugin = loaded("min-min");
    let policy = plugin.place_policy().unwrap();
    (policy.clone(), Brought::new(policy, guests(&plugin)))
}

#[test]
fn min_min_places_all_that_is_ready_the_first_to_be_done_first() {
    let (plugin, mut policy) = min_min();
    assert_eq!(
        (plugin.to_string().as_str(), policy.name()),
        ("min-min 0.1.0", "min-min")
    );
    let (fleet, jobs) = (fleet(6), [job(3, 2), job(4, 3)]);
    let decisions = policy.place(1.0, &jobs, &fleet);
    assert!(policy.failures().is_empty());
    let said = |decision: &Decision| match &decision.reason {
        Reason::Said(words) => words.clone(),
        other => panic!("{other:?}"),
    };
    let finish: Vec<f64> = decisions
        .iter()
        .map(|decision| decision.chosen.unwrap().finish)
        .collect();
    assert!(finish.len() == 5 && finish.is_sorted(), "{decisions:?}");
    // The plugin and the host come to the same time.
    for (decision, finish) in decisions.iter().zip(finish) {
        let says = format!("in {:.1} s", finish - 1.0);
        assert!(said(decision).ends_with(&says), "{decision:?}");
    }
    let first = decisions[0].chosen.unwrap();
    assert_eq!((first.node, first.mode, decisions[0].task), (1, Mode::Warm, 1));
    // Another instance, of another engine, decides the same.
    assert_eq!(min_min().1.place(1.0, &jobs, &fleet), decisions);
}

#[test]
fn one_that_runs_out_of_fuel_leaves_it_to_the_default() {
    let plugin = loaded("min-min");
    let little = PolicyPlugin {
        fuel: 10_000,
        ..plugin.place_policy().unwrap()
    };
    let mut policy = Brought::new(little, guests(&plugin));
    let (fleet, jobs) = (fleet(300), [job(1, 4)]);
    let by_default = Fate::default().place(1.0, &jobs, &fleet);
    assert!(!by_default.is_empty());
    assert_eq!(policy.place(1.0, &jobs, &fleet), by_default);
    let failures = policy.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].failure, Failure::Fuel { fuel: 10_000 });
    // Nor does one of another world decide.
    let other = loaded("rendezvous");
    let error = other.place_policy().unwrap_err();
    assert!(error.to_string().contains("karman:policy/place"), "{error}");
    let mut policy = Brought::new(other.route_policy().unwrap(), guests(&other));
    assert_eq!(policy.place(1.0, &jobs, &fleet), by_default);
    let failure = policy.failures().remove(0).failure;
    assert!(matches!(failure, Failure::Missing { .. }), "{failure}");
}
