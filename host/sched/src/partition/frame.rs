//! A problem with the tiers that take part written down, as tables of costs: what the policies compute on.

use super::problem::Shipping;
use super::{Layer, Problem, Producer, Tensor};

/// What one more millisecond or byte costs, by the objective or with multipliers on top.
#[derive(Clone, Debug)]
pub(crate) struct Prices {
    /// Per millisecond of computing on each tier.
    pub(crate) compute: Vec<f64>,
    /// Per millisecond under way on each link.
    pub(crate) transfer: Vec<f64>,
    /// Per millisecond that each link is busy.
    pub(crate) busy: Vec<f64>,
    /// Per byte of weights on each tier.
    pub(crate) weights: Vec<f64>,
}

impl Prices {
    /// The objective's own, without its interval, which is no sum.
    pub(crate) fn of(problem: &Problem) -> Self {
        let (objective, tiers) = (problem.objective(), problem.tiers());
        let transfer = |link| objective.transfer_price(tiers, link);
        Self {
            compute: (0..tiers.len())
                .map(|tier| objective.compute_price(tiers, tier))
                .collect(),
            transfer: problem.links().iter().map(transfer).collect(),
            busy: vec![0.0; problem.links().len()],
            weights: vec![0.0; tiers.len()],
        }
    }
}

/// The problem among chosen tiers, at some prices. What is impossible costs [`f64::INFINITY`].
pub(crate) struct Frame<'a> {
    pub(crate) problem: &'a Problem,
    /// The tiers that take part, ascending.
    pub(crate) tiers: Vec<usize>,
    /// `run[place][layer]`: what a layer costs on the tier at that place among those that take part.
    pub(crate) run: Vec<Vec<f64>>,
    /// `up[level][tensor]`: what a tensor costs from the tier at place `level` to the next one.
    pub(crate) up: Vec<Vec<f64>>,
    /// `down[level][tensor]`: and back. Only held tensors go back.
    pub(crate) down: Vec<Vec<f64>>,
    /// `back_ms[place][layer]`: how long the layer's results keep the busiest link of their way back.
    pub(crate) back_ms: Vec<Vec<f64>>,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(problem: &'a Problem, tiers: Vec<usize>, prices: &Prices) -> Self {
        let layers = 0..problem.graph().layers().len();
        let run = |tier: &usize| {
            let cost = |layer| run_cost(problem, layer, *tier, prices);
            layers.clone().map(cost).collect()
        };
        let mut run: Vec<Vec<f64>> = tiers.iter().map(run).collect();
        let mut back_ms = vec![vec![0.0; problem.graph().layers().len()]; tiers.len()];
        for tensor in problem.graph().tensors() {
            if let (Producer::Layer(layer), Some(wanted_at)) = (tensor.from, tensor.wanted_at) {
                for (place, tier) in tiers.iter().enumerate() {
                    run[place][layer] += send_cost(problem, *tier, wanted_at, tensor.bytes, prices);
                    let path = problem
                        .path(*tier, wanted_at, tensor.bytes)
                        .filter(|_| *tier != wanted_at);
                    for link in path.into_iter().flat_map(|path| &path.links) {
                        back_ms[place][layer] = problem.links()[*link]
                            .busy_ms(tensor.bytes)
                            .max(back_ms[place][layer]);
                    }
                }
            }
        }
        let level = |from: usize, to: usize| {
            let tensors = problem.graph().tensors().iter();
            let cost = |tensor: &Tensor| match tensor.is_used() {
                true => send_cost(problem, from, to, tensor.bytes, prices),
                false => 0.0,
            };
            tensors.map(cost).collect()
        };
        let up = tiers.windows(2).map(|pair| level(pair[0], pair[1])).collect();
        let down = tiers.windows(2).map(|pair| level(pair[1], pair[0])).collect();
        Self {
            problem,
            tiers,
            run,
            up,
            down,
            back_ms,
        }
    }

    /// The same tiers at other prices.
    pub(crate) fn reprice(&mut self, prices: &Prices) {
        *self = Self::new(self.problem, std::mem::take(&mut self.tiers), prices);
    }

    /// The place of a tier among those that take part.
    pub(crate) fn place(&self, tier: usize) -> usize {
        self.tiers.partition_point(|other| *other < tier)
    }

    /// What held results cost that go straight to where they are wanted: the same for every cut.
    pub(crate) fn fixed_cost(&self, prices: &Prices) -> f64 {
        let tensors = self.problem.graph().tensors().iter();
        tensors
            .filter_map(|tensor| match (tensor.from, tensor.wanted_at) {
                (Producer::Held(at), Some(wanted)) => {
                    Some(send_cost(self.problem, at, wanted, tensor.bytes, prices))
                }
                _ => None,
            })
            .sum()
    }
}

/// All choices of tiers that could take part: those that hold something always do. Fewer tiers come first.
///
/// Where every link joins neighbours there is one choice: all of them. A tier without layers then costs nothing, for what
/// passes by has to pass through it.
pub(crate) fn participants(problem: &Problem) -> Vec<Vec<usize>> {
    if problem
        .links()
        .iter()
        .all(|link| link.from.abs_diff(link.to) == 1)
    {
        let there = (0..problem.tiers().len()).filter(|tier| problem.tiers()[*tier].available);
        let mut tiers: Vec<usize> = there.chain(problem.graph().held_at()).collect();
        tiers.sort_unstable();
        tiers.dedup();
        return vec![tiers];
    }
    let held = problem.graph().held_at();
    let free = |tier: &usize| problem.tiers()[*tier].available && !held.contains(tier);
    let free: Vec<usize> = (0..problem.tiers().len()).filter(free).collect();
    let choice = |chosen: usize| {
        let bits = free.iter().enumerate().filter(|(bit, _)| chosen >> bit & 1 == 1);
        let mut tiers: Vec<usize> = bits.map(|(_, tier)| *tier).chain(held.iter().copied()).collect();
        tiers.sort_unstable();
        tiers
    };
    let mut choices: Vec<Vec<usize>> = (0..1_usize << free.len()).map(choice).collect();
    // Somebody has to run the layers, even those that take no input.
    choices.retain(|tiers| !tiers.is_empty());
    choices.sort_by_key(Vec::len);
    choices
}

fn run_cost(problem: &Problem, layer: usize, tier: usize, prices: &Prices) -> f64 {
    let Layer {
        weight_bytes,
        working_bytes,
        ..
    } = problem.graph().layers()[layer];
    let Some(ms) = problem.layer_ms(layer, tier) else {
        return f64::INFINITY;
    };
    let fits = |limit| weight_bytes.saturating_add(working_bytes) <= limit;
    if !problem.tiers()[tier].memory_bytes.is_none_or(fits) {
        return f64::INFINITY;
    }
    let shipping = match problem.shipping(layer, tier) {
        Shipping::Held => 0.0,
        Shipping::Impossible => return f64::INFINITY,
        Shipping::From { path, .. } => {
            let cost = |link: &usize| {
                let link = &problem.links()[*link];
                link.ms(weight_bytes) * problem.objective().shipping_price(problem.tiers(), link)
            };
            path.links.iter().map(cost).sum::<f64>() / problem.over_requests()
        }
    };
    ms * prices.compute[tier] + shipping + weight_bytes as f64 * prices.weights[tier]
}

/// What a message costs from one tier to another.
fn send_cost(problem: &Problem, from: usize, to: usize, bytes: u64, prices: &Prices) -> f64 {
    if from == to {
        return 0.0;
    }
    let Some(path) = problem.path(from, to, bytes) else {
        return f64::INFINITY;
    };
    let cost = |index: &usize| {
        let link = &problem.links()[*index];
        link.ms(bytes) * prices.transfer[*index] + link.busy_ms(bytes) * prices.busy[*index]
    };
    path.links.iter().map(cost).sum()
}
