//! What came of one world under every contender.

use super::play::Totals;
use super::setting::{POWER, Setting, break_even};
use super::world::World;
use super::{FIRST_SEED, NOMINAL, WATTAGE_SEEDS};
use anyhow::Result;
use karman_sched::partition::{LayerGraph, Neurosurgeon, Objective, Power, Tuning};
use karman_study::contest::{Contest, Draw};
use karman_study::pairs::percentile;
use karman_study::trace::{Trace, other_watts};

/// Draws the world and plays it.
pub(crate) fn of(graph: &LayerGraph, trace: Trace, seed: u64, tuning: Tuning) -> Result<Draw> {
    let break_even = break_even(graph)?;
    let world = World::draw(trace, break_even, graph.layers().len(), seed);
    let setting = Setting::new(graph, &world, NOMINAL * break_even, tuning)?;
    let ours = setting.ours(Objective::LATENCY, POWER)?;
    let oracle = setting.oracle(Objective::LATENCY, POWER)?;
    let theirs = setting.play(
        Neurosurgeon,
        Tuning {
            hysteresis: 0.0,
            ..tuning
        },
        Objective::LATENCY,
    )?;
    let (fixed, fixed_cut) = setting.best_by(|totals| totals.latency_ms);
    let fixed_latencies: Vec<f64> = setting.latencies(&fixed_cut);
    let energy = |power: [Power; 3]| -> Result<[f64; 2]> {
        let ours = energy_mj(&setting.ours(Objective::ENERGY, power)?.totals, power);
        Ok([ours, setting.best_by(|totals| energy_mj(totals, power)).0])
    };
    let [ours_mj, fixed_mj] = energy(POWER)?;
    let last = graph.layers().len();
    Ok(Draw {
        seed,
        latency: Contest {
            ours: ours.totals.latency_ms,
            fixed,
            oracle: oracle.totals.latency_ms,
        },
        energy: Contest {
            ours: ours_mj,
            fixed: fixed_mj,
            oracle: energy_mj(&setting.oracle(Objective::ENERGY, POWER)?.totals, POWER),
        },
        neurosurgeon_ms: theirs.totals.latency_ms,
        all_edge_ms: setting.latencies(&vec![0; last]).iter().sum(),
        all_cloud_ms: setting.latencies(&vec![2; last]).iter().sum(),
        p99_ms: [
            percentile(&ours.latencies_ms, 0.99),
            percentile(&fixed_latencies, 0.99),
        ],
        wattages: match seed < FIRST_SEED + WATTAGE_SEEDS {
            true => wattages().into_iter().map(energy).collect::<Result<_>>()?,
            false => Vec::new(),
        },
    })
}

/// Each assumed wattage once halved and once doubled.
fn wattages() -> Vec<[Power; 3]> {
    let changed = other_watts().map(|(tier, field, by)| {
        let mut power = POWER;
        match field {
            0 => power[tier].busy_w *= by,
            1 => power[tier].idle_w *= by,
            _ => power[tier].transmit_w *= by,
        }
        power
    });
    changed.collect()
}

/// What all tiers draw for these totals.
pub(crate) fn energy_mj(totals: &Totals, power: [Power; 3]) -> f64 {
    let of = |tier: usize| {
        let Power {
            busy_w,
            idle_w,
            transmit_w,
        } = power[tier];
        idle_w * totals.latency_ms
            + (busy_w - idle_w) * totals.compute_ms[tier]
            + transmit_w * totals.sent_ms[tier]
    };
    (0..3).map(of).sum()
}
