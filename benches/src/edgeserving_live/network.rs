//! The network up to each of its exits, and how long each takes.

use super::registered::Registered;
use crate::{digits, given};
use anyhow::{Context, Result};
use karman_infer::graph::Graph;
use karman_infer::{Backend, LoadOptions, Model, ModelLimits, Tract};
use karman_sched::serve::{Exit, ServedModel};
use karman_study::pairs::percentile;
use karman_tensor::Tensor;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAME: &str = "digits-l";
/// Runs that are not counted.
const WARM_UP: usize = 3;

/// A network that leaves early, ready to run.
pub(super) struct Network {
    /// By depth: what lies behind an exit is left out of its file.
    models: Vec<Arc<dyn Model>>,
    /// Batches of one request, of two, and so on.
    batches: Vec<Tensor>,
    /// The exits that no other one beats, with their measured times.
    exits: Vec<Exit>,
}

impl Network {
    /// Loads and measures it.
    pub(super) fn measure(registered: &Registered, runs: usize) -> Result<Self> {
        let file = given::read(&format!("tests/models/{NAME}.onnx"))?;
        let graph = Graph::read(file, &ModelLimits::default())?;
        let options = LoadOptions {
            plans: NonZeroUsize::new(registered.most).context("`most` is 0")?,
            ..LoadOptions::default()
        };
        let mut network = Self {
            models: Vec::new(),
            batches: Vec::new(),
            exits: Vec::new(),
        };
        for requests in 1..=registered.most {
            let images = requests * registered.images;
            let shape = [u32::try_from(images)?, 1, 8, 8];
            let tensor = Tensor::from_slice(shape, &digits::pixels(images)?)?;
            network.batches.push(tensor);
        }
        let mut exits = Vec::new();
        for (output, accuracy) in digits::exits(NAME)? {
            let edges = graph.outputs().iter();
            let edge = edges
                .copied()
                .find(|edge| graph.edges()[*edge].info.name == output);
            let edge = edge.with_context(|| format!("{NAME} has no output {output}"))?;
            network
                .models
                .push(Tract.load(&graph.tapped(&[edge])?.model, &options)?);
            let depth = network.models.len() as u32;
            let sizes = 1..=registered.most;
            let times = sizes.map(|batch| Ok((batch, network.time(depth, batch, runs)?)));
            exits.push(Exit {
                depth,
                accuracy,
                times: times.collect::<Result<_>>()?,
            });
        }
        network.exits = Exit::pareto(exits);
        Ok(network)
    }

    /// The exits that policies know.
    pub(super) fn exits(&self) -> &[Exit] {
        &self.exits
    }

    /// How long a batch up to the last exit takes.
    pub(super) fn whole(&self, batch: usize) -> Result<Duration> {
        let last = self.exits.last().context("no exits")?;
        let known = last.times.iter().find(|(size, _)| *size == batch);
        let (_, time) = known.with_context(|| format!("no batches of {batch}"))?;
        Ok(*time)
    }

    /// What a policy knows of an instance.
    pub(super) fn served(&self, slo: Duration) -> Result<ServedModel> {
        Ok(ServedModel::new(slo, self.batches.len(), self.exits.clone())?)
    }

    /// Runs a batch up to one of the exits that policies know.
    pub(super) fn run(&self, exit: usize, batch: usize) -> Result<()> {
        self.run_to(self.exits[exit].depth, batch)
    }

    fn run_to(&self, depth: u32, batch: usize) -> Result<()> {
        let input = ("image".to_owned(), self.batches[batch - 1].clone());
        let answer = self.models[depth as usize - 1].run(vec![input])?;
        std::hint::black_box(answer);
        Ok(())
    }

    /// The 95th percentile of some runs.
    fn time(&self, depth: u32, batch: usize, runs: usize) -> Result<Duration> {
        for _ in 0..WARM_UP {
            self.run_to(depth, batch)?;
        }
        let mut seconds = Vec::new();
        for _ in 0..runs.max(1) {
            let started = Instant::now();
            self.run_to(depth, batch)?;
            seconds.push(started.elapsed().as_secs_f64());
        }
        Ok(Duration::from_secs_f64(percentile(&seconds, 0.95)))
    }
}
