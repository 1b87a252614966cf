//! Functions of one element.

use super::draft::Slot;
use super::translate::{Translation, refuse};
use crate::InferError;
use crate::graph::Operation;
use karman_gpu::{Arithmetic, Step};
use std::f32::consts::FRAC_1_SQRT_2;

impl Translation<'_> {
    /// A straight line between 0 and 1.
    pub(super) fn hard_sigmoid(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (slope, middle) = (operation.float("alpha", 0.2), operation.float("beta", 0.5));
        self.each(operation, &between(slope, middle))
    }

    /// Each element times its hard sigmoid.
    pub(super) fn hard_swish(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        self.times_itself(operation, &between(1.0 / 6.0, 0.5))
    }

    pub(super) fn gelu(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        match operation.text("approximate", "none") {
            "tanh" => self.each(operation, &[Step::Gelu]),
            "none" => {
                let half = [
                    Step::Scale(FRAC_1_SQRT_2),
                    Step::Erf,
                    Step::Offset(1.0),
                    Step::Scale(0.5),
                ];
                self.times_itself(operation, &half)
            }
            other => refuse(operation, format!("its `approximate` is {other:?}")),
        }
    }

    pub(super) fn leaky(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let below = [Step::AtMost(0.0), Step::Scale(operation.float("alpha", 0.01))];
        self.bent(operation, &below)
    }

    pub(super) fn elu(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let scale = Step::Scale(operation.float("alpha", 1.0));
        self.bent(
            operation,
            &[Step::AtMost(0.0), Step::Exp, Step::Offset(-1.0), scale],
        )
    }

    /// Below 0 a slope of the file for each element, or for each channel.
    pub(super) fn sloped(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (slot, dims) = self.edge(operation, 0)?;
        let slopes = self.constant(operation, 1)?;
        self.draft.keep(slot);
        let below = self.draft.steps(slot, &[Step::AtMost(0.0)])?;
        let slopes = self.spread(operation, &slopes.shape, &slopes.values, &dims)?;
        let below = self.draft.combine(below, slopes, Step::Multiply)?;
        let above = self.draft.steps(slot, &[Step::Relu])?;
        Ok(self.draft.combine(above, below, Step::Add)?)
    }

    /// Each element to the power of a number of the file, where that is one of few.
    pub(super) fn power(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let (slot, _) = self.edge(operation, 0)?;
        let &[power] = &self.exponents(operation)?[..] else {
            return refuse(operation, "its power is not the same for all elements");
        };
        self.draft.keep(slot);
        match power {
            0.5 => Ok(self.draft.steps(slot, &[Step::SquareRoot])?),
            1.0 => Ok(slot),
            2.0 => Ok(self.draft.combine(slot, slot, Step::Multiply)?),
            3.0 => {
                let square = self.draft.combine(slot, slot, Step::Multiply)?;
                Ok(self.draft.combine(square, slot, Step::Multiply)?)
            }
            _ => refuse(operation, format!("its power is {power}, and not 0.5, 1, 2 or 3")),
        }
    }

    /// The powers of an operator: of either type.
    fn exponents(&self, operation: &Operation<'_>) -> Result<Vec<f32>, InferError> {
        if let Ok(Some(whole)) = self.numbers(operation, 1) {
            return Ok(whole.iter().map(|number| *number as f32).collect());
        }
        self.constant(operation, 1).map(|weight| weight.values)
    }

    pub(super) fn reciprocal(&mut self, operation: &Operation<'_>) -> Result<Slot, InferError> {
        let below = self.edge(operation, 0)?;
        let one = (self.hold(vec![1.0])?, Vec::new());
        self.broadcast(Arithmetic::Divide, one, below)
    }

    /// Each element times what these steps make of it.
    fn times_itself(&mut self, operation: &Operation<'_>, steps: &[Step]) -> Result<Slot, InferError> {
        let (slot, _) = self.edge(operation, 0)?;
        self.draft.keep(slot);
        let factor = self.draft.steps(slot, steps)?;
        Ok(self.draft.combine(factor, slot, Step::Multiply)?)
    }

    /// Each element as it is from 0 on, and what these steps make of it below; of 0 they make 0.
    fn bent(&mut self, operation: &Operation<'_>, below: &[Step]) -> Result<Slot, InferError> {
        let (slot, _) = self.edge(operation, 0)?;
        self.draft.keep(slot);
        let below = self.draft.steps(slot, below)?;
        let above = self.draft.steps(slot, &[Step::Relu])?;
        Ok(self.draft.combine(above, below, Step::Add)?)
    }
}

/// A straight line, as far as it lies from 0 to 1.
fn between(slope: f32, middle: f32) -> [Step; 4] {
    [
        Step::Scale(slope),
        Step::Offset(middle),
        Step::AtLeast(0.0),
        Step::AtMost(1.0),
    ]
}
