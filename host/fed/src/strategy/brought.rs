use super::{Aggregate, Facts, Gather, Strategy, StrategyError};
use crate::StateError;
use std::fmt;

/// Makes the next version of the updates of one round, outside of here: in the sandbox of a plugin. It keeps nothing from round to round
/// but what it gives back as [`Made::state`], so that the same round always comes to the same version.
pub trait Aggregator: fmt::Debug + Send {
    /// Its name, for people.
    fn name(&self) -> &str;

    /// The next version.
    ///
    /// # Errors
    /// Why there is none.
    fn aggregate(&self, round: &Round<'_>) -> Result<Made, String>;
}

/// A round that is closed.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The version that clients were given.
    pub version: u64,
    /// That version.
    pub model: &'a [f32],
    /// What the round before gave back; empty in the first.
    pub state: &'a [u8],
    /// What each client's training changed, in the order of clients.
    pub updates: &'a [Vec<f32>],
    /// What is known of each update, in the same order.
    pub facts: &'a [Facts],
    /// Clients that the run knows, whether they took part or not.
    pub population: usize,
}

/// What has been made of a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Made {
    /// The next version.
    pub model: Vec<f32>,
    /// What is to be given to the next round.
    pub state: Vec<u8>,
}

/// A strategy that a plugin brings. Its state is bytes that only the plugin can read.
#[derive(Debug)]
pub struct Brought {
    aggregator: Box<dyn Aggregator>,
    state: Vec<u8>,
}

impl Brought {
    /// Before its first round.
    pub const fn new(aggregator: Box<dyn Aggregator>) -> Self {
        Self {
            aggregator,
            state: Vec::new(),
        }
    }
}

impl Strategy for Brought {
    fn name(&self) -> &str {
        self.aggregator.name()
    }

    fn gather(&self) -> Gather {
        Gather::Each
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        let failed = |why: String| StrategyError::Plugin {
            plugin: self.aggregator.name().to_owned(),
            version: aggregate.version + 1,
            why,
        };
        let round = Round {
            version: aggregate.version,
            model,
            state: &self.state,
            updates: aggregate.updates,
            facts: aggregate.facts,
            population: aggregate.population,
        };
        let made = self.aggregator.aggregate(&round).map_err(failed)?;
        if made.model.len() != model.len() {
            let (given, wanted) = (made.model.len(), model.len());
            return Err(failed(format!(
                "its model has {given} numbers instead of {wanted}"
            )));
        }
        if let Some(place) = made.model.iter().position(|number| !number.is_finite()) {
            let number = made.model[place];
            return Err(failed(format!("number {place} of its model is {number}")));
        }
        model.copy_from_slice(&made.model);
        self.state = made.state;
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        self.state.clone()
    }

    fn load(&mut self, state: &[u8]) -> Result<(), StateError> {
        self.state = state.to_vec();
        Ok(())
    }
}
