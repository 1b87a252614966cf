use karman_tensor::arithmetic::{self, FixedSum, SumError, Term};
use std::fmt;

/// Arithmetic on whole arrays, which a round leaves to whoever drives it.
///
/// It is a trait, not a pair of an action and an event: a rule computes and goes on in the next line, so that strategies read
/// like their papers and a round has no half-computed state to checkpoint. What a round asks for is little (one pass over a batch of
/// at most eight updates as they arrive; distances and orders of coordinates for the robust rules), so a graphics processor
/// keeps the running sum in its own memory behind [`RunningSum`] and takes in one batch after another; only the finished sum comes
/// back. Whoever calls may block for that long: a driver runs the coordinator where that is allowed.
///
/// The optimiser's step, one pass over the model per round, stays with the strategy.
pub trait Arithmetic: fmt::Debug + Send + Sync {
    /// A sum that goes on from this one.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn sum(&self, start: FixedSum) -> Result<Box<dyn RunningSum>, ArithmeticError>;

    /// As [`arithmetic::squared_distances`].
    ///
    /// # Errors
    /// When the device fails.
    fn squared_distances(&self, arrays: &[&[f32]]) -> Result<Vec<f64>, ArithmeticError>;

    /// As [`arithmetic::trimmed_mean`].
    ///
    /// # Errors
    /// When the device fails.
    fn trimmed_mean(&self, arrays: &[&[f32]], drop: usize) -> Result<Vec<f32>, ArithmeticError>;

    /// As [`arithmetic::mean_around_median`].
    ///
    /// # Errors
    /// When the device fails.
    fn mean_around_median(&self, arrays: &[&[f32]], keep: usize) -> Result<Vec<f32>, ArithmeticError>;
}

/// A fixed-point sum that takes in updates, wherever it lies.
pub trait RunningSum: fmt::Debug + Send {
    /// Adds some arrays, as [`FixedSum::add`] does: the same bits on every device.
    ///
    /// # Errors
    /// When there are too many, one has another length, or the device fails.
    fn add(&mut self, terms: &[Term<'_>]) -> Result<(), ArithmeticError>;

    /// What has been added up.
    ///
    /// # Errors
    /// When the device fails.
    fn read(&self) -> Result<FixedSum, ArithmeticError>;
}

/// Arithmetic that did not come about.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ArithmeticError {
    /// Arrays that cannot be added.
    #[error(transparent)]
    Sum(#[from] SumError),
    /// The device on which it runs has failed.
    #[error("the device that adds up updates failed: {0}")]
    Device(String),
}

/// The reference arithmetic of the processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processor;

impl Arithmetic for Processor {
    fn sum(&self, start: FixedSum) -> Result<Box<dyn RunningSum>, ArithmeticError> {
        Ok(Box::new(start))
    }

    fn squared_distances(&self, arrays: &[&[f32]]) -> Result<Vec<f64>, ArithmeticError> {
        Ok(arithmetic::squared_distances(arrays))
    }

    fn trimmed_mean(&self, arrays: &[&[f32]], drop: usize) -> Result<Vec<f32>, ArithmeticError> {
        Ok(arithmetic::trimmed_mean(arrays, drop))
    }

    fn mean_around_median(&self, arrays: &[&[f32]], keep: usize) -> Result<Vec<f32>, ArithmeticError> {
        Ok(arithmetic::mean_around_median(arrays, keep))
    }
}

impl RunningSum for FixedSum {
    fn add(&mut self, terms: &[Term<'_>]) -> Result<(), ArithmeticError> {
        Ok(Self::add(self, terms)?)
    }

    fn read(&self) -> Result<FixedSum, ArithmeticError> {
        Ok(self.clone())
    }
}
