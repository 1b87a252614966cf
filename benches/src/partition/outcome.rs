//! What came of one pass under every contender.

use super::contender::{Contender, Goal, Who};
use super::rounds::{Request, Taken};
use karman_study::contest::{Contest, Draw};
use karman_study::pairs::percentile;
use karman_study::trace::{ASSUMED_WATTS, other_watts};
use serde::Serialize;

/// Sums over the requests of one pass.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    #[serde(flatten)]
    pub(super) draw: Draw,
    /// Late requests and those that were passed on, of ours.
    pub(super) troubles: [usize; 2],
    /// Every request of every contender.
    pub(super) requests: Vec<(String, Vec<Request>)>,
}

type Watts = [[f64; 3]; 3];

impl Outcome {
    pub(super) fn of(seed: u64, contenders: &[Contender], taken: &[Taken]) -> Self {
        let all = || contenders.iter().zip(taken);
        let mover = |who: Who, goal: Goal| {
            let at = contenders
                .iter()
                .position(|contender| contender.who == who && contender.goal == goal);
            at.map_or_else(Taken::default, |at| taken[at].clone())
        };
        let statics: Vec<&Taken> = all()
            .filter(|(one, _)| matches!(one.who, Who::Fixed(_)))
            .map(|(_, taken)| taken)
            .collect();
        let ours = mover(Who::Ours, Goal::Latency);
        let fixed = least(&statics, sum_ms);
        let (ours_energy, oracle_energy) = (mover(Who::Ours, Goal::Energy), mover(Who::Oracle, Goal::Energy));
        let least_mj = |watts: Watts| energy_mj(least(&statics, |taken| energy_mj(taken, watts)), watts);
        let changed = |(tier, field, by): (usize, usize, f64)| {
            let mut watts = ASSUMED_WATTS;
            watts[tier][field] *= by;
            [energy_mj(&ours_energy, watts), least_mj(watts)]
        };
        let draw = Draw {
            seed,
            latency: Contest {
                ours: sum_ms(&ours),
                fixed: sum_ms(fixed),
                oracle: sum_ms(&mover(Who::Oracle, Goal::Latency)),
            },
            energy: Contest {
                ours: energy_mj(&ours_energy, ASSUMED_WATTS),
                fixed: least_mj(ASSUMED_WATTS),
                oracle: energy_mj(&oracle_energy, ASSUMED_WATTS),
            },
            neurosurgeon_ms: sum_ms(&mover(Who::Neurosurgeon, Goal::Latency)),
            // The first two that stay.
            all_edge_ms: sum_ms(statics[0]),
            all_cloud_ms: sum_ms(statics[1]),
            p99_ms: [
                percentile(&ours.latencies_ms(), 0.99),
                percentile(&fixed.latencies_ms(), 0.99),
            ],
            wattages: other_watts().map(changed).collect(),
        };
        Self {
            draw,
            troubles: [ours.unfinished, ours.passed_on],
            requests: all()
                .map(|(one, taken)| (one.name.clone(), taken.requests.clone()))
                .collect(),
        }
    }
}

fn sum_ms(taken: &Taken) -> f64 {
    taken.sum(|request| request.took_ms)
}

fn least<'a>(all: &[&'a Taken], of: impl Fn(&Taken) -> f64) -> &'a Taken {
    let first = all[0];
    all.iter().copied().fold(
        first,
        |least, taken| if of(taken) < of(least) { taken } else { least },
    )
}

/// What all tiers draw for these requests.
fn energy_mj(taken: &Taken, watts: Watts) -> f64 {
    let of = |tier: usize| {
        let [busy, idle, transmit] = watts[tier];
        let drawn = |request: &Request| {
            idle * request.took_ms
                + (busy - idle) * request.compute_ms[tier]
                + transmit * request.sent_ms[tier]
        };
        taken.sum(drawn)
    };
    (0..3).map(of).sum()
}
