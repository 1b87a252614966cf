//! When a task would be done at a node.

use crate::exports::karman::policy::placer::{Fleet, Job, Node, State, Window};

/// How a task would run at a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Way {
    pub(crate) node: usize,
    pub(crate) slot: usize,
    pub(crate) finish: f64,
}

/// The way in which a task is done first, of all nodes; nothing where none can run it.
pub(crate) fn earliest(now: f64, (job, task): (&Job, usize), fleet: &Fleet) -> Option<Way> {
    let ways = (0..fleet.nodes.len()).filter_map(|node| at(now, (job, task), node, fleet));
    ways.min_by(|one, other| one.finish.total_cmp(&other.finish))
}

/// The same at one node.
fn at(now: f64, (job, task): (&Job, usize), place: usize, fleet: &Fleet) -> Option<Way> {
    let data_at = data_at(now, (job, task), place, fleet)?;
    let (of, node) = (&job.tasks[task], &fleet.nodes[place]);
    let component = &fleet.components[of.component as usize];
    let held = node.resident.iter().any(|held| held.component == of.component);
    let ways = node.slots.iter().enumerate().filter_map(|(slot, there)| {
        let startup = match there.warm == Some(of.component) {
            true => component.warm / node.speed,
            false if held => component.scale_out / node.speed,
            false if component.bytes > node.memory => return None,
            false => component.cold / node.speed + component.fetch as f64 / node.rate,
        };
        let finish = data_at.max(there.free_at) + startup + of.work / node.speed;
        Some(Way {
            node: place,
            slot,
            finish,
        })
    });
    ways.min_by(|one, other| one.finish.total_cmp(&other.finish))
}

/// When all that a task takes in is at a node, not before now.
fn data_at(now: f64, (job, task): (&Job, usize), place: usize, fleet: &Fleet) -> Option<f64> {
    let mut at = now;
    for input in &job.tasks[task].inputs {
        let (from, since) = match input.task.map(|from| &job.tasks[from as usize].state) {
            None => (job.origin, job.arrived),
            Some(State::Done(output)) => (output.node, output.at),
            Some(_) => return None,
        };
        at = at.max(arrival(
            fleet,
            (from as usize, place),
            input.bytes,
            since.max(now),
        )?);
    }
    Some(at)
}

/// When bytes that are at one node from some time on are at another one; nothing where the two never meet for long enough.
fn arrival(fleet: &Fleet, (from, to): (usize, usize), bytes: u64, since: f64) -> Option<f64> {
    if from == to {
        return Some(since);
    }
    let (here, there) = (&fleet.nodes[from], &fleet.nodes[to]);
    let latency = match here.cluster == there.cluster {
        true => fleet.latency_within,
        false => fleet.latency_between,
    };
    let takes = latency + bytes as f64 / here.rate.min(there.rate);
    let mut at = since;
    loop {
        let [one, other] = [window(here, at)?, window(there, at)?];
        at = at.max(one.opens).max(other.opens);
        let closes = one.closes.min(other.closes);
        if at + takes <= closes {
            return Some(at + takes);
        }
        at = at.max(closes);
    }
}

/// The first window of a node that is open at this time or later.
fn window(node: &Node, at: f64) -> Option<Window> {
    let always = Window {
        opens: f64::NEG_INFINITY,
        closes: f64::INFINITY,
    };
    match node.windows.is_empty() {
        true => Some(always),
        false => node.windows.iter().find(|window| window.closes > at).copied(),
    }
}
