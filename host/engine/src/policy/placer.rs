//! One decision of a policy that places tasks: an instance that is asked once.

use super::sandbox::{Allowance, Instance, Sandbox};
use crate::capability::bindings::place::PlacePre;
use crate::capability::bindings::place::exports::karman::policy::placer as wit;
use karman_sched::place::{Component, Fleet, Input, Job, Node, Placement, State, Task};
use karman_sched::plugin::Failure;
use karman_types::Limits;

/// The most bytes that are copied out of it: some ten thousand placements, and their words.
const MOST_COPIED: usize = 4 << 20;

/// Where it has the tasks of these jobs go.
pub(super) fn place(
    pre: &PlacePre<Sandbox>,
    (limits, fuel): (&Limits, u64),
    now: f64,
    jobs: &[Job],
    fleet: &Fleet,
) -> Result<Vec<Placement>, Failure> {
    let allowance = Allowance {
        limits,
        fuel,
        copied: MOST_COPIED,
    };
    let mut instance = Instance::start(pre.engine(), &allowance, |store| pre.instantiate(store))?;
    let jobs: Vec<wit::Job> = jobs.iter().map(job).collect();
    let fleet = self::fleet(fleet);
    let placed =
        instance.call(|place, store| place.karman_policy_placer().call_place(store, now, &jobs, &fleet))?;
    Ok(placed.into_iter().map(placement).collect())
}

fn fleet(fleet: &Fleet) -> wit::Fleet {
    let [latency_within, latency_between] = fleet.latency;
    wit::Fleet {
        nodes: fleet.nodes.iter().map(node).collect(),
        components: fleet.components.iter().map(component).collect(),
        latency_within,
        latency_between,
    }
}

fn component(of: &Component) -> wit::Component {
    wit::Component {
        bytes: of.bytes,
        fetch: of.fetch,
        warm: of.warm,
        scale_out: of.scale_out,
        cold: of.cold,
    }
}

fn node(of: &Node) -> wit::Node {
    let slots = of.slots.iter().map(|slot| wit::Slot {
        free_at: slot.free_at,
        warm: slot.warm.map(number),
    });
    let resident = of.resident.iter().map(|held| wit::Resident {
        component: number(held.component),
        used_at: held.used_at,
    });
    let windows = of.windows.iter().map(|window| wit::Window {
        opens: window.from,
        closes: window.until,
    });
    wit::Node {
        id: of.id.to_string(),
        cluster: number(of.cluster),
        speed: of.speed,
        rate: of.rate,
        memory: of.memory,
        slots: slots.collect(),
        resident: resident.collect(),
        windows: windows.collect(),
    }
}

fn job(of: &Job) -> wit::Job {
    wit::Job {
        id: of.id,
        arrived: of.arrived,
        deadline: of.deadline,
        origin: number(of.origin),
        tasks: of.tasks.iter().map(task).collect(),
    }
}

fn task(of: &Task) -> wit::Task {
    wit::Task {
        component: number(of.component),
        work: of.work,
        inputs: of.inputs.iter().map(input).collect(),
        state: state(of.state),
    }
}

fn input(of: &Input) -> wit::Input {
    wit::Input {
        task: of.from.map(number),
        bytes: of.bytes,
    }
}

fn state(of: State) -> wit::State {
    let output = |node, at| wit::Output {
        node: number(node),
        at,
    };
    match of {
        State::Waiting => wit::State::Waiting,
        State::Placed { node, finish } => wit::State::Placed(output(node, finish)),
        State::Running { node, finish } => wit::State::Running(output(node, finish)),
        State::Done { node, at } => wit::State::Done(output(node, at)),
    }
}

fn placement(of: wit::Placement) -> Placement {
    Placement {
        job: of.job,
        task: of.task as usize,
        node: of.node as usize,
        because: of.because,
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
