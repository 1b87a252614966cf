//! How fast tiers and links are now, as far as measurements tell.

use super::{LayerGraph, Link, Problem, ProblemError, Tier, Weights};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// No measurement tells of less than this share of the time that something took at its fastest: a clock that stood still is no evidence.
const LEAST_STEP: f64 = 0.01;
/// Estimates stay between these, whatever is measured: beyond them numbers lose their meaning.
const RATE_MBIT_S: (f64, f64) = (1e-6, 1e9);
const FACTOR: (f64, f64) = (1e-6, 1e6);
/// A message tells of the rate only if its bytes make up this share of its time.
const MOSTLY_BYTES: f64 = 0.5;
/// What travels as one: when nothing has arrived, less than this has.
const PACKET: u64 = 1200;

/// Estimates that follow measurements: a factor for each tier, one for each layer on it, the rate of each link, the size of each tensor.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Conditions {
    graph: Arc<LayerGraph>,
    /// As it was profiled.
    usual_graph: Arc<LayerGraph>,
    tiers: Vec<Tier>,
    /// How slow each tier is when nothing special is the matter.
    usual: Vec<f64>,
    links: Vec<Link>,
    up: Vec<bool>,
    /// How fast each link is when nothing special is the matter.
    usual_mbit_s: Vec<f64>,
    /// The highest rate that each link was ever estimated at.
    fastest_mbit_s: Vec<f64>,
}

impl Conditions {
    pub(crate) fn new(problem: &Problem) -> Self {
        Self {
            graph: problem.graph().clone(),
            usual_graph: problem.graph().clone(),
            tiers: problem.tiers().to_vec(),
            usual: problem.tiers().iter().map(|tier| tier.slowdown).collect(),
            links: problem.links().to_vec(),
            up: vec![true; problem.links().len()],
            usual_mbit_s: rates(problem.links()),
            fastest_mbit_s: rates(problem.links()),
        }
    }

    /// The problem as it is now.
    pub(crate) fn problem(&self, nominal: &Problem, weights: Weights) -> Result<Problem, ProblemError> {
        self.problem_of(self.graph.clone(), nominal, weights)
    }

    /// Another graph on the same tiers: what is left of a request.
    pub(crate) fn problem_of(
        &self,
        graph: Arc<LayerGraph>,
        nominal: &Problem,
        weights: Weights,
    ) -> Result<Problem, ProblemError> {
        let up = self.links.iter().zip(&self.up).filter(|(_, up)| **up);
        let links = up.map(|(link, _)| *link).collect();
        Problem::new(graph, self.tiers.clone(), links, *nominal.objective(), weights)
    }

    /// The network with the times of its layers as measured.
    pub(crate) const fn graph(&self) -> &Arc<LayerGraph> {
        &self.graph
    }

    pub(crate) fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    pub(crate) fn tiers_mut(&mut self) -> &mut [Tier] {
        &mut self.tiers
    }

    /// Tiers that are known, not estimated.
    pub(crate) fn set_tiers(&mut self, tiers: Vec<Tier>) {
        self.usual = tiers.iter().map(|tier| tier.slowdown).collect();
        self.tiers = tiers;
    }

    /// Links that are known, not estimated.
    pub(crate) fn set_links(&mut self, links: Vec<Link>) {
        self.up = vec![true; links.len()];
        self.usual_mbit_s = rates(&links);
        self.fastest_mbit_s = rates(&links);
        self.links = links;
    }

    /// The same, with some links this many times faster than they ever were.
    pub(crate) fn hopeful(&self, which: impl Fn(usize) -> bool, optimism: f64) -> Self {
        let mut hopeful = self.clone();
        for (index, link) in hopeful
            .links
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| which(*index))
        {
            link.rate_mbit_s = self.fastest_mbit_s[index] * optimism;
        }
        hopeful
    }

    /// What these layers should take on this tier.
    pub(crate) fn compute_ms(&self, tier: usize, layers: &[usize]) -> Option<f64> {
        let ms = |layer: &usize| Some(self.graph.layers().get(*layer)?.ms(tier)? * self.tiers[tier].slowdown);
        layers.iter().map(ms).sum()
    }

    /// Corrects a layer when it was measured alone, for then its profile is off; else the tier, which is loaded or throttled.
    pub(crate) fn computed(&mut self, tier: usize, layers: &[usize], ratio: f64, gain: f64) {
        let factor = ratio.clamp(LEAST_STEP, FACTOR.1).powf(gain);
        match layers {
            [layer] => self.graph = Arc::new(self.graph.scaled(&self.usual_graph, *layer, tier, factor)),
            _ => {
                let slowdown = &mut self.tiers[tier].slowdown;
                *slowdown = (*slowdown * factor).clamp(FACTOR.0, FACTOR.1);
            }
        }
    }

    /// A tensor has this size on the wire.
    pub(crate) fn sized(&mut self, tensor: usize, bytes: u64) {
        self.graph = Arc::new(self.graph.sized(tensor, bytes));
    }

    /// Moves what is believed of tiers, and of layers on them, back to what is usual, by this share, where nothing was heard of them:
    /// load passes. `heard` are the tiers that were, each with the layers that it ran.
    pub(crate) fn forget(&mut self, heard: &BTreeSet<(usize, usize)>, share: f64) {
        for (index, tier) in self.tiers.iter_mut().enumerate() {
            if heard.range((index, 0)..(index + 1, 0)).next().is_none() {
                tier.slowdown *= (self.usual[index] / tier.slowdown).powf(share);
            }
        }
        let silent = |tier: usize, layer: usize| !heard.contains(&(tier, layer));
        if let Some(graph) = self.graph.toward(&self.usual_graph, share, silent) {
            self.graph = Arc::new(graph);
        }
    }

    /// The same of a link.
    pub(crate) fn forget_link(&mut self, link: usize, share: f64) {
        let rate = &mut self.links[link].rate_mbit_s;
        *rate *= (self.usual_mbit_s[link] / *rate).powf(share);
    }

    /// A link is believed to be so fast.
    pub(crate) fn set_rate(&mut self, link: usize, mbit_s: f64) {
        self.links[link].rate_mbit_s = mbit_s.clamp(RATE_MBIT_S.0, RATE_MBIT_S.1);
    }

    pub(crate) fn link(&self, from: usize, to: usize) -> Option<usize> {
        self.links
            .iter()
            .position(|link| (link.from, link.to) == (from, to))
    }

    /// The link the other way.
    pub(crate) fn way_back(&self, link: usize) -> Option<usize> {
        let Link { from, to, .. } = self.links[link];
        self.link(to, from)
    }

    pub(crate) fn links(&self) -> &[Link] {
        &self.links
    }

    pub(crate) fn is_up(&self, link: usize) -> bool {
        self.up[link]
    }

    /// A link is there (again), or gone.
    pub(crate) fn set_up(&mut self, link: usize, up: bool) {
        self.up[link] = up;
    }

    /// Whether a message of this size says anything of the rate.
    pub(crate) fn tells(&self, link: usize, bytes: u64, ms: f64) -> bool {
        let link = &self.links[link];
        let fixed = link.latency_ms + link.message_ms;
        ms.max(link.ms(bytes)) - fixed >= MOSTLY_BYTES * ms.max(link.ms(bytes)) && bytes > 0
    }

    /// Moves the estimate toward a message that took so long. What is averaged is the time of a byte, for that is what a plan
    /// will wait for: the mean of rates promises too much.
    pub(crate) fn sent(&mut self, index: usize, bytes: u64, ms: f64, gain: f64) {
        let link = &mut self.links[index];
        let before = link.ms_per_byte();
        let fixed = link.latency_ms + link.message_ms;
        // Of one that was out of reach one message tells all, however slow it seemed.
        let least = LEAST_STEP * 8.0 / (self.fastest_mbit_s[index] * 1e3);
        let measured = ((ms - fixed) / bytes as f64).max(least);
        link.rate_mbit_s = rate_mbit_s(before + gain * (measured - before));
        self.fastest_mbit_s[index] = self.fastest_mbit_s[index].max(link.rate_mbit_s);
    }

    /// Moves the estimate toward the pace of a message that is late: nothing is known of its end yet. Returns how many times
    /// slower that is than expected.
    pub(crate) fn crawls(&mut self, link: usize, arrived: u64, ms: f64, gain: f64) -> f64 {
        let link = &mut self.links[link];
        let before = link.ms_per_byte();
        let measured = (ms / arrived.max(PACKET) as f64).max(before * LEAST_STEP);
        link.rate_mbit_s = rate_mbit_s(before + gain * (measured - before));
        measured / before
    }
}

fn rates(links: &[Link]) -> Vec<f64> {
    links.iter().map(|link| link.rate_mbit_s).collect()
}

fn rate_mbit_s(ms_per_byte: f64) -> f64 {
    (8.0 / (ms_per_byte * 1e3)).clamp(RATE_MBIT_S.0, RATE_MBIT_S.1)
}
