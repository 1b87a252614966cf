//! What all contenders in a world share: the problem, the weights in place, the static cuts, the patience with a request.

use super::contender::{Contender, Knows, Played, true_graph};
use super::play::{Player, Static, Totals, links};
use super::world::World;
use anyhow::Result;
use karman_sched::partition::{
    LayerGraph, Objective, Partitioner, Power, Problem, Tier, Tiers, Tuning, Weights, best_static,
};
use karman_study::pairs::median;
use karman_study::trace::ASSUMED_WATTS;

/// Medians until a request counts as unfinished.
const TIMEOUT_MEDIANS: f64 = 10.0;

/// What the tiers are assumed to draw.
pub(crate) const POWER: [Power; 3] = [assumed(0), assumed(1), assumed(2)];

const fn assumed(tier: usize) -> Power {
    let [busy_w, idle_w, transmit_w] = ASSUMED_WATTS[tier];
    Power {
        busy_w,
        idle_w,
        transmit_w,
    }
}

/// One world with everything that the contenders share.
pub(crate) struct Setting<'a> {
    pub(crate) player: Player<'a>,
    tuning: Tuning,
    held: Vec<Vec<bool>>,
    nominal_mbit_s: f64,
    timeout_ms: f64,
    /// Every static cut with what it takes.
    fixed: Vec<(Vec<usize>, Totals)>,
}

impl<'a> Setting<'a> {
    /// Without the static cuts, which take longest.
    pub(crate) fn without_fixed(
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

    pub(crate) fn new(
        graph: &'a LayerGraph,
        world: &'a World,
        nominal_mbit_s: f64,
        tuning: Tuning,
    ) -> Result<Self> {
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

    pub(crate) fn best_by(&self, total: impl Fn(&Totals) -> f64) -> (f64, Vec<usize>) {
        let all = self.fixed.iter().map(|(cut, totals)| (total(totals), cut));
        let (least, cut) = all
            .min_by(|(a, _), (b, _)| a.total_cmp(b))
            .unwrap_or((f64::NAN, &self.fixed[0].0));
        (least, cut.clone())
    }

    pub(crate) fn latencies(&self, cut: &[usize]) -> Vec<f64> {
        let run = |request| {
            self.player
                .run(request, cut, self.timeout_ms, &mut Static)
                .latency_ms
        };
        (0..World::requests()).map(run).collect()
    }

    pub(crate) fn ours(&self, objective: Objective, power: [Power; 3]) -> Result<Played> {
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
    pub(crate) fn oracle(&self, objective: Objective, power: [Power; 3]) -> Result<Played> {
        let graph = true_graph(self.player.graph, self.player.world)?;
        let problem = problem(&graph, self.nominal_mbit_s, objective, power, self.weights())?;
        let tuning = Tuning {
            hysteresis: 0.0,
            ..self.tuning
        };
        Contender::new(Tiers, problem, tuning, &self.player, Knows::Truth, true)?.play(self.timeout_ms)
    }

    pub(crate) fn play(
        &self,
        policy: impl Partitioner,
        tuning: Tuning,
        objective: Objective,
    ) -> Result<Played> {
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
        power,
        ..Tier::new(name)
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

/// The least rate between edge and fog, in Mbit/s, at which some cut is faster than the edge alone, within a percent.
pub(crate) fn break_even(graph: &LayerGraph) -> Result<f64> {
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
