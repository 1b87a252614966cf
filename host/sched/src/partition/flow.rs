//! The K-tier cut of a graph as one minimum cut, after DADS (Hu et al., INFOCOM 2019).
//!
//! Between K tiers that take part there are K-1 levels. Each layer has one vertex for each level, on the source's side of the
//! cut when the layer runs beyond that level. What is held lies beside the source: a tensor's transfer is paid when something
//! on the other side takes it, by an auxiliary vertex once for all that do.

use super::Producer;
use super::frame::Frame;
use ac_library::MfGraph;

/// Capacities are integers, so that flows add up exactly: the sum of all finite ones is scaled to this.
const SCALE: f64 = (1_u64 << 44) as f64;
/// More than everything finite together; a hundred thousand of these still fit into 63 bits.
const INFINITE: i64 = 1 << 46;

const SOURCE: usize = 0;
const SINK: usize = 1;

/// The cheapest assignment, if there is one, and what it costs.
pub(crate) fn cheapest(frame: &Frame<'_>) -> Option<(Vec<usize>, f64)> {
    let layers = frame.problem.graph().layers().len();
    let levels = frame.tiers.len() - 1;
    let mut network = Network {
        layers,
        vertices: 2 + levels * layers,
        arcs: Vec::new(),
    };
    let mut floor = 0.0;
    for layer in 0..layers {
        floor += network.layer(frame, layer)?;
    }
    for level in 0..levels {
        for (index, tensor) in frame.problem.graph().tensors().iter().enumerate() {
            let takers: Vec<usize> = tensor
                .to
                .iter()
                .map(|layer| network.copy(level, *layer))
                .collect();
            match tensor.from {
                Producer::Layer(layer) => {
                    let from = network.copy(level, layer);
                    for taker in &takers {
                        network.arc(from, *taker, f64::INFINITY);
                    }
                    network.any_beyond(&takers, from, frame.up[level][index]);
                }
                Producer::Held(tier) if frame.place(tier) <= level => {
                    network.any_beyond(&takers, SINK, frame.up[level][index]);
                }
                Producer::Held(_) => network.any_before(&takers, frame.down[level][index]),
            }
        }
    }
    let (beyond, cost) = network.cut()?;
    let places = |layer| {
        (0..levels)
            .filter(|level| beyond[2 + level * layers + layer])
            .count()
    };
    let assignment = (0..layers).map(|layer| frame.tiers[places(layer)]).collect();
    Some((assignment, floor + cost))
}

struct Network {
    layers: usize,
    vertices: usize,
    arcs: Vec<(usize, usize, f64)>,
}

impl Network {
    const fn copy(&self, level: usize, layer: usize) -> usize {
        2 + level * self.layers + layer
    }

    fn arc(&mut self, from: usize, to: usize, capacity: f64) {
        if capacity > 0.0 {
            self.arcs.push((from, to, capacity));
        }
    }

    /// One row of arcs through the layer's vertices, of which the cut takes exactly one: that of its tier. Returns what the
    /// layer costs at least; only the excess over it has to flow.
    fn layer(&mut self, frame: &Frame<'_>, layer: usize) -> Option<f64> {
        let cost = |place: usize| frame.run[place][layer];
        let least = (0..frame.tiers.len()).map(cost).fold(f64::INFINITY, f64::min);
        if !least.is_finite() {
            return None;
        }
        let last = frame.tiers.len() - 1;
        let vertex = |place: usize| match place {
            0 => SOURCE,
            place => 2 + (place - 1) * self.layers + layer,
        };
        let row: Vec<usize> = (0..=last).map(vertex).chain([SINK]).collect();
        for place in 0..=last {
            self.arc(row[place], row[place + 1], cost(place) - least);
            if place > 0 && place < last {
                self.arc(row[place + 1], row[place], f64::INFINITY);
            }
        }
        Some(least)
    }

    /// Pays once when any of the takers is beyond the level and `from` is not.
    fn any_beyond(&mut self, takers: &[usize], from: usize, cost: f64) {
        match takers {
            [] => {}
            [taker] => self.arc(*taker, from, cost),
            takers => {
                let any = self.auxiliary();
                for taker in takers {
                    self.arc(*taker, any, f64::INFINITY);
                }
                self.arc(any, from, cost);
            }
        }
    }

    /// Pays once when any of the takers is before the level.
    fn any_before(&mut self, takers: &[usize], cost: f64) {
        match takers {
            [] => {}
            [taker] => self.arc(SOURCE, *taker, cost),
            takers => {
                let any = self.auxiliary();
                self.arc(SOURCE, any, cost);
                for taker in takers {
                    self.arc(any, *taker, f64::INFINITY);
                }
            }
        }
    }

    const fn auxiliary(&mut self) -> usize {
        self.vertices += 1;
        self.vertices - 1
    }

    /// Which vertices are on the source's side of the least cut, and what it costs; nothing when every cut is infinite.
    fn cut(&self) -> Option<(Vec<bool>, f64)> {
        let finite = self
            .arcs
            .iter()
            .map(|(.., capacity)| *capacity)
            .filter(|capacity| capacity.is_finite());
        let sum: f64 = finite.sum();
        let scale = if sum > 0.0 { SCALE / sum } else { 1.0 };
        let mut graph = MfGraph::<i64>::new(self.vertices);
        for (from, to, capacity) in &self.arcs {
            let capacity = match capacity.is_finite() {
                true => (capacity * scale).round() as i64,
                false => INFINITE,
            };
            graph.add_edge(*from, *to, capacity);
        }
        let flow = graph.flow(SOURCE, SINK);
        (flow < INFINITE).then(|| (graph.min_cut(SOURCE), flow as f64 / scale))
    }
}
