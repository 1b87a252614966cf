//! Who is compared, and how one of them is run.

use super::{BOARD, LINK};
use anyhow::{Context, Result};
use karman_sched::partition::inside_layer::flat::FlatPlan;
use karman_sched::partition::inside_layer::{Form, Objective, Plan, divide, plan, predict, programs};
use karman_study::pairs::median;
use karman_tensor::quantised::{Extent, Network, Part, mobilenet_v2};
use karman_tensor::split::flat::run_flat;
use karman_tensor::split::{Worker, run_together};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// A way to split.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub(super) enum Contender {
    Flat,
    Bands,
    Ours,
    OursFast,
}

impl Contender {
    pub(super) const ALL: [Self; 4] = [Self::Flat, Self::Bands, Self::Ours, Self::OursFast];
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flat => "flat",
            Self::Bands => "bands",
            Self::Ours => "ours",
            Self::OursFast => "ours-fast",
        })
    }
}

/// What a run took.
pub(super) struct Outcome {
    /// The most live bytes on the worst board.
    pub(super) peak: u64,
    /// All bytes between boards and coordinator.
    pub(super) bytes: u64,
    /// By the model of the planner.
    pub(super) seconds: f64,
    /// Whether the answer is that of the unsplit network.
    pub(super) equal: bool,
    /// Whether memory and traffic were as foreseen; the published split foresees none.
    pub(super) foreseen: bool,
}

/// A network, a picture and its answer.
pub(super) struct Subject {
    network: Arc<Network>,
    picture: Vec<i8>,
    answer: Vec<i8>,
    seed: u64,
}

impl Subject {
    pub(super) fn generate(side: usize, seed: u64) -> Result<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let network = Arc::new(Network::generated(mobilenet_v2(side, 1000)?, || random.u32(..))?);
        let picture: Vec<i8> = (0..network.input().elements()).map(|_| random.i8(..)).collect();
        let answer = network.run(&picture)?;
        Ok(Self {
            network,
            picture,
            answer,
            seed,
        })
    }

    pub(super) fn run(&self, contender: Contender, boards: usize) -> Result<Outcome> {
        let layers = self.network.layers();
        let plan_for = |objective| plan(layers, &vec![BOARD; boards], LINK, objective);
        match contender {
            Contender::Flat => self.run_flat(boards),
            Contender::Bands => self.run_plan(&Plan::each_layer(layers, vec![1; boards], Form::Rows)),
            Contender::Ours => self.run_plan(&plan_for(Objective::Memory)?),
            Contender::OursFast => self.run_plan(&plan_for(Objective::Time)?),
        }
    }

    fn run_plan(&self, plan: &Plan) -> Result<Outcome> {
        let boards = plan.portions.len();
        let worker = |(peer, program)| {
            let picture: &[i8] = if peer == boards { &self.picture } else { &[] };
            Worker::new(self.network.clone(), program, picture)
        };
        let programs = programs(self.network.layers(), plan)?;
        let mut workers = programs
            .into_iter()
            .enumerate()
            .map(worker)
            .collect::<Result<Vec<_>, _>>()?;
        let mut random = fastrand::Rng::with_seed(self.seed);
        let traffic = run_together(&mut workers, |choices| random.usize(..choices))?;
        let peaks = workers[..boards]
            .iter()
            .map(|worker| worker.account().peak() as u64);
        let foreseen = predict(self.network.layers(), plan)?;
        let mut within = peaks.clone().zip(&foreseen.boards);
        Ok(Outcome {
            peak: peaks.max().context("there are boards")?,
            bytes: traffic.bytes,
            seconds: foreseen.seconds(&vec![BOARD; boards], LINK),
            equal: workers[boards].answer() == self.answer,
            foreseen: within.all(|(peak, foreseen)| peak <= foreseen.peak) && traffic.bytes == foreseen.bytes,
        })
    }

    fn run_flat(&self, boards: usize) -> Result<Outcome> {
        let layers = self.network.layers();
        let plan = FlatPlan::new(layers, &vec![1; boards])?;
        let picture = flat_order(self.network.input(), &self.picture);
        let outcome = run_flat(&self.network, &plan.stages, &picture)?;
        let work = |stage: &karman_tensor::split::flat::FlatStage| {
            let layer = &layers[stage.layer];
            let each = layer.operations(&Part::new(0..1, 0..1)) as f64 / layer.output().width as f64;
            let most = stage
                .shares
                .iter()
                .map(|share| share.own.len())
                .max()
                .unwrap_or(0);
            each * most as f64 / BOARD.operations_per_second
        };
        Ok(Outcome {
            peak: outcome.peaks.iter().copied().max().context("there are boards")? as u64,
            bytes: outcome.bytes,
            seconds: plan.stages.iter().map(work).sum::<f64>()
                + outcome.bytes as f64 / LINK.bytes_per_second
                + outcome.packets as f64 * LINK.seconds_per_packet,
            // The output has one row and one column, so both orders are the same.
            equal: outcome.answer == self.answer,
            foreseen: true,
        })
    }
}

/// From row by row, column by column, channel by channel to channel by channel.
fn flat_order(extent: Extent, values: &[i8]) -> Vec<i8> {
    let cells = extent.height * extent.width;
    let channel = |channel| (0..cells).map(move |cell| values[cell * extent.channels + channel]);
    (0..extent.channels).flat_map(channel).collect()
}

/// The most bytes of input, halo and output of plain bands on the worst board, if each layer's exist as a whole.
pub(super) fn bands_materialised(side: usize, boards: usize) -> Result<usize> {
    let layers = mobilenet_v2(side, 1000)?;
    let sizes = layers
        .iter()
        .filter(|layer| layer.output().height > 1)
        .flat_map(|layer| {
            let rows = divide(layer.output().height, &vec![1; boards]);
            rows.into_iter().map(move |rows| {
                let output = Part::new(rows, 0..layer.output().channels);
                layer.needs(&output).cells() * layer.input().width + output.cells() * layer.output().width
            })
        });
    sizes.max().context("there are layers")
}

/// Milliseconds to plan, the median of nine times.
pub(super) fn plan_ms(side: usize, boards: usize) -> Result<f64> {
    let layers = mobilenet_v2(side, 1000)?;
    let time = |_| {
        let begun = Instant::now();
        plan(&layers, &vec![BOARD; boards], LINK, Objective::Memory)?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    Ok(median((0..9).map(time).collect::<Result<_>>()?))
}
