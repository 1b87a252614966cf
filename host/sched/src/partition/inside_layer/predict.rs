use super::program::{Owners, collecting, last_use, parts, stages_of};
use super::rehearse::Rehearsal;
use super::{Board, Link, Plan, PlanError, PlannedStage, program};
use karman_tensor::quantised::{Layer, Part};
use karman_tensor::split::{HEAD_BYTES, Input, MOST_BYTES, Share, Stage, Work};
use std::ops::Range;

/// The predicted cost of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Stage by stage; the last one collects the output.
    pub stages: Vec<StageCost>,
    /// Board by board, over all stages.
    pub boards: Vec<BoardCost>,
    /// Bytes of all packets, heads and grants included: exact.
    pub bytes: u64,
    /// The number of packets: exact.
    pub packets: u64,
}

/// The predicted cost of a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageCost {
    /// Which layers.
    pub layers: Range<usize>,
    /// Board by board.
    pub boards: Vec<BoardCost>,
    /// Bytes of all packets.
    pub bytes: u64,
    /// The number of packets.
    pub packets: u64,
}

/// The predicted cost on a board.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BoardCost {
    /// The most live bytes of activations, sums and packets, however late or early packets come.
    pub peak: u64,
    /// Multiplications, those done twice because of halos included.
    pub operations: u64,
    /// Bytes of weights and biases.
    pub weights: u64,
}

impl Prediction {
    /// The time of one inference, stage after stage.
    pub fn seconds(&self, boards: &[Board], link: Link) -> f64 {
        self.stages.iter().map(|stage| stage.seconds(boards, link)).sum()
    }
}

impl StageCost {
    /// The slowest board's work, and all packets one after the other: the model of Lu et al. with a time for each packet.
    pub fn seconds(&self, boards: &[Board], link: Link) -> f64 {
        let work = self.boards.iter().zip(boards);
        let work = work.map(|(cost, board)| cost.operations as f64 / board.operations_per_second);
        work.fold(0.0, f64::max)
            + self.bytes as f64 / link.bytes_per_second
            + self.packets as f64 * link.seconds_per_packet
    }
}

/// What a plan will take, stage by stage and board by board.
///
/// # Errors
/// Those of [`Plan::check`].
pub fn predict(layers: &[Layer], plan: &Plan) -> Result<Prediction, PlanError> {
    plan.check(layers)?;
    let boards = plan.portions.len();
    let mut owners = Owners::new();
    if let Some(first) = layers.first() {
        owners.insert(0, program::at_coordinator(first.input(), boards));
    }
    let mut stages = Vec::new();
    for planned in &plan.stages {
        let output = layers[planned.layers.end - 1].output();
        owners.insert(planned.layers.end, parts(output, planned.form, &plan.portions));
        stages.push(stage_cost(layers, planned, &owners));
    }
    if let Some(last) = layers.last() {
        let collecting = collecting(layers.len(), last.output(), &owners);
        stages.push(cost_of(
            layers,
            &(layers.len()..layers.len()),
            &collecting,
            &owners,
        ));
    }
    let mut total = vec![BoardCost::default(); boards];
    for stage in &stages {
        for (total, board) in total.iter_mut().zip(&stage.boards) {
            total.peak = total.peak.max(board.peak);
            total.operations += board.operations;
            total.weights += board.weights;
        }
    }
    Ok(Prediction {
        boards: total,
        bytes: stages.iter().map(|stage| stage.bytes).sum(),
        packets: stages.iter().map(|stage| stage.packets).sum(),
        stages,
    })
}

/// What one stage will take, when the activations before it are where `owners` says.
pub(super) fn stage_cost(layers: &[Layer], planned: &PlannedStage, owners: &Owners) -> StageCost {
    let keep = |activation| last_use(layers, activation) >= planned.layers.end;
    let stages = stages_of(layers, planned, owners, keep);
    cost_of(layers, &planned.layers, &stages, owners)
}

fn cost_of(layers: &[Layer], run: &Range<usize>, stages: &[Stage], owners: &Owners) -> StageCost {
    let boards = stages.len() - 1;
    let mut cost = StageCost {
        layers: run.clone(),
        boards: Vec::with_capacity(boards),
        bytes: 0,
        packets: 0,
    };
    for (peer, stage) in stages.iter().enumerate() {
        let waits = |activation: usize| {
            let is_input = stage.inputs.iter().any(|input| input.activation == activation);
            !is_input && last_use(layers, activation) >= run.start
        };
        let kept = owners
            .range(..=run.start)
            .filter(|(activation, _)| waits(**activation));
        let kept = kept.map(|(activation, owners)| bytes_of(layers, *activation, &owners[peer]));
        let own = stage
            .inputs
            .iter()
            .map(|input| owners[&input.activation][peer].clone());
        let mut board = Rehearsal::new(layers, stage, own.collect(), kept.sum());
        match stage.work {
            Work::Run => board.run(),
            Work::Reduce => board.reduce(),
        }
        for input in &stage.inputs {
            let (bytes, packets) = sent(layers, stage, input);
            cost.bytes += bytes;
            cost.packets += packets;
        }
        cost.bytes += board.grants * HEAD_BYTES as u64;
        cost.packets += board.grants;
        if peer < boards {
            cost.boards.push(board.cost());
        }
    }
    cost
}

pub(super) fn width(layers: &[Layer], activation: usize) -> u64 {
    match activation.checked_sub(1) {
        None => layers[0].input().width as u64,
        Some(layer) => layers[layer].output().width as u64,
    }
}

pub(super) fn bytes_of(layers: &[Layer], activation: usize, part: &Part) -> u64 {
    part.cells() as u64 * width(layers, activation)
}

/// Bytes and packets that a peer sends of an input, without grants.
fn sent(layers: &[Layer], stage: &Stage, input: &Input) -> (u64, u64) {
    let (activation, element, most) = match stage.work {
        Work::Run => (input.activation, 1, MOST_BYTES - HEAD_BYTES),
        Work::Reduce => (stage.layers.end, 4, (MOST_BYTES - HEAD_BYTES) / 4 * 4),
    };
    let mut total = (0, 0);
    for Share { part, .. } in &input.to {
        let row = part.channels.len() as u64 * width(layers, activation) * element;
        let packets = row.div_ceil(most as u64);
        let rows = part.rows.len() as u64;
        total.0 += rows * (row + packets * HEAD_BYTES as u64);
        total.1 += rows * packets;
    }
    total
}
