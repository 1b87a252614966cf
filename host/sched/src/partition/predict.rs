//! What a cut would take: every policy is judged by this one account.

use super::objective::idle_w;
use super::problem::Shipping;
use super::{Infeasible, Problem, Producer};
use serde::{Deserialize, Serialize};

/// The predicted time and energy of a request that runs by a cut.
///
/// Nothing overlaps within a request that runs alone: its latency is the sum of what its layers and its transfers take. Where
/// branches or transfers do overlap in reality, it is an upper bound. Each tensor is a message of its own.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Prediction {
    /// From the input to the result, of a request that runs alone.
    pub latency_ms: f64,
    /// What all tiers draw meanwhile.
    pub energy_mj: f64,
    /// Between two results, when requests follow each other as closely as the slowest stage lets them.
    pub interval_ms: f64,
    /// Each tier's part.
    pub tiers: Vec<TierUse>,
    /// The links that are used.
    pub links: Vec<LinkUse>,
    /// Weights to be sent first.
    pub shipping: ShippingUse,
}

/// The predicted use of a tier by one request.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct TierUse {
    /// Its name.
    pub name: String,
    /// How many layers it runs.
    pub layers: usize,
    /// How long they take together.
    pub compute_ms: f64,
    /// Their weights, and the most that one of them needs beside.
    pub memory_bytes: u64,
    /// What it draws during the request, idling and sending included.
    pub energy_mj: f64,
}

/// The predicted use of a link by one request.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LinkUse {
    /// Where it begins.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// How many tensors.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long they take together.
    pub ms: f64,
    /// For how much of that they keep others from the link.
    pub busy_ms: f64,
}

/// The weights that are sent once before the cut can be used.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ShippingUse {
    /// Bytes of weights.
    pub bytes: u64,
    /// How long they take together.
    pub ms: f64,
    /// What the senders draw for it.
    pub energy_mj: f64,
    /// What it costs by the objective, spread over the requests that profit.
    pub cost: f64,
}

impl Problem {
    /// What a request takes when each layer runs on its tier of `assignment`.
    ///
    /// # Errors
    ///
    /// It cannot run like that.
    pub fn predict(&self, assignment: &[usize]) -> Result<Prediction, Infeasible> {
        self.check_length(assignment)?;
        let mut tiers = self.compute(assignment)?;
        let mut account = Account::new(self);
        account.transfers(assignment)?;
        let links: Vec<LinkUse> = account.used().map(|(_, link)| link).collect();
        let shipping = self.ship(assignment)?;

        let transfer_ms: f64 = links.iter().map(|link| link.ms).sum();
        let latency_ms = transfer_ms + tiers.iter().map(|tier| tier.compute_ms).sum::<f64>();
        for (index, tier) in tiers.iter_mut().enumerate() {
            let power = &self.tiers()[index].power;
            let sends = links.iter().filter(|link| link.from == index);
            let sending_ms: f64 = sends.map(|link| link.ms).sum();
            tier.energy_mj = power.busy_w * tier.compute_ms
                + power.idle_w * (latency_ms - tier.compute_ms)
                + power.transmit_w * sending_ms;
        }
        let stages = tiers.iter().map(|tier| tier.compute_ms);
        let stages = stages.chain(links.iter().map(|link| link.busy_ms));
        Ok(Prediction {
            latency_ms,
            energy_mj: tiers.iter().map(|tier| tier.energy_mj).sum(),
            interval_ms: stages.fold(0.0, f64::max),
            tiers,
            links,
            shipping,
        })
    }

    /// For how long each used link is busy, by its index, whether or not the tiers can hold and run the layers.
    pub(crate) fn busy_links(&self, assignment: &[usize]) -> Vec<(usize, f64)> {
        let mut account = Account::new(self);
        match account.transfers(assignment) {
            Ok(()) => account
                .used()
                .map(|(index, link)| (index, link.busy_ms))
                .collect(),
            Err(_) => Vec::new(),
        }
    }

    /// The objective's value: what policies make small.
    pub fn cost(&self, prediction: &Prediction) -> f64 {
        let objective = self.objective();
        objective.latency * prediction.latency_ms
            + objective.energy * prediction.energy_mj
            + objective.interval * prediction.interval_ms
            + prediction.shipping.cost
    }

    fn check_length(&self, assignment: &[usize]) -> Result<(), Infeasible> {
        let (have, layers) = (assignment.len(), self.graph().layers().len());
        match have == layers {
            true => Ok(()),
            false => Err(Infeasible::Length { have, layers }),
        }
    }

    fn compute(&self, assignment: &[usize]) -> Result<Vec<TierUse>, Infeasible> {
        let new = |tier: &super::Tier| TierUse {
            name: tier.name.clone(),
            ..TierUse::default()
        };
        let mut uses: Vec<TierUse> = self.tiers().iter().map(new).collect();
        let mut working = vec![0; uses.len()];
        for (index, (layer, tier)) in self.graph().layers().iter().zip(assignment).enumerate() {
            let ms = self
                .layer_ms(index, *tier)
                .ok_or_else(|| self.refusal(index, *tier))?;
            let tier_use = &mut uses[*tier];
            tier_use.layers += 1;
            tier_use.compute_ms += ms;
            tier_use.memory_bytes = tier_use.memory_bytes.saturating_add(layer.weight_bytes);
            working[*tier] = layer.working_bytes.max(working[*tier]);
        }
        for (tier, (tier_use, working)) in uses.iter_mut().zip(working).enumerate() {
            tier_use.memory_bytes = tier_use.memory_bytes.saturating_add(working);
            let (needs, limit) = (tier_use.memory_bytes, self.tiers()[tier].memory_bytes);
            if let Some(limit) = limit.filter(|limit| needs > *limit) {
                return Err(Infeasible::Memory { tier, needs, limit });
            }
        }
        Ok(uses)
    }

    fn refusal(&self, layer: usize, tier: usize) -> Infeasible {
        match self.tiers()[tier].available {
            true => Infeasible::CannotRun { layer, tier },
            false => Infeasible::NotAvailable { tier },
        }
    }

    fn ship(&self, assignment: &[usize]) -> Result<ShippingUse, Infeasible> {
        let mut shipping = ShippingUse::default();
        for (layer, tier) in assignment.iter().copied().enumerate() {
            let path = match self.shipping(layer, tier) {
                Shipping::Held => continue,
                Shipping::From { path, .. } => path,
                Shipping::Impossible => return Err(Infeasible::NoWeights { layer, tier }),
            };
            let bytes = self.graph().layers()[layer].weight_bytes;
            shipping.bytes = shipping.bytes.saturating_add(bytes);
            for link in path.links.iter().map(|link| &self.links()[*link]) {
                let ms = link.ms(bytes);
                shipping.ms += ms;
                shipping.energy_mj += ms * self.tiers()[link.from].power.transmit_w;
                let price = self.objective().shipping_price(self.tiers(), link);
                shipping.cost += ms * price / self.over_requests();
            }
        }
        Ok(shipping)
    }

    /// Watts of all tiers while nobody computes.
    pub fn idle_w(&self) -> f64 {
        idle_w(self.tiers())
    }
}

/// Messages and bytes for each link.
struct Account<'a> {
    problem: &'a Problem,
    uses: Vec<(u64, u64)>,
}

impl<'a> Account<'a> {
    fn new(problem: &'a Problem) -> Self {
        Self {
            problem,
            uses: vec![(0, 0); problem.links().len()],
        }
    }

    fn transfers(&mut self, assignment: &[usize]) -> Result<(), Infeasible> {
        let graph = self.problem.graph();
        let mut takes_part = vec![false; self.problem.tiers().len()];
        for tier in assignment.iter().copied().chain(graph.held_at()) {
            takes_part[tier] = true;
        }
        for tensor in graph.tensors() {
            let at = match tensor.from {
                Producer::Held(tier) => tier,
                Producer::Layer(layer) => assignment[layer],
            };
            let takers = || tensor.to.iter().map(|layer| (*layer, assignment[*layer]));
            if let (Producer::Layer(from), Some((to, _))) =
                (tensor.from, takers().find(|(_, tier)| *tier < at))
            {
                return Err(Infeasible::GoesBack { from, to });
            }
            let farthest = takers().map(|(_, tier)| tier).max().unwrap_or(at);
            let nearest = takers().map(|(_, tier)| tier).min().unwrap_or(at);
            self.hops(
                (at + 1..=farthest).filter(|tier| takes_part[*tier]),
                at,
                tensor.bytes,
            )?;
            self.hops(
                (nearest..at).rev().filter(|tier| takes_part[*tier]),
                at,
                tensor.bytes,
            )?;
            if let Some(wanted_at) = tensor.wanted_at.filter(|tier| *tier != at) {
                self.hop(at, wanted_at, tensor.bytes)?;
            }
        }
        Ok(())
    }

    /// From tier to tier.
    fn hops(
        &mut self,
        over: impl Iterator<Item = usize>,
        mut at: usize,
        bytes: u64,
    ) -> Result<(), Infeasible> {
        for next in over {
            self.hop(at, next, bytes)?;
            at = next;
        }
        Ok(())
    }

    fn hop(&mut self, from: usize, to: usize, bytes: u64) -> Result<(), Infeasible> {
        let path = self.problem.path(from, to, bytes);
        for link in &path.ok_or(Infeasible::Unreachable { from, to })?.links {
            let (messages, sum) = &mut self.uses[*link];
            *messages += 1;
            *sum = sum.saturating_add(bytes);
        }
        Ok(())
    }

    /// The links that are used, with their indices.
    fn used(&self) -> impl Iterator<Item = (usize, LinkUse)> {
        let links = self.problem.links().iter().zip(&self.uses).enumerate();
        let used = links.filter(|(_, (_, (messages, _)))| *messages > 0);
        used.map(|(index, (link, (messages, bytes)))| {
            let busy_ms = link.message_ms * *messages as f64 + *bytes as f64 * link.ms_per_byte();
            let link_use = LinkUse {
                from: link.from,
                to: link.to,
                messages: *messages,
                bytes: *bytes,
                ms: busy_ms + link.latency_ms * *messages as f64,
                busy_ms,
            };
            (index, link_use)
        })
    }
}
