use super::board::check;
use super::edges::{Edge, edges};
use super::portions::move_one;
use super::{Board, BoardCost, Form, Link, Plan, PlanError, Prediction, portions, predict};
use karman_tensor::quantised::Layer;
use std::collections::BTreeMap;

/// What a plan minimises. Memory and flash are limits in any case.
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
/// Seconds for all of a board's flash, when nothing else shall count.
const ALL_FOR_FLASH: f64 = 1e9;

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

/// An activation in a form.
type Node = (usize, Option<Form>);
/// How soon each is there, and by which stage from where.
type Reached<'a> = BTreeMap<Node, (f64, Option<(Node, &'a Edge)>)>;

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
        // What takes least of what lacks fits after all, or says how much there would have to be.
        let cheapest = |memory, flash_price| self.shortest(Terms { memory, flash_price });
        let bands = || Plan::each_layer(self.layers, self.portions.to_vec(), Form::Rows);
        let mut plan = self.least(|memory| cheapest(memory, 0.0)).unwrap_or_else(bands);
        let mut foreseen = predict(self.layers, &plan).map_err(|error| (error, None))?;
        if let (Some(PlanError::Flash { .. }), Some(divided)) =
            (self.lacks(&foreseen), cheapest(1.0, ALL_FOR_FLASH))
        {
            foreseen = predict(self.layers, &divided).map_err(|error| (error, None))?;
            plan = divided;
        }
        match self.lacks(&foreseen) {
            None => Ok(plan),
            Some(error) => Err((error, Some(foreseen))),
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
        let mut reached: Reached<'_> = BTreeMap::from([((0, None), (0.0, None))]);
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

    /// What a board lacks for a plan, if it does: of the board that lacks most.
    fn lacks(&self, foreseen: &Prediction) -> Option<PlanError> {
        type Figure = fn(&(usize, (&BoardCost, &Board))) -> (u64, u64);
        let fullest = |figure: Figure| {
            let fill = |board: &_| {
                let (needed, free) = figure(board);
                needed as f64 / free as f64
            };
            let boards = foreseen.boards.iter().zip(self.boards).enumerate();
            let fullest = boards.max_by(|a, b| fill(a).total_cmp(&fill(b)))?;
            let (needed, free) = figure(&fullest);
            (needed > free).then_some((fullest.0, needed, free))
        };
        if let Some((board, needed, free)) = fullest(|(_, (cost, board))| (cost.peak, board.free_memory)) {
            return Some(PlanError::Memory { board, free, needed });
        }
        let (board, needed, free) = fullest(|(_, (cost, board))| (cost.weights, board.free_flash))?;
        Some(PlanError::Flash { board, free, needed })
    }
}
