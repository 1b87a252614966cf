//! Computes every layer of the quantised networks in pieces, at full size, and compares them with the layers as a whole: bit for bit.
//!
//! ```text
//! cargo run --release -p karman-infer --example pieces -- [FILE.onnx ...] [--input 224]
//! ```
//!
//! Each layer is cut in three by its rows, and in three by its channels (of a depthwise or grouped convolution by its groups); each piece
//! is a message as a node gets it. Prints one JSON object a line for each network of the zoo and each file.
#![allow(clippy::unwrap_used, reason = "a study fails with its first surprise")]

use karman_infer::ModelLimits;
use karman_infer::graph::Graph;
use karman_infer::integer::Integer;
use karman_infer::zoo::{Architecture, Variant};
use karman_tensor::quantised::{Layer, Network, Operator, Part};
use karman_tensor::split::ShareTask;
use karman_types::ByteSize;
use serde_json::json;
use std::ops::Range;
use std::time::Instant;

const PIECES: usize = 3;

fn main() {
    let mut variant = Variant {
        quantized: true,
        ..Variant::default()
    };
    let mut files = Vec::new();
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--input" => variant.input = given.next().unwrap().parse().unwrap(),
            file => files.push(file.to_owned()),
        }
    }
    for network in Architecture::ALL {
        study(network.as_str(), network.generate(&variant).to_vec());
    }
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        study(&file, bytes);
    }
}

fn study(name: &str, file: Vec<u8>) {
    let graph = Graph::read(file, &limits()).unwrap();
    let integer = Integer::read(&graph).unwrap();
    let network = integer.network();
    let mut random = fastrand::Rng::with_seed(2026);
    let input: Vec<i8> = (0..network.input().elements()).map(|_| random.i8(..)).collect();
    let started = Instant::now();
    let activations = network.activations(&input).unwrap();
    let whole_s = started.elapsed().as_secs_f64();
    let (mut pieces, mut equal) = (0, 0);
    for (index, layer) in network.layers().iter().enumerate() {
        for part in parts(layer) {
            let wanted = part.cut(layer.output(), &activations[index + 1]);
            pieces += 1;
            equal += usize::from(piece(network, index, &part, &activations) == wanted);
        }
    }
    let line = json!({
        "network": name, "input": network.input().to_string(), "layers": network.layers().len(), "chain": network.is_chain(),
        "rest": integer.operators_of_rest(), "pieces": pieces, "equal": equal, "holds": pieces == equal,
        "whole_s": whole_s, "seconds": started.elapsed().as_secs_f64(),
    });
    println!("{line}");
}

/// VGG16 has 138 million weights.
fn limits() -> ModelLimits {
    ModelLimits {
        model: ByteSize::gib(1),
        constants: ByteSize::gib(1),
        ..ModelLimits::default()
    }
}

fn parts(layer: &Layer) -> Vec<Part> {
    let whole = layer.output().whole();
    let step = match layer.operator() {
        Operator::Convolution { groups, .. } if *groups > 1 => whole.channels.len() / groups,
        _ => 1,
    };
    let rows = thirds(whole.rows.len(), 1).map(|rows| Part::new(rows, whole.channels.clone()));
    let channels = thirds(whole.channels.len(), step).map(|channels| Part::new(whole.rows.clone(), channels));
    rows.chain(channels).filter(|part| !part.is_empty()).collect()
}

fn thirds(length: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    let at = move |piece: usize| length / step * piece / PIECES * step;
    (0..PIECES).map(move |piece| at(piece)..at(piece + 1))
}

fn piece(network: &Network, index: usize, part: &Part, activations: &[Vec<i8>]) -> Vec<i8> {
    let layer = &network.layers()[index];
    let input = layer
        .needs(part)
        .cut(layer.input(), &activations[network.takes()[index]]);
    let other = match *layer.operator() {
        Operator::Add { other } => part.cut(layer.output(), &activations[other]),
        _ => Vec::new(),
    };
    let task = ShareTask::new(network, index, part, input, other).unwrap();
    task.run().unwrap()
}
