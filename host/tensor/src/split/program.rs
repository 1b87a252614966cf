use super::SplitError;
use crate::quantised::{Layer, Network, Operator, Part};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// What one board does, stage after stage. A planner makes the programs of all boards together: what one needs, others owe.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Program {
    /// The stages, the same in number for all.
    pub stages: Vec<Stage>,
    /// Which part of the network's input it holds at the start: all for the coordinator, nothing for a board.
    pub holds: Part,
    /// How many output rows ahead of the next one the rows from others are asked for: 0 takes the least memory, more hides the
    /// time on the wire.
    pub ahead: usize,
}

/// One step that all boards take together.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Stage {
    /// How it is computed.
    pub work: Work,
    /// Its layers; none where the last activation is only collected.
    pub layers: Range<usize>,
    /// The part of its last layer's output that this board computes and then holds.
    pub output: Part,
    /// The activations from before the stage that it starts from, the same for all boards.
    pub inputs: Vec<Input>,
}

/// How a stage is computed.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Work {
    /// Layers that pass rows to each other.
    Run,
    /// One layer, from sums over the parts of the input that the boards hold.
    Reduce,
}

/// An activation that a stage starts from.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Input {
    /// 0 is the network's input, `i + 1` the output of layer `i`.
    pub activation: usize,
    /// What this board needs of it; of a reduction, what it holds and sums over.
    pub part: Part,
    /// What others have to send: of the activation, or of a reduction the parts of the input that they sum over.
    pub from: Vec<Share>,
    /// What this board has to send: of the activation, or of a reduction the parts of the output that others own.
    pub to: Vec<Share>,
    /// Whether its own rows of it are needed after this stage.
    pub keep: bool,
}

/// A part at, or for, a peer.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Share {
    /// Its index among the boards; the coordinator comes after the last board.
    pub peer: usize,
    /// Which part.
    pub part: Part,
}

impl Program {
    /// That stages and parts fit the network, so that carrying the program out cannot reach past it.
    ///
    /// # Errors
    /// [`SplitError::Program`] names the first stage that does not fit.
    pub(super) fn check(&self, network: &Network) -> Result<(), SplitError> {
        must_be_chain(network)?;
        for (index, stage) in self.stages.iter().enumerate() {
            stage
                .check(network)
                .map_err(|what| SplitError::Program { stage: index, what })?;
        }
        Ok(())
    }
}

impl Stage {
    fn check(&self, network: &Network) -> Result<(), &'static str> {
        let layers = network.layers();
        let within = |part: &Part, activation: usize| {
            let extent = network.activation(activation);
            part.rows.end <= extent.height && part.channels.end <= extent.channels
        };
        let inside = |part: &Part, whole: &Part| part.and(whole) == *part;
        let run = &self.layers;
        if run.start > run.end || run.end > layers.len() {
            return Err("it has layers that are not there");
        }
        if !within(&self.output, run.end) {
            return Err("its output is larger than the layer's");
        }
        for input in &self.inputs {
            let sent = match self.work {
                Work::Run => input.activation,
                Work::Reduce => run.end,
            };
            let fits = input.activation <= run.start
                && within(&input.part, input.activation)
                && input
                    .from
                    .iter()
                    .all(|share| within(&share.part, input.activation))
                && (self.work == Work::Reduce
                    || input.from.iter().all(|share| inside(&share.part, &input.part)))
                && input.to.iter().all(|share| within(&share.part, sent));
            if !fits {
                return Err("it has inputs that are not there");
            }
        }
        match self.work {
            Work::Run => self.check_run(layers),
            Work::Reduce => self.check_reduction(network),
        }
    }

    fn check_run(&self, layers: &[Layer]) -> Result<(), &'static str> {
        for (activation, part) in parts_of_run(layers, &self.layers, &self.output) {
            let given = self.inputs.iter().find(|input| input.activation == activation);
            if activation <= self.layers.start && given.is_none_or(|given| given.part != part) {
                return Err("its inputs are not what its output needs");
            }
        }
        Ok(())
    }

    fn check_reduction(&self, network: &Network) -> Result<(), &'static str> {
        let (layers, run) = (network.layers(), &self.layers);
        let [input] = &self.inputs[..] else {
            return Err("a reduction has one input");
        };
        let whole_rows =
            |part: &Part| part.is_empty() || part.rows.len() == network.activation(run.start).height;
        let one = run.len() == 1 && Network::has_sums(&layers[run.start]);
        if !one || input.activation != run.start {
            return Err("a reduction has one layer, a convolution without groups or a mean");
        }
        let divided = matches!(layers[run.start].operator(), Operator::AveragePool);
        let parts = input.from.iter().map(|share| &share.part);
        if !divided && !parts.chain([&input.part]).all(whole_rows) {
            return Err("the sums of a convolution are over all rows of some channels");
        }
        Ok(())
    }
}

/// Boards that keep rows between layers go from each layer to the next.
pub(super) fn must_be_chain(network: &Network) -> Result<(), SplitError> {
    match network.is_chain() {
        true => Ok(()),
        false => Err(SplitError::Program {
            stage: 0,
            what: "layers lie side by side",
        }),
    }
}

/// What a part of a run's output touches of each activation, from those before the run to the output itself. Activations up to
/// the first layer's number come from outside.
pub fn parts_of_run(layers: &[Layer], run: &Range<usize>, output: &Part) -> BTreeMap<usize, Part> {
    let mut parts = BTreeMap::from([(run.end, output.clone())]);
    let include = |activation: usize, part: &Part, parts: &mut BTreeMap<usize, Part>| {
        let there = parts.entry(activation).or_insert(Part::NONE);
        *there = hull(there, part);
    };
    for index in run.clone().rev() {
        let part = parts.get(&(index + 1)).cloned().unwrap_or(Part::NONE);
        include(index, &layers[index].needs(&part), &mut parts);
        if let Operator::Add { other } = *layers[index].operator() {
            include(other, &part, &mut parts);
        }
    }
    parts
}

/// The least part that holds both.
fn hull(one: &Part, other: &Part) -> Part {
    if one.is_empty() {
        return other.clone();
    }
    if other.is_empty() {
        return one.clone();
    }
    let both = |a: &Range<usize>, b: &Range<usize>| a.start.min(b.start)..a.end.max(b.end);
    Part {
        rows: both(&one.rows, &other.rows),
        channels: both(&one.channels, &other.channels),
    }
}
