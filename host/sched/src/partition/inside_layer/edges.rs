use super::predict::{StageCost, stage_cost};
use super::program::{Form, Owners, PlannedStage, at_coordinator, hides, last_use, parts, reduces};
use super::{Board, Link};
use karman_tensor::quantised::Layer;
use karman_tensor::split::Work;
use std::ops::Range;

/// The most layers of one run of bands.
const MOST_FUSED: usize = 16;
/// The most layers of one run of kernels: one that sees all of the input, and a depthwise one behind it.
const MOST_KERNELS: usize = 2;
/// Runs stop growing when their boards do this many times the work because of halos.
const MOST_REPEATED: f64 = 4.0;

/// A stage that could be, from an activation divided in a form.
pub(super) struct Edge {
    pub(super) stage: PlannedStage,
    /// How its input is divided; nothing for the input of the network.
    pub(super) from: Option<Form>,
    pub(super) cost: StageCost,
    pub(super) seconds: f64,
}

/// All stages that could be, by their first layer.
pub(super) fn edges(layers: &[Layer], boards: &[Board], portions: &[u32], link: Link) -> Vec<Vec<Edge>> {
    let finder = Finder {
        layers,
        boards,
        portions,
        link,
    };
    (0..layers.len()).map(|start| finder.from(start)).collect()
}

struct Finder<'a> {
    layers: &'a [Layer],
    boards: &'a [Board],
    portions: &'a [u32],
    link: Link,
}

impl Finder<'_> {
    fn from(&self, start: usize) -> Vec<Edge> {
        let mut edges = Vec::new();
        let froms: &[_] = match start {
            0 => &[None],
            _ => &[Some(Form::Rows), Some(Form::Channels)],
        };
        for from in froms {
            self.runs(start, *from, Form::Rows, MOST_FUSED, &mut edges);
            self.runs(start, *from, Form::Channels, MOST_KERNELS, &mut edges);
            if reduces(&self.layers[start], *from) {
                for form in [Form::Rows, Form::Channels] {
                    edges.push(self.edge(start..start + 1, Work::Reduce, *from, form));
                }
            }
        }
        edges
    }

    /// Longer and longer runs, until halos cost too much.
    fn runs(&self, start: usize, from: Option<Form>, form: Form, most: usize, edges: &mut Vec<Edge>) {
        for end in start + 1..=self.layers.len().min(start + most) {
            if hides(self.layers, &(start..end)) {
                continue;
            }
            let edge = self.edge(start..end, Work::Run, from, form);
            let once: u64 = self.layers[start..end]
                .iter()
                .map(|l| l.operations(&l.output().whole()))
                .sum();
            let done: u64 = edge.cost.boards.iter().map(|board| board.operations).sum();
            edges.push(edge);
            if done as f64 > MOST_REPEATED * once as f64 {
                return;
            }
        }
    }

    fn edge(&self, run: Range<usize>, work: Work, from: Option<Form>, form: Form) -> Edge {
        let stage = PlannedStage {
            layers: run,
            work,
            form,
        };
        let cost = stage_cost(self.layers, &stage, &self.owners(&stage, from));
        let seconds = cost.seconds(self.boards, self.link);
        Edge {
            stage,
            from,
            cost,
            seconds,
        }
    }

    /// Where everything is that lives during a stage. What came before its input is taken to be divided like the input; the
    /// chooser foresees its plan once more as a whole.
    fn owners(&self, stage: &PlannedStage, from: Option<Form>) -> Owners {
        let run = &stage.layers;
        let extent = |activation: usize| match activation.checked_sub(1) {
            None => self.layers[0].input(),
            Some(layer) => self.layers[layer].output(),
        };
        let mut owners = Owners::new();
        for activation in (0..=run.start).filter(|activation| last_use(self.layers, *activation) >= run.start)
        {
            let parts = match from.filter(|_| activation > 0) {
                None => at_coordinator(extent(activation), self.boards.len()),
                Some(form) => parts(extent(activation), form, self.portions),
            };
            owners.insert(activation, parts);
        }
        owners.insert(run.end, parts(extent(run.end), stage.form, self.portions));
        owners
    }
}
