//! What must hold of every policy that places tasks.

#![allow(clippy::type_complexity, reason = "what proptest draws is a tuple of tuples")]

use karman_sched::place::{
    Binding, Candidate, ClusterLess, ClusterLessSettings, Component, Decision, EarliestDeadline, Fate,
    FateSettings, Fleet, Heft, Input, Job, Kubernetes, LeastLoaded, Node, Offload, Order, Place, Reason,
    ResidencyFirst, RoundRobin, State, Task, Triage, Window,
};
use karman_types::NodeId;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn policies() -> Vec<Box<dyn Place>> {
    let clusterless = |offload| {
        ClusterLess::new(ClusterLessSettings {
            offload,
            ..ClusterLessSettings::default()
        })
    };
    vec![
        Box::new(Heft::default()),
        Box::new(Heft::new(Order::ShortestJob, Binding::Start)),
        Box::new(ResidencyFirst::default()),
        Box::new(LeastLoaded::default()),
        Box::new(EarliestDeadline::default()),
        Box::new(Kubernetes::default()),
        Box::new(RoundRobin::default()),
        Box::new(Fate::default()),
        Box::new(Triage::default()),
        Box::new(clusterless(Offload::Best)),
        Box::new(clusterless(Offload::Never)),
        Box::new(clusterless(Offload::RoundRobin)),
        Box::new(clusterless(Offload::Fixed { seed: 3 })),
    ]
}

fn fleet() -> impl Strategy<Value = Fleet> {
    let node = (
        0usize..3,
        1u32..4,
        1usize..4,
        0u64..200,
        0.0..30.0f64,
        0usize..4,
        any::<bool>(),
    );
    let component = (1u64..100, 0.0..2.0f64, 0.0..9.0f64);
    let nodes = proptest::collection::vec(node, 1..8);
    (nodes, proptest::collection::vec(component, 3..=3)).prop_map(|(nodes, components)| {
        let components: Vec<Component> = components
            .into_iter()
            .map(|(bytes, scale_out, cold)| Component {
                bytes,
                fetch: bytes,
                warm: 0.0,
                scale_out,
                cold: scale_out + cold,
            })
            .collect();
        let node = |(place, (cluster, speed, slots, memory, until, held, rare)): (
            usize,
            (usize, u32, usize, u64, f64, usize, bool),
        )| {
            let id = NodeId::of_key(&[place as u8]);
            let mut node = Node::new(id, cluster, f64::from(speed) / 2.0, 20.0, memory, slots);
            if held < 3 && components[held].bytes <= memory {
                node.start(&components, held, 0, 0.0, until);
            }
            if rare {
                node.windows = vec![
                    Window {
                        from: 12.0,
                        until: 60.0,
                    },
                    Window {
                        from: 90.0,
                        until: 400.0,
                    },
                ];
            }
            node
        };
        Fleet {
            nodes: nodes.into_iter().enumerate().map(node).collect(),
            components: components.clone(),
            latency: [0.01, 0.1],
        }
    })
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let task = (
        0usize..3,
        0.0..20.0f64,
        proptest::collection::vec(0usize..6, 0..3),
        0u64..50,
    );
    let job = (proptest::collection::vec(task, 1..6), 0.0..10.0f64, 5.0..90.0f64);
    proptest::collection::vec(job, 1..4).prop_map(|jobs| {
        let job =
            |(id, (tasks, arrived, deadline)): (usize, (Vec<(usize, f64, Vec<usize>, u64)>, f64, f64))| {
                let task =
                    |(place, (component, work, from, bytes)): (usize, (usize, f64, Vec<usize>, u64))| {
                        let from: BTreeSet<usize> = from.into_iter().filter(|from| *from < place).collect();
                        let mut inputs: Vec<Input> = from
                            .into_iter()
                            .map(|from| Input {
                                from: Some(from),
                                bytes,
                            })
                            .collect();
                        if inputs.is_empty() {
                            inputs.push(Input { from: None, bytes });
                        }
                        Task {
                            component,
                            work,
                            inputs,
                            state: State::Waiting,
                        }
                    };
                Job {
                    id: id as u64,
                    arrived,
                    deadline: Some(arrived + deadline),
                    origin: 0,
                    tasks: tasks.into_iter().enumerate().map(task).collect(),
                }
            };
        jobs.into_iter().enumerate().map(job).collect()
    })
}

fn is_possible(fleet: &Fleet, job: &Job, decision: &Decision, chosen: &Candidate, now: f64) -> bool {
    let component = job.tasks[decision.task].component;
    let fits = fleet.components[component].bytes <= fleet.nodes[chosen.node].memory;
    let held = fleet.nodes[chosen.node].holds(component);
    (fits || held) && chosen.begin >= now && chosen.finish >= chosen.begin && chosen.finish.is_finite()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Every task is named at most once, only what has not begun, and only where it can run; the same question gets the same
    /// answer.
    #[test]
    fn decisions_can_be_carried_out(fleet in fleet(), jobs in jobs()) {
        let now = 10.0;
        prop_assert_eq!(fleet.check(), Ok(()));
        for job in &jobs {
            prop_assert_eq!(job.check(fleet.nodes.len(), fleet.components.len()), Ok(()));
        }
        for (mut policy, mut again) in policies().into_iter().zip(policies()) {
            let decisions = policy.place(now, &jobs, &fleet);
            let mut named = BTreeSet::new();
            for decision in &decisions {
                let job = &jobs[decision.job as usize];
                prop_assert!(named.insert((decision.job, decision.task)), "{}: {:?}", policy.name(), decision);
                prop_assert!(!job.tasks[decision.task].state.has_begun());
                if let Some(chosen) = &decision.chosen {
                    prop_assert!(is_possible(&fleet, job, decision, chosen, now), "{}: {:?}", policy.name(), decision);
                    prop_assert!(decision.runner_up.is_none_or(|other| other.node != chosen.node));
                } else {
                    let why = matches!(decision.reason, Reason::Waits { .. } | Reason::NoRoom | Reason::AsksElsewhere | Reason::NoneInTime | Reason::SetAside | Reason::Lost);
                    prop_assert!(why, "{}: {:?}", policy.name(), decision);
                }
            }
            prop_assert_eq!(decisions, again.place(now, &jobs, &fleet));
        }
    }

    /// A lone task goes where no other node would be done earlier, by HEFT, by ClusterLess, and by FATE that does not look ahead.
    #[test]
    fn a_lone_task_goes_where_it_is_done_first(mut fleet in fleet(), jobs in jobs()) {
        // A deadline that only the earliest way may meet.
        let job = Job { tasks: vec![jobs[0].tasks[0].clone()], deadline: Some(0.0), ..jobs[0].clone() };
        for node in &mut fleet.nodes {
            node.cluster = 0;
        }
        let blind = FateSettings { weight: 0.0, ..FateSettings::default() };
        let first = |policy: &mut dyn Place| -> Option<f64> {
            let decisions = policy.place(10.0, std::slice::from_ref(&job), &fleet);
            decisions.first()?.chosen.map(|chosen| chosen.finish)
        };
        // By hand: each node alone.
        let alone = (0..fleet.nodes.len()).filter_map(|node| {
            let mut single = fleet.clone();
            let unreachable = vec![Window { from: 1e9, until: 2e9 }];
            for (place, other) in single.nodes.iter_mut().enumerate() {
                if place != node {
                    other.windows.clone_from(&unreachable);
                    other.memory = 0;
                    other.resident.clear();
                    other.slots.iter_mut().for_each(|slot| slot.warm = None);
                }
            }
            // The origin has to be heard, too.
            single.nodes[0].windows.clone_from(&fleet.nodes[0].windows);
            Heft::default().place(10.0, std::slice::from_ref(&job), &single)[0].chosen.map(|chosen| chosen.finish)
        });
        let best = alone.min_by(f64::total_cmp);
        prop_assert_eq!(first(&mut Heft::default()), best);
        // FATE holds a task back while every node that it could want is busy.
        match first(&mut Fate::new(blind)) {
            None => prop_assert!(best.is_none_or(|best| best > 10.0)),
            chosen => prop_assert_eq!(chosen, best),
        }
        // There is one cluster: nowhere to ask.
        let settings = ClusterLessSettings { offload: Offload::Never, ..ClusterLessSettings::default() };
        prop_assert_eq!(first(&mut ClusterLess::new(settings)), best);
    }

    /// The search of FATE is never worse than the greedy assignment that it begins with.
    #[test]
    fn more_looks_are_never_worse(fleet in fleet(), jobs in jobs()) {
        let total = |looks: usize| {
            let settings = FateSettings { looks, weight: 0.0, order: Order::Arrival, ..FateSettings::default() };
            let decisions = Fate::new(settings).place(0.0, &jobs, &fleet);
            let ends = decisions.iter().map(|decision| match (&decision.chosen, &decision.reason) {
                (Some(chosen), _) => Some(chosen.score),
                _ => None,
            });
            ends.sum::<Option<f64>>()
        };
        if let (Some(greedy), Some(searched)) = (total(0), total(10_000)) {
            prop_assert!(searched <= greedy + 1e-9, "{searched} > {greedy}");
        }
    }
}

/// A node that holds the next task's component is worth a detour that looks bad now.
#[test]
fn fate_looks_at_what_comes_after() {
    let component = |cold| Component {
        bytes: 50,
        fetch: 0,
        warm: 0.0,
        scale_out: 0.0,
        cold,
    };
    let node = |n: u8| Node::new(NodeId::of_key(&[n]), 0, 1.0, 1.0, 60, 1);
    let mut fleet = Fleet {
        nodes: vec![node(0), node(1)],
        components: vec![component(1.0), component(20.0)],
        latency: [0.0; 2],
    };
    // The input lies at node 0; node 1 holds what the second task runs, and there is no room for both components.
    fleet.nodes[1].start(&fleet.components, 1, 0, 0.0, 0.0);
    let task = |component, from: Option<usize>, bytes| Task {
        component,
        work: 1.0,
        inputs: vec![Input { from, bytes }],
        state: State::Waiting,
    };
    let job = Job {
        id: 0,
        arrived: 0.0,
        deadline: None,
        origin: 1,
        tasks: vec![task(0, None, 1), task(1, Some(0), 1)],
    };
    let chosen = |policy: &mut dyn Place| {
        policy.place(1.0, std::slice::from_ref(&job), &fleet)[0]
            .chosen
            .map(|chosen| chosen.node)
    };
    // Where the input lies it is done first, but the other component would have to give way.
    assert_eq!(chosen(&mut Heft::default()), Some(1));
    assert_eq!(chosen(&mut Fate::default()), Some(0));
}

/// ClusterLess lets a function start dearer only as far as the deadline asks for it.
#[test]
fn clusterless_pays_for_deadlines_only() {
    let component = Component {
        bytes: 1,
        fetch: 0,
        warm: 0.0,
        scale_out: 2.0,
        cold: 9.0,
    };
    let node = |n: u8, cluster| Node::new(NodeId::of_key(&[n]), cluster, 1.0, 100.0, 10, 2);
    let mut fleet = Fleet {
        nodes: vec![node(0, 0), node(1, 1)],
        components: vec![component],
        latency: [0.0; 2],
    };
    // A warm instance at home is busy until 10; the other cluster has one that is free.
    fleet.nodes[0].start(&fleet.components, 0, 0, 0.0, 10.0);
    fleet.nodes[1].start(&fleet.components, 0, 0, 0.0, 0.0);
    let job = |deadline| Job {
        id: 0,
        arrived: 1.0,
        deadline: Some(deadline),
        origin: 0,
        tasks: vec![Task {
            component: 0,
            work: 5.0,
            inputs: vec![Input {
                from: None,
                bytes: 100,
            }],
            state: State::Waiting,
        }],
    };
    let place = |deadline| {
        // A super-master is there once it was woken; what asks for another cluster is told in the next epoch.
        let (mut policy, jobs) = (ClusterLess::default(), [job(deadline)]);
        policy.wake(1.0, &[], &fleet);
        let decision = policy.place(1.0, &jobs, &fleet).remove(0);
        match decision.reason {
            Reason::AsksElsewhere => policy.wake(1.0, &jobs, &fleet).remove(0),
            _ => decision,
        }
    };
    let home = |decision: &Decision| decision.chosen.map(|chosen| (chosen.node, chosen.finish));
    let lenient = place(20.0);
    assert_eq!(home(&lenient), Some((0, 15.0)));
    assert_eq!(lenient.reason, Reason::InTime { slack: 5.0 });
    assert_eq!(home(&place(9.0)), Some((0, 8.0)));
    // One second of transfer, but no start.
    let strict = place(7.5);
    assert_eq!(home(&strict), Some((1, 7.0)));
    assert!(
        matches!(strict.reason, Reason::Offloaded { cluster: 1, .. }),
        "{:?}",
        strict.reason
    );
    assert!(matches!(place(6.5).reason, Reason::Late { .. }));
}

/// A task goes to a busy node when its input takes about as long to come as the node is busy, and not long before.
#[test]
fn fate_sends_a_task_just_in_time_for_its_input() {
    let component = Component {
        bytes: 50,
        fetch: 0,
        warm: 0.0,
        scale_out: 0.0,
        cold: 0.0,
    };
    let node = |n: u8, speed: f64| Node::new(NodeId::of_key(&[n]), 0, speed, 1.0, 60, 1);
    let mut fleet = Fleet {
        nodes: vec![node(0, 0.001), node(1, 1.0)],
        components: vec![component],
        latency: [0.0; 2],
    };
    let job = Job {
        id: 0,
        arrived: 0.0,
        deadline: None,
        origin: 0,
        tasks: vec![Task {
            component: 0,
            work: 5.0,
            inputs: vec![Input {
                from: None,
                bytes: 10,
            }],
            state: State::Waiting,
        }],
    };
    let mut placed = |lead: f64, busy_until: f64| {
        fleet.nodes[1].start(&fleet.components, 0, 0, 0.0, busy_until);
        let settings = FateSettings {
            lead,
            ..FateSettings::default()
        };
        let decision = Fate::new(settings)
            .place(0.0, std::slice::from_ref(&job), &fleet)
            .remove(0);
        match (decision.chosen, decision.reason) {
            (Some(chosen), _) => (chosen.node, true),
            (None, Reason::Waits { node, .. }) => (node, false),
            (None, reason) => panic!("{reason:?}"),
        }
    };
    // Ten seconds at a byte a second.
    assert_eq!(placed(2.0, 19.0), (1, true));
    assert_eq!(placed(2.0, 21.0), (1, false));
    assert_eq!(placed(0.0, 1.0), (1, false));
    assert_eq!(placed(0.0, 0.0), (1, true));
}
