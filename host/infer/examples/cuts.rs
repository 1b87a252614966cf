//! Cuts the published networks at full size, or models of your own, and compares what the fragments give with what the whole gives, on
//! every back-end that is here.
//!
//! ```text
//! cargo run --release -p karman-infer --example cuts -- [NAME|FILE.onnx ...] [--cuts 200] [--input 224] [--int8] [--backend tract]
//! ```
//!
//! For each network: every place of its chain of layers, and as many random cuts of its graph as there are, up to `--cuts`. Prints
//! one JSON object a line: the number of cuts and the greatest error, as a share of the greatest element of the answer.
#![allow(clippy::unwrap_used, reason = "a study fails with its first surprise")]

#[path = "../tests/common/mod.rs"]
mod common;

use bytes::Bytes;
use common::backends;
use common::cuts::{Law, chain_cuts, random_cuts, roomy};
use fastrand::Rng;
use karman_infer::Backend;
use karman_infer::graph::Graph;
use karman_infer::zoo::{Architecture, Variant};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

enum Network {
    Published(Architecture),
    File(PathBuf),
}

impl Network {
    fn read(text: &str) -> Result<Self, String> {
        match Path::new(text).extension() {
            Some(extension) if extension == "onnx" => Ok(Self::File(text.into())),
            _ => Ok(Self::Published(text.parse()?)),
        }
    }

    /// How it is made; nothing for a file.
    fn variant<'a>(&self, arguments: &'a Arguments) -> Option<&'a Variant> {
        matches!(self, Self::Published(_)).then_some(&arguments.variant)
    }

    fn bytes(&self, variant: &Variant) -> Result<Bytes, String> {
        match self {
            Self::Published(architecture) => Ok(architecture.generate(variant)),
            Self::File(path) => std::fs::read(path)
                .map(Bytes::from)
                .map_err(|error| format!("{self}: {error}")),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published(architecture) => f.write_str(architecture.as_str()),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

struct Arguments {
    networks: Vec<Network>,
    cuts: usize,
    variant: Variant,
    backend: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut out = Arguments {
        networks: Vec::new(),
        cuts: 200,
        variant: Variant::default(),
        backend: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |text: String| text.parse::<u32>().map_err(|error| format!("`{text}`: {error}"));
        match argument.as_str() {
            "--cuts" => out.cuts = number(value()?)? as usize,
            "--input" => out.variant.input = number(value()?)?,
            "--int8" => out.variant.quantized = true,
            "--backend" => out.backend = Some(value()?),
            name => out.networks.push(Network::read(name)?),
        }
    }
    if out.networks.is_empty() {
        out.networks = Architecture::ALL.into_iter().map(Network::Published).collect();
    }
    Ok(out)
}

fn main() -> Result<(), String> {
    let arguments = arguments()?;
    let backends = backends();
    for network in &arguments.networks {
        let file = network.bytes(&arguments.variant)?;
        let start = Instant::now();
        let graph = Graph::read(file.clone(), &roomy().limits).map_err(|error| error.to_string())?;
        let read_ms = start.elapsed().as_secs_f64() * 1e3;
        eprintln!(
            "{network}: {} nodes, {} layers, {} weights, {} multiply-accumulates, read in {read_ms:.0} ms",
            graph.nodes().len(),
            graph.layers().layers.len(),
            graph.parameters(),
            graph.macs().at(1),
        );
        for (name, backend) in backends.all() {
            if arguments
                .backend
                .as_ref()
                .is_some_and(|wanted| wanted != name.as_str())
            {
                continue;
            }
            match backend {
                Ok(backend) => study(network, &graph, &file, backend, &arguments),
                Err(error) => eprintln!("{network}: {error}"),
            }
        }
    }
    Ok(())
}

fn study(network: &Network, graph: &Graph, file: &[u8], backend: &dyn Backend, arguments: &Arguments) {
    let law = Law::new(graph, file, backend, 1);
    let chain = chain_cuts(graph);
    let random = random_cuts(graph, arguments.cuts, &mut Rng::with_seed(2026));
    let mut seen = BTreeSet::new();
    for (kind, cuts) in [("chain", chain), ("random", random)] {
        let start = Instant::now();
        let (mut worst, mut tensors) = (0f64, 0);
        for stages in &cuts {
            // A chain has few cuts of its own.
            if seen.insert(stages.clone()) {
                worst = worst.max(law.error(stages));
            }
            tensors = tensors.max(graph.crossing(stages).unwrap()[0].len());
        }
        let variant = network.variant(arguments);
        let line = json!({
            "network": network.to_string(),
            "input": variant.map(|made| made.input), "int8": variant.map(|made| made.quantized),
            "backend": backend.name().as_str(), "version": backend.version(), "kind": kind, "cuts": cuts.len(),
            "most_tensors": tensors, "worst_error": worst, "holds": worst <= 1e-5,
            "seconds": start.elapsed().as_secs_f64().round(),
        });
        println!("{line}");
    }
}
