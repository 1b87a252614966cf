//! A network to cut, the tiers that may run it, and what counts.

use super::passage::{Passages, Path};
use super::{LayerGraph, LayerTime, Objective, ProblemError, Producer};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One problem of partition, checked: which layer runs on which tier?
///
/// Tiers are ordered. Activations go from a tier to later ones only; results and held activations may also go back. Data pass
/// through the tiers that take part, in their order, and between two of these by the cheapest way, be it a direct link or one
/// over tiers that take no part.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Problem {
    graph: Arc<LayerGraph>,
    tiers: Vec<Tier>,
    links: Vec<Link>,
    objective: Objective,
    weights: Weights,
    passages: Passages,
}

/// A node that may run layers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Tier {
    /// Its name, for people.
    pub name: String,
    /// How much longer its layers take than their [`LayerTime`] says: 1 where they were measured here and nothing has
    /// changed, more under load or throttling.
    pub slowdown: f64,
    /// What it can hold: weights of its layers, and the most that one of them needs beside. Nothing: no limit.
    pub memory_bytes: Option<u64>,
    /// What it draws.
    pub power: Power,
    /// Whether it is there. One that is not runs nothing and passes nothing on.
    pub available: bool,
}

impl Tier {
    /// One that is there, as fast as it was measured, without a limit of memory, and whose energy does not count.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            slowdown: 1.0,
            memory_bytes: None,
            power: Power::default(),
            available: true,
        }
    }
}

/// Watts. Zero for a tier whose energy does not count.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Power {
    /// While it computes.
    pub busy_w: f64,
    /// While it does not, for as long as the request lasts.
    pub idle_w: f64,
    /// On top of the rest, while it sends.
    pub transmit_w: f64,
}

/// A way from one tier to another.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Link {
    /// Where it begins.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// Megabits (10⁶) per second.
    pub rate_mbit_s: f64,
    /// Milliseconds until what is sent arrives; others may be sent meanwhile.
    pub latency_ms: f64,
    /// Milliseconds that each message occupies the link besides its bytes.
    pub message_ms: f64,
}

/// Where weights lie already, on disk or in memory, and whether others may be sent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Weights {
    /// On every tier.
    Everywhere,
    /// Where `held[tier][layer]` says. What is missing is sent once, and its cost is spread over this many requests.
    Shipped {
        /// Who holds what.
        held: Vec<Vec<bool>>,
        /// How many requests will profit.
        over_requests: f64,
    },
    /// Where `held[tier][layer]` says, and nowhere else.
    Only {
        /// Who holds what.
        held: Vec<Vec<bool>>,
    },
}

impl Link {
    /// How long the bytes and the message itself occupy the link.
    pub fn busy_ms(&self, bytes: u64) -> f64 {
        self.message_ms + bytes as f64 * self.ms_per_byte()
    }

    /// How long until a message of this size has arrived.
    pub fn ms(&self, bytes: u64) -> f64 {
        self.latency_ms + self.busy_ms(bytes)
    }

    pub(crate) const fn ms_per_byte(&self) -> f64 {
        8.0 / (self.rate_mbit_s * 1e3)
    }
}

impl Problem {
    /// More tiers than anybody has in a row; the number of ways between two grows exponentially.
    pub const MAX_TIERS: usize = 6;

    /// Checks everything that could make a plan meaningless.
    ///
    /// # Errors
    ///
    /// The field that is wrong, and why.
    pub fn new(
        graph: impl Into<Arc<LayerGraph>>,
        tiers: Vec<Tier>,
        links: Vec<Link>,
        objective: Objective,
        weights: Weights,
    ) -> Result<Self, ProblemError> {
        let graph = graph.into();
        check_tiers(&tiers)?;
        check_graph(&graph, tiers.len())?;
        check_links(&links, tiers.len())?;
        check_weights(&weights, tiers.len(), graph.layers().len())?;
        objective.check(&tiers)?;
        let passages = Passages::new(&tiers, &links, &objective);
        Ok(Self {
            graph,
            tiers,
            links,
            objective,
            weights,
            passages,
        })
    }

    /// The network.
    pub const fn graph(&self) -> &Arc<LayerGraph> {
        &self.graph
    }

    /// The tiers, in their order.
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// The links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// What counts.
    pub const fn objective(&self) -> &Objective {
        &self.objective
    }

    /// Where the weights are.
    pub const fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The same network under other conditions.
    ///
    /// # Errors
    ///
    /// As [`Problem::new`].
    pub fn under(&self, tiers: Vec<Tier>, links: Vec<Link>, weights: Weights) -> Result<Self, ProblemError> {
        Self::new(self.graph.clone(), tiers, links, self.objective, weights)
    }

    /// The same, judged by something else.
    ///
    /// # Errors
    ///
    /// As [`Problem::new`].
    pub fn judged_by(&self, objective: Objective) -> Result<Self, ProblemError> {
        let (tiers, links) = (self.tiers.clone(), self.links.clone());
        Self::new(self.graph.clone(), tiers, links, objective, self.weights.clone())
    }

    /// Milliseconds of a layer on a tier, nothing where it cannot run.
    pub fn layer_ms(&self, layer: usize, tier: usize) -> Option<f64> {
        let tier_now = &self.tiers[tier];
        let ms = self.graph.layers()[layer].ms(tier)?;
        tier_now.available.then_some(ms * tier_now.slowdown)
    }

    /// The cheapest way for this many bytes, as indices of links.
    pub(crate) fn path(&self, from: usize, to: usize, bytes: u64) -> Option<&Path> {
        self.passages.best(from, to, bytes)
    }

    /// What sending the weights of a layer to a tier takes: nothing to send, a way from one that holds them, or no way.
    pub(crate) fn shipping(&self, layer: usize, tier: usize) -> Shipping<'_> {
        let held = match &self.weights {
            Weights::Everywhere => return Shipping::Held,
            Weights::Shipped { held, .. } | Weights::Only { held } => held,
        };
        let bytes = self.graph.layers()[layer].weight_bytes;
        if held[tier][layer] || bytes == 0 {
            return Shipping::Held;
        }
        if matches!(self.weights, Weights::Only { .. }) {
            return Shipping::Impossible;
        }
        let holders = (0..self.tiers.len()).filter(|holder| held[*holder][layer]);
        let ways = holders.filter_map(|holder| Some((holder, self.path(holder, tier, bytes)?)));
        let best = ways.min_by(|(_, a), (_, b)| a.cost(bytes).total_cmp(&b.cost(bytes)));
        best.map_or(Shipping::Impossible, |(holder, path)| Shipping::From {
            holder,
            path,
        })
    }

    /// Over how many requests the sending of weights is spread.
    pub(crate) const fn over_requests(&self) -> f64 {
        match self.weights {
            Weights::Shipped { over_requests, .. } => over_requests,
            _ => 1.0,
        }
    }
}

/// How the weights of a layer come to a tier.
pub(crate) enum Shipping<'a> {
    /// They are there.
    Held,
    /// From one that holds them.
    From { holder: usize, path: &'a Path },
    /// Not at all.
    Impossible,
}

fn check_tiers(tiers: &[Tier]) -> Result<(), ProblemError> {
    if tiers.is_empty() || tiers.len() > Problem::MAX_TIERS {
        return Err(ProblemError::Tiers(tiers.len()));
    }
    for tier in tiers {
        let of = || format!("tier `{}`", tier.name);
        above_zero("slowdown", of, tier.slowdown)?;
        not_negative("busy_w", of, tier.power.busy_w)?;
        not_negative("idle_w", of, tier.power.idle_w)?;
        not_negative("transmit_w", of, tier.power.transmit_w)?;
    }
    Ok(())
}

fn check_graph(graph: &LayerGraph, tiers: usize) -> Result<(), ProblemError> {
    for (index, layer) in graph.layers().iter().enumerate() {
        if let LayerTime::Measured(times) = &layer.time {
            length(|| format!("times of layer {index}"), times.len(), tiers)?;
        }
    }
    for (index, tensor) in graph.tensors().iter().enumerate() {
        let held = match tensor.from {
            Producer::Held(tier) => Some(tier),
            Producer::Layer(_) => None,
        };
        for tier in held.into_iter().chain(tensor.wanted_at) {
            exists(|| format!("tensor {index}"), tier, tiers)?;
        }
    }
    Ok(())
}

fn check_links(links: &[Link], tiers: usize) -> Result<(), ProblemError> {
    for (index, link) in links.iter().enumerate() {
        let Link { from, to, .. } = *link;
        let of = || format!("the link from tier {from} to tier {to}");
        exists(of, from, tiers)?;
        exists(of, to, tiers)?;
        let wrong = |what| ProblemError::Link { from, to, what };
        if from == to {
            return Err(wrong("from a tier to itself"));
        }
        if links[..index]
            .iter()
            .any(|other| (other.from, other.to) == (from, to))
        {
            return Err(wrong("there twice"));
        }
        above_zero("rate_mbit_s", of, link.rate_mbit_s)?;
        not_negative("latency_ms", of, link.latency_ms)?;
        not_negative("message_ms", of, link.message_ms)?;
    }
    Ok(())
}

fn check_weights(weights: &Weights, tiers: usize, layers: usize) -> Result<(), ProblemError> {
    let held = match weights {
        Weights::Everywhere => return Ok(()),
        Weights::Shipped { held, over_requests } => {
            above_zero("over_requests", || "the weights".into(), *over_requests)?;
            held
        }
        Weights::Only { held } => held,
    };
    length(|| "tiers that hold weights".into(), held.len(), tiers)?;
    for (tier, held) in held.iter().enumerate() {
        length(|| format!("weights of tier {tier}"), held.len(), layers)?;
    }
    Ok(())
}

fn exists(of: impl Fn() -> String, tier: usize, tiers: usize) -> Result<(), ProblemError> {
    match tier < tiers {
        true => Ok(()),
        false => Err(ProblemError::NoSuchTier {
            of: of(),
            tier,
            tiers,
        }),
    }
}

fn length(what: impl Fn() -> String, have: usize, expected: usize) -> Result<(), ProblemError> {
    match have == expected {
        true => Ok(()),
        false => Err(ProblemError::Length {
            what: what(),
            have,
            expected,
        }),
    }
}

pub(super) fn not_negative(
    field: &'static str,
    of: impl Fn() -> String,
    value: f64,
) -> Result<(), ProblemError> {
    match value.is_finite() && value >= 0.0 {
        true => Ok(()),
        false => Err(ProblemError::Number {
            field,
            of: of(),
            value,
            bound: "not negative",
        }),
    }
}

fn above_zero(field: &'static str, of: impl Fn() -> String, value: f64) -> Result<(), ProblemError> {
    match value.is_finite() && value > 0.0 {
        true => Ok(()),
        false => Err(ProblemError::Number {
            field,
            of: of(),
            value,
            bound: "above zero",
        }),
    }
}

/// A problem as it is written down, before it is checked.
#[derive(Deserialize, Serialize)]
struct Parts {
    graph: Arc<LayerGraph>,
    tiers: Vec<Tier>,
    links: Vec<Link>,
    objective: Objective,
    weights: Weights,
}

impl TryFrom<Parts> for Problem {
    type Error = ProblemError;

    fn try_from(parts: Parts) -> Result<Self, ProblemError> {
        Self::new(
            parts.graph,
            parts.tiers,
            parts.links,
            parts.objective,
            parts.weights,
        )
    }
}

impl From<Problem> for Parts {
    fn from(problem: Problem) -> Self {
        Self {
            graph: problem.graph,
            tiers: problem.tiers,
            links: problem.links,
            objective: problem.objective,
            weights: problem.weights,
        }
    }
}
