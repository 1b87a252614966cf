use super::board::check;
use super::edges::{Edge, edges};
use super::portions::move_one;
use super::{Board, Form, Link, Plan, PlanError, Prediction, portions, predict};
use karman_tensor::quantised::Layer;
use std::collections::BTreeMap;

/// What a plan makes small. Memory and flash are limits in any case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Objective {
    /// The time of one inference.
    Time,
    /// The largest share of its free memory that a board takes, and then the time.
    Memory,
}

/// How often portions are moved away from a board whose memory is too small.
const MOVES: usize = 32;
/// How often the price of flash is raised, or the limit of memory lowered, before a search is given up.
const ATTEMPTS: usize = 12;

/// The best split of a network among these boards.
///
/// Every plan it returns fits: [`predict()`] says of each board that its peak and its weights stay within what it has.
///
/// # Errors
/// [`PlanError`] when a figure is no positive number, or no split fits the boards.
pub fn plan(layers: &[Layer], boards: &[Board], link: Link, objective: Objective) -> Result<Plan, PlanError> {
    check(boards, link)?;
    if layers.is_empty() {
        return Err(PlanError::NoLayers);
    }
    let mut portions = portions(boards);
    let mut failure = None;
    for _ in 0..MOVES {
        let chooser = Chooser {
            layers,
            boards,
            edges: edges(layers, boards, &portions, link),
            portions: &portions,
        };
        match chooser.plan(objective) {
            Ok(plan) => return Ok(plan),
            Err((error, foreseen)) => {
                failure.get_or_insert(error);
                let Some(foreseen) = foreseen else { break };
                let fill =
                    |board: &usize| foreseen.boards[*board].peak as f64 / boards[*board].free_memory as f64;
                let order = |a: &usize, b: &usize| fill(a).total_cmp(&fill(b));
                let (Some(loosest), Some(tightest)) =
                    ((0..boards.len()).min_by(order), (0..boards.len()).max_by(order))
                else {
                    break;
                };
                if !move_one(&mut portions, tightest, loosest) {
                    break;
                }
            }
        }
    }
    Err(failure.unwrap_or(PlanError::NoLayers))
}

struct Chooser<'a> {
    layers: &'a [Layer],
    boards: &'a [Board],
    edges: Vec<Vec<Edge>>,
    portions: &'a [u32],
}

/// The limits and prices of one search.
#[derive(Clone, Copy)]
struct Terms {
    /// The share of its free memory that a board may take.
    memory: f64,
    /// Seconds for all of a board's free flash.
    flash_price: f64,
}

impl Chooser<'_> {
    /// A plan that fits, or why there is none and what the smallest one would take.
    fn plan(&self, objective: Objective) -> Result<Plan, (PlanError, Option<Prediction>)> {
        let found = match objective {
            Objective::Time => self.fitting(1.0),
            Objective::Memory => self.least(|share| self.fitting(share)),
        };
        if let Some(plan) = found {
            return Ok(plan);
        }
        let any = |memory| {
            self.shortest(Terms {
                memory,
                flash_price: 0.0,
            })
        };
        let bands = || Plan::each_layer(self.layers, self.portions.to_vec(), Form::Rows);
        match predict(self.layers, &self.least(any).unwrap_or_else(bands)) {
            Ok(foreseen) => {
                let lacks = self.lacks(&foreseen);
                Err((
                    lacks.unwrap_or_else(|| self.memory_error(&foreseen)),
                    Some(foreseen),
                ))
            }
            Err(error) => Err((error, None)),
        }
    }

    /// A plan whose stages take at most this share of the memory, and that as a whole fits memory and flash.
    fn fitting(&self, memory: f64) -> Option<Plan> {
        let mut terms = Terms {
            memory,
            flash_price: 0.0,
        };
        for _ in 0..ATTEMPTS {
            let plan = self.shortest(terms)?;
            match self.lacks(&predict(self.layers, &plan).ok()?) {
                None => return Some(plan),
                // Weights are paid for only if they would not fit otherwise.
                Some(PlanError::Flash { .. }) => terms.flash_price = (terms.flash_price * 4.0).max(1e-3),
                // A stage holds more than was foreseen when its neighbours were not known.
                Some(_) => terms.memory *= 0.98,
            }
        }
        None
    }

    /// The plan for the least share of the memory for which there is one.
    fn least(&self, way: impl Fn(f64) -> Option<Plan>) -> Option<Plan> {
        let mut shares: Vec<f64> = self.edges.iter().flatten().map(|edge| self.share(edge)).collect();
        shares.sort_by(f64::total_cmp);
        let least = shares.partition_point(|share| way(*share).is_none());
        way(*shares.get(least)?)
    }

    /// The largest share of its free memory that a board takes in a stage.
    fn share(&self, edge: &Edge) -> f64 {
        let boards = edge.cost.boards.iter().zip(self.boards);
        boards
            .map(|(cost, board)| cost.peak as f64 / board.free_memory as f64)
            .fold(0.0, f64::max)
    }

    /// The way through the layers that takes the least time, over stages within the memory.
    fn shortest(&self, terms: Terms) -> Option<Plan> {
        type Node = (usize, Option<Form>);
        // For each activation and form, the time to it and the last stage before it.
        type Reached<'a> = (f64, Option<(Node, &'a Edge)>);
        let mut reached: BTreeMap<Node, Reached<'_>> = BTreeMap::from([((0, None), (0.0, None))]);
        for (start, edges) in self.edges.iter().enumerate() {
            for edge in edges {
                let from = (start, edge.from);
                let Some((before, _)) = reached.get(&from) else {
                    continue;
                };
                if self.share(edge) > terms.memory {
                    continue;
                }
                let weights = edge.cost.boards.iter().zip(self.boards);
                let weights = weights.map(|(cost, board)| cost.weights as f64 / board.free_flash as f64);
                let time = before + edge.seconds + terms.flash_price * weights.fold(0.0, f64::max);
                let to = (edge.stage.layers.end, Some(edge.stage.form));
                if reached.get(&to).is_none_or(|(known, _)| time < *known) {
                    reached.insert(to, (time, Some((from, edge))));
                }
            }
        }
        let ends = reached.range((self.layers.len(), None)..);
        let (end, _) = ends.min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b))?;
        let mut stages = Vec::new();
        let mut at = *end;
        while let Some((from, edge)) = reached.get(&at)?.1 {
            stages.push(edge.stage.clone());
            at = from;
        }
        stages.reverse();
        Some(Plan {
            stages,
            portions: self.portions.to_vec(),
        })
    }

    /// What a board lacks for a plan, if it does.
    fn lacks(&self, foreseen: &Prediction) -> Option<PlanError> {
        let mut boards = foreseen.boards.iter().zip(self.boards).enumerate();
        if boards
            .clone()
            .any(|(_, (cost, board))| cost.peak > board.free_memory)
        {
            return Some(self.memory_error(foreseen));
        }
        let (index, (cost, board)) = boards.find(|(_, (cost, board))| cost.weights > board.free_flash)?;
        Some(PlanError::Flash {
            board: index,
            free: board.free_flash,
            needed: cost.weights,
        })
    }

    fn memory_error(&self, foreseen: &Prediction) -> PlanError {
        let fill = |board: usize| foreseen.boards[board].peak as f64 / self.boards[board].free_memory as f64;
        let fullest = (0..self.boards.len())
            .max_by(|a, b| fill(*a).total_cmp(&fill(*b)))
            .unwrap_or(0);
        PlanError::Memory {
            board: fullest,
            free: self.boards[fullest].free_memory,
            needed: foreseen.boards[fullest].peak,
        }
    }
}
