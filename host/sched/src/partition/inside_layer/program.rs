use super::board::MOST_BOARDS;
use super::{PlanError, divide};
use karman_tensor::quantised::{Extent, Layer, Network, Operator, Part};
use karman_tensor::split::{Input, Program, Share, Stage, Work, parts_of_run};
use std::collections::BTreeMap;
use std::ops::Range;

/// How an activation is divided among the boards.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Form {
    /// Each board has some rows, with all channels.
    Rows,
    /// Each board has some channels, with all rows.
    Channels,
}

/// Which board computes what, stage after stage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// The stages; their layers follow on each other from the first to the last.
    pub stages: Vec<PlannedStage>,
    /// How much each board takes.
    pub portions: Vec<u32>,
}

/// Some consecutive layers that all boards compute before the next ones.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlannedStage {
    /// Which layers: one, if it is a reduction.
    pub layers: Range<usize>,
    /// How it is computed.
    pub work: Work,
    /// How its output is divided.
    pub form: Form,
}

impl Plan {
    /// One stage for each layer, all in this form: plain bands, or plain kernels. Comparators of what [`super::plan`] chooses.
    pub fn each_layer(layers: &[Layer], portions: Vec<u32>, form: Form) -> Self {
        let stage = |layer| PlannedStage {
            layers: layer..layer + 1,
            work: match layers[layer].operator() {
                // Where all boards hold some of what a mean is over, each would need what the others hold.
                Operator::AveragePool if form == Form::Rows => Work::Reduce,
                _ => Work::Run,
            },
            form: match layers[layer].output().height {
                1 => Form::Channels,
                _ => form,
            },
        };
        Self {
            stages: (0..layers.len()).map(stage).collect(),
            portions,
        }
    }
}

impl Plan {
    /// That its stages can be computed.
    ///
    /// # Errors
    /// [`PlanError::Portions`] and [`PlanError::Stage`] say what is wrong.
    pub fn check(&self, layers: &[Layer]) -> Result<(), PlanError> {
        let boards = self.portions.len();
        if !(1..=MOST_BOARDS).contains(&boards) || self.portions.iter().all(|portion| *portion == 0) {
            return Err(PlanError::Portions {
                portions: self.portions.clone(),
                boards,
            });
        }
        let mut end = 0;
        let mut from = None;
        for (index, stage) in self.stages.iter().enumerate() {
            let wrong = |what| Err(PlanError::Stage { stage: index, what });
            let run = &stage.layers;
            if run.start != end || run.end <= run.start || run.end > layers.len() {
                return wrong("its layers do not follow on those of the stage before");
            }
            if hides(layers, run) {
                return wrong("a later stage adds an activation that exists only row by row in this one");
            }
            if stage.work == Work::Reduce && !(run.len() == 1 && reduces(&layers[run.start], from)) {
                return wrong("the boards cannot sum over what they hold");
            }
            end = run.end;
            from = Some(stage.form);
        }
        match end == layers.len() && end > 0 {
            true => Ok(()),
            false => Err(PlanError::Stage {
                stage: self.stages.len(),
                what: "the last layers are in no stage",
            }),
        }
    }
}

/// Whether an activation between the layers of a run is needed after it.
pub(super) fn hides(layers: &[Layer], run: &Range<usize>) -> bool {
    (run.start + 1..run.end).any(|activation| last_use(layers, activation) >= run.end)
}

/// Whether boards that hold an activation in a form can sum over what they hold: some rows of a mean, or some channels.
pub(super) fn reduces(layer: &Layer, from: Option<Form>) -> bool {
    let mean = matches!(layer.operator(), Operator::AveragePool);
    Network::has_sums(layer) && (from == Some(Form::Channels) || mean && from.is_some())
}

/// The rows of output ahead of the next one that boards ask for.
pub(super) const AHEAD: usize = 1;

/// Where the parts of activations are: for each activation, those of the boards and then of the coordinator.
pub(super) type Owners = BTreeMap<usize, Vec<Part>>;

/// A plan as programs: one for each board, and the last one for the coordinator, which gives the input and collects the output.
///
/// # Errors
/// Those of [`Plan::check`].
pub fn programs(layers: &[Layer], plan: &Plan) -> Result<Vec<Program>, PlanError> {
    plan.check(layers)?;
    let boards = plan.portions.len();
    let mut owners = Owners::new();
    if let Some(first) = layers.first() {
        owners.insert(0, at_coordinator(first.input(), boards));
    }
    let mut stages: Vec<Vec<Stage>> = vec![Vec::new(); boards + 1];
    for planned in &plan.stages {
        let last_use = |activation| last_use(layers, activation);
        let keep = |activation| last_use(activation) >= planned.layers.end;
        let output = layers[planned.layers.end - 1].output();
        owners.insert(planned.layers.end, parts(output, planned.form, &plan.portions));
        for (peer, stage) in stages_of(layers, planned, &owners, keep).into_iter().enumerate() {
            stages[peer].push(stage);
        }
    }
    if let Some(last) = layers.last() {
        for (peer, stage) in collecting(layers.len(), last.output(), &owners)
            .into_iter()
            .enumerate()
        {
            stages[peer].push(stage);
        }
    }
    let holds = |peer: usize| owners.get(&0).map_or(Part::NONE, |owners| owners[peer].clone());
    let program = |(peer, stages)| Program {
        stages,
        holds: holds(peer),
        ahead: AHEAD,
    };
    Ok(stages.into_iter().enumerate().map(program).collect())
}

/// The last layer that takes an activation.
pub(super) fn last_use(layers: &[Layer], activation: usize) -> usize {
    let adds = |layer: &Layer| matches!(layer.operator(), Operator::Add { other } if *other == activation);
    layers.iter().rposition(adds).unwrap_or(0).max(activation)
}

/// An activation divided in a form; the coordinator has nothing of it.
pub(super) fn parts(extent: Extent, form: Form, portions: &[u32]) -> Vec<Part> {
    let whole = extent.whole();
    let ranges = match form {
        Form::Rows => divide(extent.height, portions),
        Form::Channels => divide(extent.channels, portions),
    };
    let part = |range| match form {
        Form::Rows => Part::new(range, whole.channels.clone()),
        Form::Channels => Part::new(whole.rows.clone(), range),
    };
    ranges.into_iter().map(part).chain([Part::NONE]).collect()
}

/// An activation that the coordinator has.
pub(super) fn at_coordinator(extent: Extent, boards: usize) -> Vec<Part> {
    let mut parts = vec![Part::NONE; boards];
    parts.push(extent.whole());
    parts
}

/// One stage as each of the boards and the coordinator sees it. `owners` has the parts of all activations that the stage takes,
/// and of its output.
pub(super) fn stages_of(
    layers: &[Layer],
    planned: &PlannedStage,
    owners: &Owners,
    keep: impl Fn(usize) -> bool,
) -> Vec<Stage> {
    let run = &planned.layers;
    let outputs = &owners[&run.end];
    match planned.work {
        Work::Run => {
            let needs: Vec<_> = outputs
                .iter()
                .map(|output| parts_of_run(layers, run, output))
                .collect();
            let activations: Vec<usize> = needs[0]
                .range(..=run.start)
                .map(|(activation, _)| *activation)
                .collect();
            let stage = |peer: usize| Stage {
                work: Work::Run,
                layers: run.clone(),
                output: outputs[peer].clone(),
                inputs: activations
                    .iter()
                    .map(|activation| {
                        let needs: Vec<&Part> = needs.iter().map(|needs| &needs[activation]).collect();
                        exchange(peer, *activation, &owners[activation], &needs, keep(*activation))
                    })
                    .collect(),
            };
            (0..outputs.len()).map(stage).collect()
        }
        Work::Reduce => {
            let (layer, held) = (&layers[run.start], &owners[&run.start]);
            let takes_part =
                |giver: usize, owner: usize| !layer.needs(&outputs[owner]).and(&held[giver]).is_empty();
            let others = |peer: usize, parts: &[Part], linked: &dyn Fn(usize) -> bool| -> Vec<Share> {
                let others = (0..parts.len()).filter(|other| *other != peer && linked(*other));
                others
                    .map(|peer| Share {
                        peer,
                        part: parts[peer].clone(),
                    })
                    .collect()
            };
            let stage = |peer: usize| Stage {
                work: Work::Reduce,
                layers: run.clone(),
                output: outputs[peer].clone(),
                inputs: vec![Input {
                    activation: run.start,
                    part: held[peer].clone(),
                    from: others(peer, held, &|giver| takes_part(giver, peer)),
                    to: others(peer, outputs, &|owner| takes_part(peer, owner)),
                    keep: keep(run.start),
                }],
            };
            (0..outputs.len()).map(stage).collect()
        }
    }
}

/// The last stage: the coordinator collects the output.
pub(super) fn collecting(activation: usize, output: Extent, owners: &Owners) -> Vec<Stage> {
    let owners = &owners[&activation];
    let needs = at_coordinator(output, owners.len() - 1);
    let needed: Vec<&Part> = needs.iter().collect();
    let stage = |peer: usize| Stage {
        work: Work::Run,
        layers: activation..activation,
        output: needs[peer].clone(),
        inputs: vec![exchange(peer, activation, owners, &needed, false)],
    };
    (0..owners.len()).map(stage).collect()
}

/// What a peer gets of an activation, and what it gives.
fn exchange(peer: usize, activation: usize, owners: &[Part], needs: &[&Part], keep: bool) -> Input {
    let shares = |part_of: &dyn Fn(usize) -> Part| -> Vec<Share> {
        let others = (0..owners.len()).filter(|other| *other != peer);
        let shares = others.map(|peer| Share {
            peer,
            part: part_of(peer),
        });
        shares.filter(|share| !share.part.is_empty()).collect()
    };
    Input {
        activation,
        part: needs[peer].clone(),
        from: shares(&|other| owners[other].and(needs[peer])),
        to: shares(&|other| owners[peer].and(needs[other])),
        keep,
    }
}
