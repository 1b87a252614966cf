use super::*;
use karman_sched::place::{Component, Heft, Input, Node, RoundRobin, Task};
use karman_types::NodeId;

fn trace(arrivals: &[f64]) -> Trace {
    let node = |n: u8| Node::new(NodeId::of_key(&[n]), 0, 1.0, 10.0, 100, 1);
    let component = Component {
        bytes: 60,
        fetch: 10,
        warm: 0.0,
        scale_out: 1.0,
        cold: 4.0,
    };
    let task = |component, from: Option<usize>| Task {
        component,
        work: 10.0,
        inputs: vec![Input { from, bytes: 20 }],
        state: State::Waiting,
    };
    let job = |(id, arrived): (usize, &f64)| Job {
        id: id as u64,
        arrived: *arrived,
        deadline: Some(arrived + 40.0),
        origin: 0,
        tasks: vec![task(0, None), task(1, Some(0))],
    };
    Trace {
        fleet: Fleet {
            nodes: vec![node(0), node(1)],
            components: vec![component.clone(), component],
            latency: [0.0; 2],
        },
        jobs: arrivals.iter().enumerate().map(job).collect(),
        factors: vec![vec![1.0; 2]; arrivals.len()],
        rates: Vec::new(),
        end: 1_000.0,
    }
}

#[test]
fn times_add_up() {
    let result = run(&trace(&[5.0]), Box::new(Heft::default()), Scope::All);
    // 5 s load and 10 s work at node 0; then the same there, or 2 s transfer and the same elsewhere.
    assert_eq!(result.outcomes[0].finished, Some(35.0));
    assert_eq!((result.modes, result.busy), ([0, 0, 2], 30.0));
    // In turn, the second task pays the transfer.
    let result = run(&trace(&[5.0]), Box::new(RoundRobin::default()), Scope::All);
    assert_eq!(result.outcomes[0].finished, Some(37.0));
}

#[test]
fn every_job_ends_once() {
    let arrivals: Vec<f64> = (0..40).map(|n| f64::from(n) * 7.0).collect();
    for policy in [
        Box::new(Heft::default()) as Box<dyn Place>,
        Box::new(RoundRobin::default()),
    ] {
        let result = run(&trace(&arrivals), policy, Scope::All);
        assert!(result.outcomes.iter().all(|outcome| outcome.finished.is_some()));
        assert_eq!(result.modes.iter().sum::<u64>(), 80);
        assert!(
            result.outcomes.iter().any(Outcome::in_time) && !result.outcomes.iter().all(Outcome::in_time)
        );
    }
}
