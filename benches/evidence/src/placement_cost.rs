//! What one placement costs, for the study `decision-cost`.
//!
//! - `place_10_tasks_1000_nodes_ms.POLICY`: 99th percentile of the time of one placement of a job of ten tasks on 1,000 nodes, on
//!   one core, every policy with its default search limits; at most 5 ms.
//! - `place_10_tasks_ms.{10,100,10000}.POLICY`: the same on fewer and more nodes (context).
//!
//! The job is a chain of two with eight tasks between them in two rows, and its first task is done, so that each policy has ready
//! tasks and tasks to look ahead at; a policy that places ready tasks only is asked with ten such jobs, one ready task each. Nodes
//! come in clusters of 64, half of their slots are busy, and each holds three of twelve components.

use karman_sched::place::{
    ClusterLess, Component, CriticSettings, EarliestDeadline, Fate, Fleet, Haf, Heft, Host, Input, Job,
    Kubernetes, LeastLoaded, Must, Node, Place, ResidencyFirst, RoundRobin, Service, State, Task, Triage,
};
use karman_study::interval::{Estimate, bootstrap};
use karman_study::pairs::percentile;
use karman_study::report::{Kind, Report, Target};
use karman_types::NodeId;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

const NODES: [usize; 4] = [10, 100, 1_000, 10_000];
const CLUSTER: usize = 64;
const COMPONENTS: usize = 12;

/// The keys that a study registers for its gate.
pub(crate) fn keys() -> Vec<String> {
    let named = policies().into_iter().map(|(name, _)| name).chain(["haf"]);
    named
        .map(|name| format!("place_10_tasks_1000_nodes_ms.{name}"))
        .collect()
}

/// Measures every native policy and puts its rows.
pub(crate) fn rows(report: &mut Report, quick: bool) {
    report.kind(Kind::Measured);
    let repetitions = if quick { 60 } else { 400 };
    for nodes in NODES {
        let states: Vec<Fleet> = (0..8).map(|seed| fleet(nodes, seed)).collect();
        for (name, make) in policies() {
            // What plans a whole job gets one of ten tasks, the others ten of which one task each is ready.
            let jobs = match name {
                "clusterless" => vec![job(0, nodes)],
                // What is late anyway is not what takes its time.
                "triage" => {
                    let in_time = |id| Job {
                        deadline: Some(1e4),
                        ..job(id, nodes)
                    };
                    (0..10).map(in_time).collect()
                }
                _ => (0..10).map(|id| job(id, nodes)).collect(),
            };
            let mut policy = make();
            let times = timed(repetitions, |turn| {
                // A second passes, so that every placement comes with an epoch of the super-master.
                let now = 100.0 + turn as f64;
                let state = &states[turn % states.len()];
                black_box(policy.place(now, black_box(&jobs), state));
                if policy.period().is_some() {
                    black_box(policy.wake(now, black_box(&jobs), state));
                }
            });
            row(report, name, nodes, &times);
        }
        let (hosts, services) = services(nodes);
        let times = timed(repetitions, |turn| {
            let mut haf = Haf::new(CriticSettings::default());
            black_box(haf.look(turn as f64, black_box(&hosts), &services));
        });
        row(report, "haf", nodes, &times);
    }
}

fn row(report: &mut Report, name: &str, nodes: usize, times: &[f64]) {
    let (key, target) = match nodes {
        1_000 => (
            format!("place_10_tasks_1000_nodes_ms.{name}"),
            Target::AtMost(5.0),
        ),
        _ => (format!("place_10_tasks_ms.{nodes}.{name}"), Target::Shown),
    };
    let p99: Estimate = bootstrap(times, |times| percentile(times, 0.99));
    report.estimate(&key, p99, "ms", target);
    report.keep_raw(&key, &times);
}

/// Milliseconds of each repetition, after a few to warm up.
pub(crate) fn timed(repetitions: usize, mut once: impl FnMut(usize)) -> Vec<f64> {
    (0..10).for_each(&mut once);
    let time = |turn| {
        let begin = processor_time();
        once(turn);
        (processor_time() - begin) * 1e3
    };
    (10..10 + repetitions).map(time).collect()
}

/// Seconds that this thread has run.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

type Make = fn() -> Box<dyn Place>;

fn policies() -> Vec<(&'static str, Make)> {
    vec![
        ("clusterless", || Box::new(ClusterLess::default())),
        ("triage", || Box::new(Triage::default())),
        ("fate", || Box::new(Fate::default())),
        ("heft", || Box::new(Heft::default())),
        ("residency-first", || Box::new(ResidencyFirst::default())),
        ("least-loaded", || Box::new(LeastLoaded::default())),
        ("edf", || Box::new(EarliestDeadline::default())),
        ("kubernetes", || Box::new(Kubernetes::default())),
        ("round-robin", || Box::new(RoundRobin::default())),
    ]
}

/// So many nodes.
pub(crate) fn fleet(nodes: usize, seed: u64) -> Fleet {
    let mut random = fastrand::Rng::with_seed(seed);
    let component = |place: usize| Component {
        bytes: 40_000_000 + 10_000_000 * place as u64,
        fetch: 20_000_000,
        warm: 0.0,
        scale_out: 0.01,
        cold: 1.0 + place as f64 / 4.0,
    };
    let components: Vec<Component> = (0..COMPONENTS).map(component).collect();
    let node = |place: usize| {
        let speed = 0.25 + random.f64();
        let id = NodeId::of_key(&place.to_le_bytes());
        let mut node = Node::new(id, place / CLUSTER, speed, 4e6, 512_000_000, 4);
        for slot in 0..3 {
            node.start(&components, random.usize(..COMPONENTS), slot, random.f64(), 0.0);
        }
        for slot in &mut node.slots {
            slot.free_at = if random.bool() {
                0.0
            } else {
                1e3 * (1.0 + random.f64())
            };
        }
        node
    };
    Fleet {
        nodes: (0..nodes).map(node).collect(),
        components,
        latency: [0.002, 0.03],
    }
}

/// One task that is done, two rows of four, and one at the end.
pub(crate) fn job(id: u64, nodes: usize) -> Job {
    let origin = id as usize * 97 % nodes;
    let task = |place: usize| {
        let from = match place {
            0 => vec![],
            1 => vec![0],
            2..=5 => vec![1],
            6..=9 => vec![place - 4],
            _ => vec![6, 7, 8, 9],
        };
        let inputs = from.into_iter().map(|from| Input {
            from: Some(from),
            bytes: 2_000_000,
        });
        Task {
            component: (place + id as usize) % COMPONENTS,
            work: 2.0 + place as f64,
            inputs: inputs.collect(),
            state: match place {
                0 => State::Done {
                    node: origin,
                    at: 1.0,
                },
                _ => State::Waiting,
            },
        }
    };
    Job {
        id,
        arrived: 1.0,
        // Too strict for anybody: ClusterLess tries every mode.
        deadline: Some(101.0),
        origin,
        tasks: (0..11).map(task).collect(),
    }
}

/// Ten services that do not fit on the first of the hosts.
fn services(nodes: usize) -> (Vec<Host>, Vec<Service>) {
    let host = |place: usize| Host {
        capacity: 10.0 + (place % 7) as f64,
        rate: 1e6,
        musts: vec![Must {
            work: 0.1,
            within: 0.1,
        }],
    };
    let service = |_| Service {
        host: 0,
        demand: 2.0,
        work: 1.0,
        within: 0.5,
        state: 1_000_000,
        startup: 1.0,
    };
    ((0..nodes).map(host).collect(), (0..10).map(service).collect())
}
