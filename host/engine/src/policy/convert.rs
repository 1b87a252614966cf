//! Between the words of `karman-sched` and those of `karman:policy`.

use crate::capability::bindings::policy::exports::karman::policy::selector as wit;
use crate::capability::bindings::route::exports::karman::policy::router;
use karman_sched::call::{Order, Taker};
use karman_sched::select::{Ask, Call, Choice, Served, Task};
use karman_types::{Implementation, Slo};
use std::time::Duration;

pub(super) fn task(task: &Task) -> wit::Task {
    wit::Task {
        name: task.name.clone(),
        visits: task.visits,
        within: task.within,
        candidates: task.candidates.iter().map(candidate).collect(),
    }
}

fn candidate(of: &Implementation) -> wit::Candidate {
    let profile = &of.profile;
    wit::Candidate {
        name: of.name.clone(),
        profile: wit::Profile {
            accuracy: profile.accuracy,
            mean: nanoseconds(profile.mean),
            p50: nanoseconds(profile.p50),
            p95: nanoseconds(profile.p95),
            p99: nanoseconds(profile.p99),
            cost: profile.cost,
            energy: profile.energy,
            samples: profile.samples,
        },
    }
}

pub(super) fn slo(slo: &Slo) -> wit::Slo {
    wit::Slo {
        requests: slo.requests,
        accuracy: slo.accuracy,
        latency_p95: slo.latency_p95.map(nanoseconds),
        cost: slo.cost,
        energy: slo.energy,
    }
}

pub(super) fn ask(ask: &Ask<'_>) -> wit::Ask {
    wit::Ask {
        now: nanoseconds(ask.now),
        task: place(ask.task),
        queue: place(ask.queue),
        unreachable: ask
            .unreachable
            .iter()
            .map(|candidate| place(*candidate))
            .collect(),
    }
}

pub(super) fn served(served: &Served<'_>) -> wit::Served {
    wit::Served {
        now: nanoseconds(served.now),
        queue: place(served.queue),
        latency: nanoseconds(served.latency),
        calls: served.calls.iter().map(call).collect(),
    }
}

fn call(call: &Call) -> wit::Call {
    wit::Call {
        task: place(call.task),
        candidate: place(call.candidate),
        latency: nanoseconds(call.latency),
        cost: call.cost,
        energy: call.energy,
        right: call.right,
    }
}

pub(super) fn choice(choice: wit::Choice) -> Choice {
    Choice {
        chosen: choice.chosen as usize,
        runner_up: choice.runner_up.map(|candidate| candidate as usize),
        because: choice.because,
    }
}

pub(super) fn provider(taker: &Taker) -> router::Provider {
    router::Provider {
        node: taker.node.to_string(),
        round_trip: taker.round_trip.map(nanoseconds),
        cores: taker.cores,
        busy: taker.busy,
        takes: taker.takes.map(nanoseconds),
        outlasted: taker.outlasted.map(nanoseconds),
        failed: taker.failed.map(nanoseconds),
        heard: taker.heard.map(nanoseconds),
    }
}

pub(super) fn order(order: router::Order) -> Order {
    Order {
        places: order.places.into_iter().map(|place| place as usize).collect(),
        because: order.because,
    }
}

/// What is longer than 584 years is as long as that.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn place(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
