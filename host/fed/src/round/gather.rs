use super::sketch::Sketch;
use crate::lora::Adapter;
use crate::privacy::{CentralError, Clipped, ClippedSum};
use crate::strategy::{Facts, Gather, Strategy, StrategyError};
use crate::{Arithmetic, ArithmeticError, RunningSum};
use karman_tensor::arithmetic::{FixedSum, Grid, Term};
use serde::{Deserialize, Serialize};

/// Updates that are added in one pass over the sum: no more of them are ever in memory.
pub(crate) const BATCH: usize = 8;

/// The updates of a round until they are one.
#[derive(Debug)]
pub(crate) struct Gathering {
    pub(crate) facts: Vec<Facts>,
    /// Where contributions are wanted, one for each update.
    pub(crate) sketches: Vec<Sketch>,
    /// The updates that are not in the sum, with their factors; all of them where the rule does not want them added up.
    held: Vec<(f64, Vec<f32>)>,
    sum: Option<Box<dyn RunningSum>>,
    /// Where clients have taken the mean of all updates, that, and none above.
    mean: Option<Vec<f32>>,
    /// In a private run all updates are here, and none above.
    clipped: Option<ClippedSum>,
    /// Where clients train adapters, those of each, and none above.
    adapters: Vec<Vec<Adapter>>,
    wanted: Gather,
    length: usize,
    grid: Grid,
}

/// The same, written down.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct SavedGathering {
    facts: Vec<Facts>,
    sketches: Vec<Sketch>,
    factors: Vec<f64>,
    #[serde(with = "crate::floats::several")]
    held: Vec<Vec<f32>>,
    sum: Option<FixedSum>,
    clipped: Option<ClippedSum>,
    adapters: Vec<Vec<Adapter>>,
}

impl SavedGathering {
    pub(crate) const fn count(&self) -> usize {
        self.facts.len()
    }
}

impl Gathering {
    /// For updates of this length (all rows together), whose terms fit the grid.
    pub(crate) fn new(strategy: &dyn Strategy, length: usize, grid: Grid) -> Self {
        Self {
            facts: Vec::new(),
            sketches: Vec::new(),
            held: Vec::new(),
            sum: None,
            mean: None,
            clipped: None,
            adapters: Vec::new(),
            wanted: strategy.gather(),
            length,
            grid,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.facts.len()
    }

    /// Updates in memory.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes in an update, multiplied by this where updates are added up.
    pub(crate) fn add(
        &mut self,
        facts: Facts,
        factor: f64,
        numbers: Vec<f32>,
        arithmetic: &dyn Arithmetic,
    ) -> Result<(), ArithmeticError> {
        self.facts.push(facts);
        self.held.push((factor, numbers));
        match self.wanted == Gather::Sum && self.held.len() == BATCH {
            true => self.flush(arithmetic),
            false => Ok(()),
        }
    }

    /// Takes in all updates of a round at once, already summed.
    pub(crate) fn add_sum(
        &mut self,
        facts: Vec<Facts>,
        sum: FixedSum,
        arithmetic: &dyn Arithmetic,
    ) -> Result<(), ArithmeticError> {
        self.sum = Some(arithmetic.sum(sum)?);
        self.facts = facts;
        Ok(())
    }

    /// Takes in the mean of all updates of a round. The round is closed at once: it goes into no checkpoint.
    pub(crate) fn add_mean(&mut self, facts: Vec<Facts>, mean: Vec<f32>) {
        self.facts = facts;
        self.mean = Some(mean);
    }

    /// Takes in an update of a private run. Integers are added: their order has no influence.
    pub(crate) fn add_clipped(&mut self, facts: Facts, update: &Clipped) -> Result<(), CentralError> {
        let length = self.length;
        self.clipped
            .get_or_insert_with(|| ClippedSum::nothing(length))
            .add(update)?;
        self.facts.push(facts);
        Ok(())
    }

    /// Takes in the adapters of a client: of unequal ranks, they are added up by no grid.
    pub(crate) fn add_adapters(&mut self, facts: Facts, adapters: Vec<Adapter>) {
        self.facts.push(facts);
        self.adapters.push(adapters);
    }

    fn flush(&mut self, arithmetic: &dyn Arithmetic) -> Result<(), ArithmeticError> {
        let sum = match &mut self.sum {
            Some(sum) => sum,
            none => none.insert(arithmetic.sum(FixedSum::new(self.length, self.grid))?),
        };
        let terms: Vec<Term<'_>> = self
            .held
            .iter()
            .map(|(factor, values)| Term {
                values,
                factor: *factor,
            })
            .collect();
        sum.add(&terms)?;
        self.held.clear();
        Ok(())
    }

    /// The facts in the order of clients, and what all updates come to. The order of arrival has no influence: sums are in fixed
    /// point, and a rule that needs all updates, or each, gets them in the order of clients.
    pub(crate) fn finish(
        mut self,
        strategy: &dyn Strategy,
        arithmetic: &dyn Arithmetic,
    ) -> Result<Finished, StrategyError> {
        let mut order: Vec<usize> = (0..self.facts.len()).collect();
        order.sort_by_key(|i| (self.facts[*i].client, self.facts[*i].assignment));
        let mut updates = Vec::new();
        let update = if self.wanted == Gather::Each {
            let mut held = std::mem::take(&mut self.held);
            updates = order.iter().map(|i| std::mem::take(&mut held[*i].1)).collect();
            Vec::new()
        } else if self.clipped.is_some() || !self.adapters.is_empty() || self.facts.is_empty() {
            vec![0.0; self.length]
        } else if let Some(mean) = self.mean.take() {
            mean
        } else if let Gather::Together { .. } = self.wanted {
            let updates: Vec<&[f32]> = order.iter().map(|i| &self.held[*i].1[..]).collect();
            strategy.combine(&updates, arithmetic)?
        } else {
            self.flush(arithmetic)?;
            let weight: u128 = self.facts.iter().map(|facts| u128::from(facts.weight)).sum();
            let sum = self.sum.as_ref().map(|sum| sum.read()).transpose()?;
            sum.map_or_else(Vec::new, |sum| sum.divided_by(weight as f64))
        };
        if self.wanted != Gather::Each && update.len() != self.length {
            let what = format!(
                "its result has {} numbers instead of {}",
                update.len(),
                self.length
            );
            return Err(StrategyError::Failed(what));
        }
        let facts = order.iter().map(|i| self.facts[*i].clone()).collect();
        let sketches = order
            .iter()
            .filter_map(|i| self.sketches.get(*i).cloned())
            .collect();
        let adapters = order
            .iter()
            .filter_map(|i| self.adapters.get_mut(*i).map(std::mem::take))
            .collect();
        Ok(Finished {
            update,
            updates,
            clipped: self.clipped,
            adapters,
            facts,
            sketches,
        })
    }

    pub(crate) fn save(&self) -> Result<SavedGathering, ArithmeticError> {
        Ok(SavedGathering {
            facts: self.facts.clone(),
            sketches: self.sketches.clone(),
            factors: self.held.iter().map(|(factor, _)| *factor).collect(),
            held: self.held.iter().map(|(_, numbers)| numbers.clone()).collect(),
            sum: self.sum.as_ref().map(|sum| sum.read()).transpose()?,
            clipped: self.clipped.clone(),
            adapters: self.adapters.clone(),
        })
    }

    /// Goes on from what was written down; what does not fit the run is an error.
    pub(crate) fn restore(
        &mut self,
        saved: SavedGathering,
        arithmetic: &dyn Arithmetic,
    ) -> Result<(), ArithmeticError> {
        self.facts = saved.facts;
        self.sketches = saved.sketches;
        self.held = saved.factors.into_iter().zip(saved.held).collect();
        self.sum = saved.sum.map(|sum| arithmetic.sum(sum)).transpose()?;
        self.clipped = saved.clipped;
        self.adapters = saved.adapters;
        Ok(())
    }
}

/// What the updates of a round come to.
pub(crate) struct Finished {
    pub(crate) update: Vec<f32>,
    /// Where the rule wants each, in the order of clients; then there is none above.
    pub(crate) updates: Vec<Vec<f32>>,
    /// In a private run in place of the update, which only noise makes one.
    pub(crate) clipped: Option<ClippedSum>,
    /// Where clients train adapters, those of each in place of the update.
    pub(crate) adapters: Vec<Vec<Adapter>>,
    /// In the order of clients.
    pub(crate) facts: Vec<Facts>,
    /// In the same order, where they were wanted.
    pub(crate) sketches: Vec<Sketch>,
}
