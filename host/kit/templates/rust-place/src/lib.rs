//! Has each task go where a slot is free first, to a node that holds what it runs where there is one.

use exports::karman::policy::placer::{Component, Fleet, Guest, Job, Node, Placement, State};

wit_bindgen::generate!({ path: "wit", generate_all });

struct Policy;

impl Guest for Policy {
    fn place(_now: f64, jobs: Vec<Job>, mut fleet: Fleet) -> Result<Vec<Placement>, String> {
        let mut placements = Vec::new();
        for job in &jobs {
            for (place, task) in job.tasks.iter().enumerate() {
                if !is_ready(job, place) {
                    continue;
                }
                let component = &fleet.components[task.component as usize];
                let can = |node: &usize| has_room(&fleet.nodes[*node], task.component, component);
                let nodes = (0..fleet.nodes.len()).filter(can);
                let free_at = |node: &usize| earliest(&fleet.nodes[*node]).1;
                let best = nodes.min_by(|one, other| {
                    let away = |node: &usize| !holds(&fleet.nodes[*node], task.component);
                    let order = away(one).cmp(&away(other));
                    order.then(free_at(one).total_cmp(&free_at(other)))
                });
                let Some(node) = best else {
                    continue;
                };
                placements.push(Placement {
                    job: job.id,
                    task: place as u32,
                    node: node as u32,
                    because: "a slot is free there first".into(),
                });
                let there = &mut fleet.nodes[node];
                let (slot, since) = earliest(there);
                there.slots[slot].free_at = since + task.work / there.speed;
            }
        }
        Ok(placements)
    }
}

/// Whether a task waits for a node, and for nothing else.
fn is_ready(job: &Job, task: usize) -> bool {
    let is_done = |task: u32| matches!(job.tasks[task as usize].state, State::Done(_));
    let of = &job.tasks[task];
    matches!(of.state, State::Waiting) && of.inputs.iter().all(|input| input.task.is_none_or(is_done))
}

/// Only nodes that can always be reached are counted on.
fn has_room(node: &Node, place: u32, component: &Component) -> bool {
    node.windows.is_empty() && (holds(node, place) || component.bytes <= node.memory)
}

fn holds(node: &Node, component: u32) -> bool {
    node.resident.iter().any(|held| held.component == component)
}

/// The slot that is free first, and when.
fn earliest(node: &Node) -> (usize, f64) {
    let slots = node.slots.iter().map(|slot| slot.free_at).enumerate();
    let first = slots.min_by(|(_, one), (_, other)| one.total_cmp(other));
    first.unwrap_or((0, f64::INFINITY))
}

export!(Policy);
