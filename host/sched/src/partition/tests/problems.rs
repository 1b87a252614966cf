//! Random problems that are small enough to try everything.

use crate::partition::{
    Layer, LayerGraph, LayerTime, Link, Objective, Power, Problem, Producer, Tensor, Tier, Weights,
};
use fastrand::Rng;

/// What is drawn into a problem.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    pub(crate) tiers: usize,
    /// Skip connections, shared tensors and several inputs.
    pub(crate) branches: bool,
    pub(crate) objective: Objective,
    /// Memory limits that some cuts break.
    pub(crate) tight: bool,
    /// Weights that are not everywhere, and links that leave tiers out.
    pub(crate) uneven: bool,
}

impl Shape {
    pub(crate) fn draw(self, seed: u64) -> Problem {
        let mut rng = Rng::with_seed(seed);
        let graph = self.graph(&mut rng);
        let tiers = (0..self.tiers).map(|index| self.tier(index, &mut rng)).collect();
        let weights = match self.uneven {
            true => Weights::Shipped {
                held: (0..self.tiers)
                    .map(|tier| (0..self.layers).map(|_| tier == 0 || rng.bool()).collect())
                    .collect(),
                over_requests: rng.f64() * 50.0 + 1.0,
            },
            false => Weights::Everywhere,
        };
        let links = self.links(&mut rng);
        Problem::new(graph, tiers, links, self.objective, weights).unwrap()
    }

    fn graph(self, rng: &mut Rng) -> LayerGraph {
        let layer = |rng: &mut Rng, index: usize| Layer {
            name: format!("layer{index}"),
            time: LayerTime::Reference(rng.f64() * 20.0),
            weight_bytes: rng.u64(0..1000),
            working_bytes: rng.u64(0..300),
        };
        let layers: Vec<Layer> = (0..self.layers).map(|index| layer(rng, index)).collect();
        if !self.branches {
            let outputs: Vec<u64> = layers.iter().map(|_| rng.u64(0..60_000)).collect();
            return LayerGraph::chain(layers, rng.u64(1..60_000), &outputs).unwrap();
        }
        let mut tensors = Vec::new();
        for layer in 0..self.layers {
            let to: Vec<usize> = (layer + 1..self.layers).filter(|_| rng.f64() < 0.4).collect();
            let wanted = to.is_empty() || rng.f64() < 0.1;
            tensors.push(Tensor {
                from: Producer::Layer(layer),
                to,
                wanted_at: wanted.then_some(0),
                bytes: rng.u64(0..60_000),
            });
        }
        for _ in 0..rng.usize(1..3) {
            tensors.push(Tensor {
                from: Producer::Held(if self.uneven { rng.usize(..self.tiers) } else { 0 }),
                to: (0..self.layers).filter(|_| rng.f64() < 0.4).collect(),
                wanted_at: None,
                bytes: rng.u64(0..60_000),
            });
        }
        LayerGraph::new(layers, tensors).unwrap()
    }

    fn tier(self, index: usize, rng: &mut Rng) -> Tier {
        Tier {
            name: format!("tier{index}"),
            slowdown: (0.1 + rng.f64()) / (1.0 + index as f64),
            memory_bytes: (self.tight && rng.bool()).then(|| rng.u64(300..500 * self.layers as u64)),
            power: Power {
                busy_w: rng.f64() * 10.0,
                idle_w: rng.f64() * 3.0,
                transmit_w: rng.f64() * 2.0,
            },
            available: true,
        }
    }

    fn links(self, rng: &mut Rng) -> Vec<Link> {
        let mut links = Vec::new();
        for from in 0..self.tiers {
            for to in (0..self.tiers).filter(|to| *to != from) {
                let neighbours = from.abs_diff(to) == 1;
                if neighbours || (self.uneven && rng.bool()) {
                    links.push(Link {
                        from,
                        to,
                        rate_mbit_s: 1.0 + rng.f64() * 60.0,
                        latency_ms: rng.f64() * 3.0,
                        message_ms: rng.f64(),
                    });
                }
            }
        }
        links
    }
}

/// The least cost of all assignments there are; nothing when none can run.
pub(crate) fn brute_force(problem: &Problem) -> Option<f64> {
    let (layers, tiers) = (problem.graph().layers().len(), problem.tiers().len());
    let all = 0..tiers.pow(layers as u32);
    let costs = all.filter_map(|code| {
        let assignment: Vec<usize> = (0..layers)
            .map(|layer| code / tiers.pow(layer as u32) % tiers)
            .collect();
        Some(problem.cost(&problem.predict(&assignment).ok()?))
    });
    costs.min_by(f64::total_cmp)
}
