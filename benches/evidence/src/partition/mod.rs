//! `partition-replay`: cuts that move with links and loads, replayed on recorded layer profiles under written-down traces.
//!
//! For each network ([`profiles::MODELS`]) and trace ([`Trace`]) and for latency and energy as objective, 30 seeds draw a
//! world: the rates of the edge-fog link, load and noise of the tiers, errors of the profiles. Rates are drawn around the least
//! at which it pays at all to cut the network ([`break_even`]), where it matters what one does. Through it go 480 requests under
//! our re-planner, the best static cut in hindsight, Neurosurgeon, an oracle, all-edge and all-cloud. Requests do not queue.
//! Edge and cloud hold all weights at first, the fog those that the plan for the nominal rates puts there; what else a
//! contender wants there is sent over the links, at half their rate, and billed; the static cut's is billed only. A request
//! that takes ten medians of that nominal cut counts as unfinished, at that time.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `gain_captured.MODEL.TRACE.OBJECTIVE` | (S - O)/(S - oracle) where the oracle gains 5 % of S or more, unit `share`; elsewhere O/S, unit `O/S` | 0.8; 1.02 |
//! | `latency_vs_static.MODEL.TRACE` | sum of latencies, ours over the best static cut in hindsight; `published` says what a paper reports | shown |
//! | `modelled_energy_vs_static.MODEL.TRACE` | the same for energy of all tiers, with `energy` as the objective | shown |
//! | `latency_vs_oracle.MODEL.TRACE` | ours over one that knows the true speeds of the moment | 1.05; `outage` 1.25 |
//! | `latency_vs_neurosurgeon.MODEL.TRACE` | ours over Neurosurgeon's best pair, from its own measurements by the same estimator | 1.00 |
//!
//! `..worst_wattage` is the worst of 18 runs, each with one assumed wattage halved or doubled. Context: `latency_p99_vs_static`,
//! `latency_vs_all_edge`, `latency_vs_all_cloud`. All wattages are assumptions. Tuning was done on seeds from [`TUNING_SEED`] on.

mod contender;
mod play;
mod profiles;
mod tuning;
mod world;

use anyhow::{Context, Result};
use contender::{Contender, Knows, Played, true_graph};
use karman_sched::partition::{
    LayerGraph, Neurosurgeon, Objective, Partitioner, Power, Problem, Tier, Tiers, Tuning, Weights,
    best_static,
};
use karman_study::interval::bootstrap;
use karman_study::pairs::{median, percentile};
use karman_study::report::{Kind, Report, Target};
use play::{Player, Static, Totals, links};
use serde::Serialize;
use std::path::Path;
use world::{Trace, World};

/// How many worlds are drawn for each cell.
const SEEDS: u64 = 30;
/// Seeds that the tuning was done on; the evaluation uses those from 0 on.
const TUNING_SEED: u64 = 10_000;
/// How many of them for each cell.
const TUNING_SEEDS: u64 = 4;
/// Medians until a request counts as unfinished.
const TIMEOUT_MEDIANS: f64 = 10.0;
/// The nominal plan is made for so many times the break-even rate: the middle of what is drawn.
const NOMINAL: f64 = 2.0;
/// A static cut of which the oracle gains less leaves nothing to capture.
const LEAST_GAIN: f64 = 0.05;

/// Assumed watts: a Raspberry Pi 4, a laptop, a desktop computer.
const POWER: [Power; 3] = [
    Power {
        busy_w: 6.4,
        idle_w: 2.7,
        transmit_w: 1.2,
    },
    Power {
        busy_w: 35.0,
        idle_w: 10.0,
        transmit_w: 1.2,
    },
    Power {
        busy_w: 150.0,
        idle_w: 40.0,
        transmit_w: 1.0,
    },
];

/// Runs the study.
pub(crate) fn run(data: &Path, quick: bool) -> Result<()> {
    let seeds = if quick { 3 } else { SEEDS };
    let graphs = profiles::MODELS.map(|model| profiles::load(data, model));
    let mut report = Report::new("partition-replay");
    report.kind(Kind::Replayed);
    report.register(cells());
    for (model, graph) in profiles::MODELS.into_iter().zip(graphs) {
        let graph = graph?;
        report.figure(
            &format!("break_even.{model}"),
            break_even(&graph)?,
            "Mbit/s",
            Target::Shown,
        );
        for trace in Trace::ALL {
            let cell = format!("{model}.{}", trace.name());
            let worlds = (0..seeds).map(|seed| play_world(&graph, trace, seed, Tuning::default()));
            let worlds: Vec<Outcome> = worlds.collect::<Result<_>>().with_context(|| cell.clone())?;
            rows(&mut report, &cell, trace, &worlds);
        }
    }
    report.write_and_print()
}

fn cells() -> Vec<String> {
    let cells = profiles::MODELS.into_iter().flat_map(|model| {
        Trace::ALL.into_iter().flat_map(move |trace| {
            let cell = format!("{model}.{}", trace.name());
            [
                format!("gain_captured.{cell}.latency"),
                format!("gain_captured.{cell}.energy"),
                format!("latency_vs_static.{cell}"),
                format!("modelled_energy_vs_static.{cell}"),
                format!("modelled_energy_vs_static.{cell}.worst_wattage"),
                format!("latency_vs_oracle.{cell}"),
                format!("latency_vs_neurosurgeon.{cell}"),
            ]
        })
    });
    cells.collect()
}

/// What came of one world, as sums over its requests.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    latency: Contest,
    energy: Contest,
    neurosurgeon_ms: f64,
    all_edge_ms: f64,
    all_cloud_ms: f64,
    p99_ms: [f64; 2],
    /// Ours and the static cut's, for each changed wattage.
    wattages: Vec<[f64; 2]>,
}

/// `partition-tuning`: how the numbers of [`Tuning`] were chosen. One of them at a time is changed, on seeds that the evaluation
/// does not use; `NAME.VALUE` is the mean over all cells of ours over the oracle, latency and energy together.
pub(crate) fn tune(data: &Path, quick: bool) -> Result<()> {
    let mut report = Report::new("partition-tuning");
    report.kind(Kind::Replayed);
    let mut cells = Vec::new();
    for model in profiles::MODELS {
        let graph = profiles::load(data, model)?;
        let break_even = break_even(&graph)?;
        for trace in Trace::ALL {
            for seed in 0..if quick { 1 } else { TUNING_SEEDS } {
                let world = World::draw(trace, break_even, graph.layers().len(), TUNING_SEED + seed);
                cells.push((graph.clone(), world, NOMINAL * break_even));
            }
        }
    }
    let mut oracles = Vec::new();
    for (name, tuning) in tuning::grid() {
        let mut ratios = Vec::new();
        for (index, (graph, world, nominal)) in cells.iter().enumerate() {
            let setting = Setting::without_fixed(graph, world, *nominal, tuning)?;
            if oracles.len() == index {
                let energy = energy_mj(&setting.oracle(Objective::ENERGY, POWER)?.totals, POWER);
                oracles.push((
                    setting.oracle(Objective::LATENCY, POWER)?.totals.latency_ms,
                    energy,
                ));
            }
            let (latency, energy) = oracles[index];
            ratios.push(setting.ours(Objective::LATENCY, POWER)?.totals.latency_ms / latency);
            ratios.push(energy_mj(&setting.ours(Objective::ENERGY, POWER)?.totals, POWER) / energy);
        }
        let mean = |ratios: &[f64]| ratios.iter().sum::<f64>() / ratios.len() as f64;
        report.estimate(&name, bootstrap(&ratios, mean), "ratio", Target::Shown);
    }
    report.write_and_print()
}

/// Ours, the best static cut and the oracle by one objective.
#[derive(Clone, Copy, Debug, Serialize)]
struct Contest {
    ours: f64,
    fixed: f64,
    oracle: f64,
}

/// The least rate between edge and fog, in Mbit/s, at which some cut is faster than the edge alone, within a percent.
fn break_even(graph: &LayerGraph) -> Result<f64> {
    let (mut low, mut high) = (0.1, 10_000.0_f64);
    while high / low > 1.01 {
        let middle = (low * high).sqrt();
        let plan = Tiers.plan(&problem(
            graph,
            middle,
            Objective::LATENCY,
            POWER,
            Weights::Everywhere,
        )?)?;
        match plan.assignment.iter().all(|tier| *tier == 0) {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(high)
}

fn play_world(graph: &LayerGraph, trace: Trace, seed: u64, tuning: Tuning) -> Result<Outcome> {
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
    Ok(Outcome {
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
        wattages: wattages().into_iter().map(energy).collect::<Result<_>>()?,
    })
}

/// Each assumed wattage once halved and once doubled.
fn wattages() -> Vec<[Power; 3]> {
    let changes =
        (0..3).flat_map(|tier| (0..3).flat_map(move |field| [0.5, 2.0].map(|by| (tier, field, by))));
    let changed = changes.map(|(tier, field, by)| {
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
fn energy_mj(totals: &Totals, power: [Power; 3]) -> f64 {
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

/// One world with everything that the contenders share.
struct Setting<'a> {
    player: Player<'a>,
    tuning: Tuning,
    held: Vec<Vec<bool>>,
    nominal_mbit_s: f64,
    timeout_ms: f64,
    /// Every static cut with what it takes.
    fixed: Vec<(Vec<usize>, Totals)>,
}

impl<'a> Setting<'a> {
    /// Without the static cuts, which take longest.
    fn without_fixed(
        graph: &'a LayerGraph,
        world: &'a World,
        nominal_mbit_s: f64,
        tuning: Tuning,
    ) -> Result<Self> {
        let player = Player::new(world, graph);
        let everywhere = problem(
            graph,
            nominal_mbit_s,
            Objective::LATENCY,
            POWER,
            Weights::Everywhere,
        )?;
        let nominal = Tiers.plan(&everywhere)?;
        let run = |request| {
            player
                .run(request, &nominal.assignment, f64::INFINITY, &mut Static)
                .latency_ms
        };
        let timeout_ms = TIMEOUT_MEDIANS * median((0..World::requests()).map(run).collect());
        let all = vec![true; graph.layers().len()];
        let fog = nominal.assignment.iter().map(|tier| *tier == 1).collect();
        Ok(Self {
            player,
            tuning,
            held: vec![all.clone(), fog, all],
            nominal_mbit_s,
            timeout_ms,
            fixed: Vec::new(),
        })
    }

    fn new(graph: &'a LayerGraph, world: &'a World, nominal_mbit_s: f64, tuning: Tuning) -> Result<Self> {
        let mut setting = Self::without_fixed(graph, world, nominal_mbit_s, tuning)?;
        let everywhere = problem(
            graph,
            nominal_mbit_s,
            Objective::LATENCY,
            POWER,
            Weights::Everywhere,
        )?;
        let mut fixed = Vec::new();
        best_static(&everywhere, |cut| {
            let totals = setting.fixed(cut);
            fixed.push((cut.to_vec(), totals));
            Some(totals.latency_ms)
        });
        setting.fixed = fixed;
        Ok(setting)
    }

    /// What a cut takes that stays, with the weights that its fog lacks.
    fn fixed(&self, cut: &[usize]) -> Totals {
        let mut totals = Totals::default();
        for request in 0..World::requests() {
            totals.add(&self.player.run(request, cut, self.timeout_ms, &mut Static));
        }
        let lacks = |layer: &usize| cut[*layer] == 1 && !self.held[1][*layer];
        let lacking = (0..cut.len()).filter(lacks);
        let bytes: u64 = lacking
            .map(|layer| self.player.graph.layers()[layer].weight_bytes)
            .sum();
        totals.sent_ms[2] += bytes as f64 / self.player.world.rate(1, 0.0);
        totals
    }

    fn best_by(&self, total: impl Fn(&Totals) -> f64) -> (f64, Vec<usize>) {
        let all = self.fixed.iter().map(|(cut, totals)| (total(totals), cut));
        let (least, cut) = all
            .min_by(|(a, _), (b, _)| a.total_cmp(b))
            .unwrap_or((f64::NAN, &self.fixed[0].0));
        (least, cut.clone())
    }

    fn latencies(&self, cut: &[usize]) -> Vec<f64> {
        let run = |request| {
            self.player
                .run(request, cut, self.timeout_ms, &mut Static)
                .latency_ms
        };
        (0..World::requests()).map(run).collect()
    }

    fn ours(&self, objective: Objective, power: [Power; 3]) -> Result<Played> {
        let problem = problem(
            self.player.graph,
            self.nominal_mbit_s,
            objective,
            power,
            self.weights(),
        )?;
        Contender::new(Tiers, problem, self.tuning, &self.player, Knows::Measured, true)?
            .play(self.timeout_ms)
    }

    /// Our cuts, our weights, our way out of a message that is late; the true speeds, and no reluctance to move.
    fn oracle(&self, objective: Objective, power: [Power; 3]) -> Result<Played> {
        let graph = true_graph(self.player.graph, self.player.world)?;
        let problem = problem(&graph, self.nominal_mbit_s, objective, power, self.weights())?;
        let tuning = Tuning {
            hysteresis: 0.0,
            ..self.tuning
        };
        Contender::new(Tiers, problem, tuning, &self.player, Knows::Truth, true)?.play(self.timeout_ms)
    }

    fn play(&self, policy: impl Partitioner, tuning: Tuning, objective: Objective) -> Result<Played> {
        let problem = problem(
            self.player.graph,
            self.nominal_mbit_s,
            objective,
            POWER,
            self.weights(),
        )?;
        Contender::new(policy, problem, tuning, &self.player, Knows::Measured, false)?.play(self.timeout_ms)
    }

    fn weights(&self) -> Weights {
        Weights::Only {
            held: self.held.clone(),
        }
    }
}

fn problem(
    graph: &LayerGraph,
    access_mbit_s: f64,
    objective: Objective,
    power: [Power; 3],
    weights: Weights,
) -> Result<Problem> {
    let tier = |(name, power): (&str, Power)| Tier {
        name: name.into(),
        slowdown: 1.0,
        memory_bytes: None,
        power,
        available: true,
    };
    let tiers = ["edge", "fog", "cloud"]
        .into_iter()
        .zip(power)
        .map(tier)
        .collect();
    let bytes_per_ms = |mbit_s: f64| mbit_s * 1e3 / 8.0;
    let links = links([access_mbit_s, World::WIRED].map(bytes_per_ms));
    Ok(Problem::new(graph.clone(), tiers, links, objective, weights)?)
}

fn rows(report: &mut Report, cell: &str, trace: Trace, worlds: &[Outcome]) {
    let ratio = |over: fn(&Outcome) -> f64, under: fn(&Outcome) -> f64| {
        bootstrap(worlds, |worlds| {
            worlds.iter().map(over).sum::<f64>() / worlds.iter().map(under).sum::<f64>()
        })
    };
    gain(
        report,
        &format!("gain_captured.{cell}.latency"),
        worlds,
        |world| world.latency,
    );
    gain(report, &format!("gain_captured.{cell}.energy"), worlds, |world| {
        world.energy
    });
    let mut row = |key: &str, over, under, target| {
        report.estimate(&format!("{key}.{cell}"), ratio(over, under), "ratio", target);
    };
    let ours = |world: &Outcome| world.latency.ours;
    let bound = if trace == Trace::Outage { 1.25 } else { 1.05 };
    row(
        "latency_vs_static",
        ours,
        |world| world.latency.fixed,
        Target::Shown,
    );
    row(
        "modelled_energy_vs_static",
        |world| world.energy.ours,
        |world| world.energy.fixed,
        Target::Shown,
    );
    row(
        "latency_vs_oracle",
        ours,
        |world| world.latency.oracle,
        Target::AtMost(bound),
    );
    row(
        "latency_vs_neurosurgeon",
        ours,
        |world| world.neurosurgeon_ms,
        Target::AtMost(1.0),
    );
    row(
        "latency_p99_vs_static",
        |world| world.p99_ms[0],
        |world| world.p99_ms[1],
        Target::Shown,
    );
    row(
        "latency_vs_all_edge",
        ours,
        |world| world.all_edge_ms,
        Target::Shown,
    );
    row(
        "latency_vs_all_cloud",
        ours,
        |world| world.all_cloud_ms,
        Target::Shown,
    );
    let by_wattage = (0..wattages().len()).map(|index| {
        bootstrap(worlds, |worlds| {
            let sum = |side: usize| {
                worlds
                    .iter()
                    .map(|world| world.wattages[index][side])
                    .sum::<f64>()
            };
            sum(0) / sum(1)
        })
    });
    let worst = by_wattage.max_by(|a, b| a.hi.total_cmp(&b.hi));
    let key = format!("modelled_energy_vs_static.{cell}.worst_wattage");
    match worst {
        Some(worst) => report.estimate(&key, worst, "ratio", Target::Shown),
        None => report.void(&key, "no wattage was changed"),
    }
    report.keep_raw(cell, &worlds);
}

/// What part of the gain that there was we took; where there was none, what we lost.
fn gain(report: &mut Report, key: &str, worlds: &[Outcome], of: fn(&Outcome) -> Contest) {
    let sum = |worlds: &[Outcome], part: fn(&Contest) -> f64| {
        worlds.iter().map(|world| part(&of(world))).sum::<f64>()
    };
    let fixed = |worlds: &[Outcome]| sum(worlds, |contest| contest.fixed);
    let ours = |worlds: &[Outcome]| sum(worlds, |contest| contest.ours);
    let oracle = |worlds: &[Outcome]| sum(worlds, |contest| contest.oracle);
    if fixed(worlds) - oracle(worlds) >= LEAST_GAIN * fixed(worlds) {
        let captured = bootstrap(worlds, |worlds| {
            (fixed(worlds) - ours(worlds)) / (fixed(worlds) - oracle(worlds))
        });
        report.estimate(key, captured, "share", Target::AtLeast(0.8));
    } else {
        let lost = bootstrap(worlds, |worlds| ours(worlds) / fixed(worlds));
        report.estimate(key, lost, "O/S", Target::AtMost(1.02));
    }
}
