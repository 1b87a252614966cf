//! Multipliers for what a minimum cut cannot see: the slowest stage and memory limits.
//!
//! The slowest stage is at least every weighted mean of all stages, and an overdrawn limit may be charged by the byte: with
//! any weights and charges the cut's cost is a lower bound of the objective. Stages that turn out slow gain weight (a
//! multiplicative rule), limits that are overdrawn get dearer (a subgradient step toward the best cost known).

use super::frame::{Frame, Prices};
use super::{Problem, intervals};

/// How strongly a stage that is the slowest gains weight in one round.
const GAIN: f64 = 2.0;

/// The multipliers for one choice of tiers.
pub(crate) struct Dual<'a> {
    problem: &'a Problem,
    base: Frame<'a>,
    base_prices: Prices,
    /// Shares of the interval's weight: tiers, then links.
    stages: Vec<f64>,
    /// Per byte of weights on each tier.
    memory: Vec<f64>,
}

impl<'a> Dual<'a> {
    /// More rounds close the gap slowly; these keep a graph of 300 layers within tens of milliseconds.
    pub(crate) const ROUNDS: usize = 12;

    pub(crate) fn new(problem: &'a Problem, tiers: &[usize]) -> Self {
        let base_prices = Prices::of(problem);
        let count = problem.tiers().len() + problem.links().len();
        let counts = |stage: &usize| match problem.links().get(stage.wrapping_sub(problem.tiers().len())) {
            Some(link) => tiers.contains(&link.from) && tiers.contains(&link.to),
            None => tiers.contains(stage),
        };
        let stages: Vec<f64> = (0..count)
            .map(|stage| f64::from(u8::from(counts(&stage))))
            .collect();
        let mut dual = Self {
            problem,
            base: Frame::new(problem, tiers.to_vec(), &base_prices),
            base_prices,
            stages,
            memory: vec![0.0; problem.tiers().len()],
        };
        dual.normalise();
        dual
    }

    /// Puts the multipliers on top of the objective's own prices.
    pub(crate) fn price(&self, prices: &mut Prices) {
        prices.clone_from(&self.base_prices);
        let tiers = self.problem.tiers().len();
        for (price, weight) in prices.compute.iter_mut().zip(&self.stages[..tiers]) {
            *price += weight;
        }
        for (price, weight) in prices.busy.iter_mut().zip(&self.stages[tiers..]) {
            *price += weight;
        }
        prices.weights.clone_from(&self.memory);
    }

    /// What the charges for memory come to when every limit is used up: the bound is that much lower than the cut's cost.
    pub(crate) fn constant(&self) -> f64 {
        let limits = self.problem.tiers().iter().map(|tier| tier.memory_bytes);
        let charges = limits
            .zip(&self.memory)
            .map(|(limit, price)| price * limit.unwrap_or(0) as f64);
        charges.sum()
    }

    /// The best cut within all limits along an order of the layers that this cut suggests.
    pub(crate) fn repair(&self, cut: &[usize]) -> Option<Vec<usize>> {
        let mut order = self.problem.graph().order().to_vec();
        order.sort_by_key(|layer| cut[*layer]);
        self.along(&order)
    }

    /// The best cut within all limits along this order of the layers.
    pub(crate) fn along(&self, order: &[usize]) -> Option<Vec<usize>> {
        intervals::best(&self.base, order).map(|(cut, _)| cut)
    }

    /// Moves the multipliers by what this cut does too much of.
    pub(crate) fn learn(&mut self, cut: &[usize], bound: f64, best: Option<f64>) {
        let tiers = self.problem.tiers().len();
        let layers = self.problem.graph().layers();
        let mut used = vec![0.0; tiers];
        let mut stages = vec![0.0; self.stages.len()];
        for (layer, tier) in cut.iter().copied().enumerate() {
            used[tier] += layers[layer].weight_bytes as f64;
            stages[tier] += self.problem.layer_ms(layer, tier).unwrap_or(0.0);
        }
        self.charge(&used, bound, best);
        // A cut that breaks a limit still says how long its links are busy.
        for (link, busy_ms) in self.problem.busy_links(cut) {
            stages[tiers + link] = busy_ms;
        }
        let slowest = stages.iter().copied().fold(0.0, f64::max);
        if slowest > 0.0 {
            for (weight, ms) in self.stages.iter_mut().zip(stages) {
                *weight *= (GAIN * (ms / slowest - 1.0)).exp();
            }
        }
        self.normalise();
    }

    fn charge(&mut self, used: &[f64], bound: f64, best: Option<f64>) {
        let over: Vec<f64> = used
            .iter()
            .zip(self.problem.tiers())
            .map(|(used, tier)| tier.memory_bytes.map_or(0.0, |limit| used - limit as f64))
            .collect();
        let moves = |over: f64, price: f64| over > 0.0 || price > 0.0;
        let squares = over
            .iter()
            .zip(&self.memory)
            .filter(|(over, price)| moves(**over, **price));
        let squares: f64 = squares.map(|(over, _)| over * over).sum();
        if squares > 0.0 {
            let missing = best.map_or_else(|| bound.abs(), |best| best - bound);
            for (price, over) in self.memory.iter_mut().zip(over) {
                *price = (*price + missing * over / squares).max(0.0);
            }
        }
    }

    fn normalise(&mut self) {
        let sum: f64 = self.stages.iter().sum();
        let weight = self.problem.objective().interval;
        for stage in &mut self.stages {
            *stage = if sum > 0.0 { *stage * weight / sum } else { 0.0 };
        }
    }
}
