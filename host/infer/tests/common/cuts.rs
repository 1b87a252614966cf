//! The law of cutting: the fragments of a model, run one after the other, give what the model gives.

use fastrand::Rng;
use karman_infer::graph::{Fragment, Graph};
use karman_infer::profile::sample_inputs;
use karman_infer::{Backend, LoadOptions, Model, ModelLimits, Named, Staged};
use karman_types::ByteSize;
use std::collections::BTreeSet;

/// Room for VGG16.
pub fn roomy() -> LoadOptions {
    LoadOptions {
        limits: ModelLimits {
            model: ByteSize::gib(1),
            constants: ByteSize::gib(1),
            tensor: ByteSize::gib(1),
            run: ByteSize::gib(8),
            ..ModelLimits::default()
        },
        ..LoadOptions::default()
    }
}

/// A model with its answer to some input.
pub struct Law<'a> {
    pub graph: &'a Graph,
    backend: &'a dyn Backend,
    options: LoadOptions,
    inputs: Named,
    expected: Named,
}

impl<'a> Law<'a> {
    pub fn new(graph: &'a Graph, file: &[u8], backend: &'a dyn Backend, batch: u32) -> Self {
        let options = roomy();
        let whole = backend.load(file, &options).unwrap();
        let inputs = sample_inputs(&*whole, batch, 7).unwrap();
        let expected = whole.run(inputs.clone()).unwrap();
        // A constant answer would be right whatever the fragments do.
        let other = whole.run(sample_inputs(&*whole, batch, 8).unwrap()).unwrap();
        assert!(distance(&expected, &other) > 1e-4, "the model ignores its input");
        Self {
            graph,
            backend,
            options,
            inputs,
            expected,
        }
    }

    pub fn split(&self, stages: &[usize]) -> Vec<Fragment> {
        self.graph.split(stages).unwrap()
    }

    /// How far the answer of the fragments lies from that of the whole: the greatest difference over the greatest element, of
    /// the worst output.
    pub fn error(&self, stages: &[usize]) -> f64 {
        let fragments = self.split(stages);
        let staged = Staged::load(self.graph, &fragments, self.backend, &self.options);
        let staged = staged.unwrap_or_else(|error| panic!("{stages:?}: {error}"));
        distance(&self.expected, &staged.run(self.inputs.clone()).unwrap())
    }
}

fn distance(expected: &Named, given: &Named) -> f64 {
    assert_eq!(expected.len(), given.len());
    let outputs = expected.iter().zip(given).map(|((name, a), (other, b))| {
        assert_eq!((name, a.shape()), (other, b.shape()));
        let (a, b) = (a.view::<f32>().unwrap(), b.view::<f32>().unwrap());
        assert!(a.iter().chain(b).all(|y| y.is_finite()));
        let most = a.iter().fold(0f32, |most, y| most.max(y.abs()));
        let off = a.iter().zip(b).fold(0f32, |off, (a, b)| off.max((a - b).abs()));
        f64::from(off) / f64::from(most)
    });
    outputs.fold(0.0, f64::max)
}

/// Two stages for every place where the layers can be cut like a chain, the two ends left out.
pub fn chain_cuts(graph: &Graph) -> Vec<Vec<usize>> {
    let layers = graph.layers();
    let points = layers.cut_points(graph);
    points
        .iter()
        .filter(|point| point.after > 0)
        .map(|point| layers.stages_of_chain(&[point.after]))
        .collect()
}

/// Different cuts of the graph into two, as many as there are up to this number: some nodes and all that they need, against the
/// rest.
pub fn random_cuts(graph: &Graph, number: usize, rng: &mut Rng) -> Vec<Vec<usize>> {
    let nodes = graph.nodes().len();
    let mut seen = BTreeSet::new();
    for _ in 0..50 * number {
        if seen.len() == number {
            break;
        }
        let mut stages = vec![1; nodes];
        // Few nodes far apart give cuts through many branches.
        for _ in 0..rng.usize(1..=4) {
            stages[rng.usize(..nodes)] = 0;
        }
        for at in (0..nodes).rev().filter(|at| stages[*at] == 0).collect::<Vec<_>>() {
            close(graph, &mut stages, at);
        }
        if stages.contains(&1) {
            seen.insert(stages);
        }
    }
    seen.into_iter().collect()
}

fn close(graph: &Graph, stages: &mut [usize], from: usize) {
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        let before = graph.nodes()[node]
            .inputs
            .iter()
            .filter_map(|edge| graph.edges()[*edge].from);
        for node in before {
            if stages[node] != 0 {
                stages[node] = 0;
                open.push(node);
            }
        }
    }
}

/// Stages that cut it into several, at random places of its order.
pub fn random_stages(graph: &Graph, fragments: usize, rng: &mut Rng) -> Vec<usize> {
    let borders: Vec<usize> = (1..fragments).map(|_| rng.usize(..graph.nodes().len())).collect();
    let stage = |node| borders.iter().filter(|border| **border <= node).count();
    (0..graph.nodes().len()).map(stage).collect()
}
