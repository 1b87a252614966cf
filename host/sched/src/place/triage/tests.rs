use super::*;
use crate::place::{Component, Input, Task};
use karman_types::NodeId;

/// Nodes of one cluster: speed, slots, how many of them are held until then.
fn fleet(nodes: &[(f64, usize, usize, f64)]) -> Fleet {
    let component = Component {
        bytes: 1,
        fetch: 0,
        warm: 0.0,
        scale_out: 0.0,
        cold: 0.0,
    };
    let node = |(place, &(speed, slots, held, until)): (usize, &(f64, usize, usize, f64))| {
        let id = NodeId::of_key(&[place as u8]);
        let mut node = Node::new(id, 0, speed, 100.0, 10, slots);
        node.slots[..held]
            .iter_mut()
            .for_each(|slot| slot.free_at = until);
        node
    };
    Fleet {
        nodes: nodes.iter().enumerate().map(node).collect(),
        components: vec![component],
        latency: [0.0; 2],
    }
}

/// A job of tasks one after the other.
fn job(id: u64, works: &[f64], deadline: f64) -> Job {
    let task = |(place, &work): (usize, &f64)| Task {
        component: 0,
        work,
        inputs: vec![Input {
            from: place.checked_sub(1),
            bytes: 0,
        }],
        state: State::Waiting,
    };
    Job {
        id,
        arrived: 0.0,
        deadline: Some(deadline),
        origin: 0,
        tasks: works.iter().enumerate().map(task).collect(),
    }
}

fn one(decisions: &[Decision], job: u64) -> (Option<usize>, Reason) {
    let of = |decision: &&Decision| decision.job == job;
    let decision = decisions.iter().find(of).unwrap();
    (decision.chosen.map(|chosen| chosen.node), decision.reason.clone())
}

fn place(fleet: &Fleet, jobs: &[Job]) -> Vec<Decision> {
    Triage::default().place(0.0, jobs, fleet)
}

#[test]
fn in_a_busy_fleet_who_has_time_leaves_the_fast_node() {
    let idle = fleet(&[(1.0, 10, 0, 0.0), (0.5, 10, 0, 0.0)]);
    let busy = fleet(&[(1.0, 10, 9, 99.0), (0.5, 10, 9, 99.0)]);
    let lenient = [job(0, &[10.0], 60.0)];
    let slack = |slack| Reason::InTime { slack };
    assert_eq!(one(&place(&idle, &lenient), 0), (Some(0), slack(50.0)));
    assert_eq!(one(&place(&busy, &lenient), 0), (Some(1), slack(40.0)));
    // Twenty seconds would be in time, but not with care.
    let strict = [job(0, &[10.0], 21.0)];
    assert_eq!(one(&place(&busy, &strict), 0), (Some(0), slack(11.0)));
    // Nor does the first task take all the time of the second.
    let two = [job(0, &[10.0, 10.0], 42.0)];
    assert_eq!(one(&place(&busy, &two), 0), (Some(0), slack(22.0)));
}

#[test]
fn a_task_does_not_wait_at_a_busy_node() {
    let jobs = [job(0, &[10.0], 60.0)];
    let fleet = fleet(&[(1.0, 1, 1, 5.0)]);
    assert_eq!(one(&place(&fleet, &jobs), 0), (None, Reason::NoneInTime));
    let mut later = Triage::default();
    assert_eq!(one(&later.wake(5.0, &jobs, &fleet), 0).0, Some(0));
}

#[test]
fn the_earliest_deadline_has_the_first_choice() {
    let jobs = [job(0, &[10.0], 60.0), job(1, &[10.0], 30.0)];
    let decisions = place(&fleet(&[(1.0, 1, 0, 0.0)]), &jobs);
    assert_eq!(one(&decisions, 1).0, Some(0));
    assert_eq!(one(&decisions, 0), (None, Reason::NoneInTime));
}

#[test]
fn of_those_that_do_not_fit_the_largest_are_set_aside() {
    // Until they must have begun, 0.45 x 2 x 60 = 54 s of work are counted on.
    let settings = TriageSettings {
        capacity: 0.45,
        ..TriageSettings::default()
    };
    let jobs = [
        job(0, &[40.0], 100.0),
        job(1, &[20.0], 80.0),
        job(2, &[30.0], 90.0),
    ];
    let fleet = fleet(&[(1.0, 2, 2, 1.0)]);
    let draft = Draft::new(&fleet, &jobs, 0.0);
    assert_eq!(set_aside(&draft, &settings), BTreeSet::from([0]));
    let mut policy = Triage::new(settings);
    let decisions = policy.wake(0.0, &jobs, &fleet);
    assert_eq!(one(&decisions, 0), (None, Reason::SetAside));
    // While there is room, it has a node all the same; but after the others.
    let decisions = policy.place(1.0, &jobs, &fleet);
    assert_eq!(one(&decisions, 0), (None, Reason::SetAside));
    assert_eq!(one(&policy.place(1.0, &jobs[..1], &fleet), 0).0, Some(0));
}

#[test]
fn a_job_that_is_set_aside_leaves_a_tenth_of_the_nodes_free() {
    let jobs = [job(0, &[40.0], 50.0)];
    let wake = |held| Triage::default().wake(0.0, &jobs, &fleet(&[(1.0, 10, held, 99.0)]));
    assert_eq!(one(&wake(9), 0), (None, Reason::SetAside));
    assert_eq!(one(&wake(8), 0).0, Some(0));
}

#[test]
fn no_slot_is_held_for_an_input_where_another_is_free_just_in_time() {
    let mut far = job(0, &[10.0], 60.0);
    far.origin = 2;
    far.tasks[0].inputs[0].bytes = 500;
    let fleet = fleet(&[(1.0, 1, 0, 0.0), (1.0, 1, 1, 5.0), (1.0, 1, 1, 99.0)]);
    assert_eq!(one(&place(&fleet, &[far]), 0).0, Some(1));
}

#[test]
fn a_job_that_is_lost_takes_nothing_that_others_could_use() {
    let jobs = [job(0, &[10.0], 9.0)];
    let slowest = fleet(&[(1.0, 2, 0, 0.0), (0.5, 2, 0, 0.0), (0.2, 2, 1, 9.0)]);
    assert_eq!(one(&place(&slowest, &jobs), 0), (Some(1), Reason::Lost));
    let none = fleet(&[(1.0, 2, 1, 9.0)]);
    assert_eq!(one(&place(&none, &jobs), 0), (None, Reason::Lost));
}

#[test]
fn jobs_without_a_deadline_are_placed_and_never_set_aside() {
    let mut endless = job(0, &[1e9], 0.0);
    endless.deadline = None;
    let fleet = fleet(&[(1.0, 1, 0, 0.0)]);
    let mut policy = Triage::default();
    let decisions = policy.wake(0.0, &[endless], &fleet);
    assert_eq!(one(&decisions, 0).0, Some(0));
}

#[test]
fn another_cluster_is_dearer() {
    let mut two = fleet(&[(1.0, 1, 0, 0.0), (0.5, 1, 0, 0.0), (1.0, 1, 0, 0.0)]);
    two.nodes[0].cluster = 1;
    let jobs = [Job {
        origin: 1,
        ..job(0, &[10.0], 60.0)
    }];
    assert_eq!(one(&place(&two, &jobs), 0).0, Some(2));
    two.nodes[2].slots[0].free_at = 99.0;
    assert_eq!(one(&place(&two, &jobs), 0).0, Some(1));
    // It is taken where none at home is free.
    two.nodes[1].slots[0].free_at = 99.0;
    assert_eq!(one(&place(&two, &jobs), 0).0, Some(0));
}
