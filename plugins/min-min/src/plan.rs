//! Which task goes next, and where.

use crate::estimate::{Way, earliest};
use crate::exports::karman::policy::placer::{Fleet, Job, Placement, Resident, State};

/// Where the tasks go that are ready, in the order in which they take the slots.
pub(crate) fn plan(now: f64, jobs: &[Job], mut fleet: Fleet) -> Vec<Placement> {
    let mut waiting: Vec<(&Job, usize)> = jobs.iter().flat_map(ready).collect();
    let mut placements = Vec::new();
    loop {
        let ways = waiting.iter().enumerate();
        let ways = ways.filter_map(|(place, task)| Some((place, earliest(now, *task, &fleet)?)));
        let first = ways.min_by(|(_, one), (_, other)| one.finish.total_cmp(&other.finish));
        let Some((place, way)) = first else {
            return placements;
        };
        let (job, task) = waiting.remove(place);
        placements.push(Placement {
            job: job.id,
            task: task as u32,
            node: way.node as u32,
            because: format!(
                "of all that wait it can be done first, in {:.1} s",
                way.finish - now
            ),
        });
        take(&mut fleet, way, job.tasks[task].component);
    }
}

/// The tasks that wait for a node, and for nothing else.
fn ready(job: &Job) -> impl Iterator<Item = (&Job, usize)> {
    let is_done = move |task: u32| matches!(job.tasks[task as usize].state, State::Done(_));
    let is_ready = move |task: &usize| {
        let of = &job.tasks[*task];
        matches!(of.state, State::Waiting) && of.inputs.iter().all(|input| input.task.is_none_or(is_done))
    };
    (0..job.tasks.len()).filter(is_ready).map(move |task| (job, task))
}

/// The slot is taken until then, and the node holds what runs there.
fn take(fleet: &mut Fleet, way: Way, component: u32) {
    let node = &mut fleet.nodes[way.node];
    node.slots[way.slot].free_at = way.finish;
    node.slots[way.slot].warm = Some(component);
    if !node.resident.iter().any(|held| held.component == component) {
        node.resident.push(Resident {
            component,
            used_at: way.finish,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::karman::policy::placer::{Component, Input, Node, Output, Slot, Task, Window};

    fn node(id: &str, speed: f64) -> Node {
        Node {
            id: id.into(),
            cluster: 0,
            speed,
            rate: 1e6,
            memory: 100,
            slots: vec![Slot {
                free_at: 0.0,
                warm: None,
            }],
            resident: Vec::new(),
            windows: Vec::new(),
        }
    }

    fn fleet() -> Fleet {
        let component = |bytes| Component {
            bytes,
            fetch: 0,
            warm: 0.0,
            scale_out: 1.0,
            cold: 4.0,
        };
        Fleet {
            nodes: vec![node("slow", 1.0), node("fast", 2.0)],
            components: vec![component(10), component(1000)],
            latency_within: 0.0,
            latency_between: 1.0,
        }
    }

    fn task(work: f64, after: &[u32]) -> Task {
        let input = |task: &u32| Input {
            task: Some(*task),
            bytes: 1_000_000,
        };
        Task {
            component: 0,
            work,
            inputs: after.iter().map(input).collect(),
            state: State::Waiting,
        }
    }

    fn job(tasks: Vec<Task>) -> Job {
        Job {
            id: 7,
            arrived: 0.0,
            deadline: None,
            origin: 0,
            tasks,
        }
    }

    /// Task and node of each placement.
    fn placed(job: Job, fleet: Fleet) -> Vec<[u32; 2]> {
        let placements = plan(0.0, &[job], fleet);
        placements
            .iter()
            .map(|placed| [placed.task, placed.node])
            .collect()
    }

    #[test]
    fn the_shortest_goes_first_and_each_where_it_is_done_first() {
        let tasks = vec![task(20.0, &[]), task(2.0, &[]), task(4.0, &[])];
        // The fast one is cold for 2 s: the short one is done after 3 s, the next one on its instance after 5, where the slow one takes 8.
        assert_eq!(placed(job(tasks), fleet()), [[1, 1], [2, 1], [0, 1]]);
    }

    #[test]
    fn what_waits_for_others_or_has_no_room_is_left_alone() {
        let mut tasks = vec![task(1.0, &[]), task(1.0, &[0]), task(1.0, &[])];
        tasks[2].component = 1;
        assert_eq!(placed(job(tasks), fleet()), [[0, 1]]);
    }

    #[test]
    fn data_come_when_both_ends_can_be_reached() {
        let mut tasks = vec![task(1.0, &[]), task(2.0, &[0])];
        tasks[0].state = State::Done(Output { node: 0, at: 0.0 });
        let mut fleet = fleet();
        // It takes a second to the fast one, which is ready first all the same.
        assert_eq!(placed(job(tasks), fleet), [[1, 1]]);

        let mut tasks = vec![task(1.0, &[]), task(2.0, &[0])];
        tasks[0].state = State::Done(Output { node: 0, at: 0.0 });
        fleet = self::fleet();
        fleet.nodes[1].windows = vec![
            Window {
                opens: 0.0,
                closes: 0.5,
            },
            Window {
                opens: 9.0,
                closes: 20.0,
            },
        ];
        assert_eq!(placed(job(tasks), fleet), [[1, 0]]);
    }
}
