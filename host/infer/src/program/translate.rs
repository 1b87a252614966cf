//! From the nodes of a graph to kernels.

use super::draft::{Draft, Slot};
use super::too_large;
use crate::graph::{Graph, Operand, Operation};
use crate::screen::printable;
use crate::weights::{Weight, constant};
use crate::{InferError, ModelLimits};
use karman_gpu::{Program, Step};
use karman_tensor::{ElementType, Shape};
use karman_types::ByteSize;
use std::collections::HashMap;

/// A graph at one batch, node by node.
pub(super) struct Translation<'g> {
    graph: &'g Graph,
    batch: u32,
    limits: &'g ModelLimits,
    /// Bytes that the program may take on its device.
    most: ByteSize,
    pub(super) draft: Draft,
    /// Bytes of all constants.
    constants: u64,
    /// Where each edge lies.
    slots: HashMap<usize, Slot>,
}

/// The program of a graph at this batch, and the shapes of its outputs.
///
/// # Errors
/// [`InferError::NotOnGpu`] for the first operator that no kernel computes as it is set.
pub(super) fn translate(
    graph: &Graph,
    batch: u32,
    limits: &ModelLimits,
    most: ByteSize,
) -> Result<(Program, Vec<Shape>), InferError> {
    let mut translation = Translation {
        graph,
        batch,
        limits,
        most,
        draft: Draft::default(),
        constants: 0,
        slots: HashMap::new(),
    };
    for edge in graph.inputs() {
        let words = translation.elements(*edge)?;
        let slot = translation.draft.input(words);
        translation.slots.insert(*edge, slot);
    }
    for at in 0..graph.nodes().len() {
        translation.node(at)?;
    }
    let (mut outputs, mut shapes) = (Vec::new(), Vec::new());
    for edge in graph.outputs() {
        outputs.push(translation.slot(*edge)?);
        let shape = Shape::new(&translation.dims(*edge)?);
        shapes.push(shape.map_err(|reason| InferError::Output {
            name: graph.edges()[*edge].info.name.clone(),
            reason,
        })?);
    }
    Ok((translation.draft.finish(&outputs)?, shapes))
}

/// An operator that no kernel computes, with the reason.
pub(super) fn refuse<T>(operation: &Operation<'_>, reason: impl Into<String>) -> Result<T, InferError> {
    Err(InferError::NotOnGpu {
        what: format!(
            "operator `{}` (`{}`)",
            printable(&operation.op),
            printable(operation.name)
        ),
        reason: reason.into(),
    })
}

impl Translation<'_> {
    fn node(&mut self, at: usize) -> Result<(), InferError> {
        let operation = self.graph.operation(at)?;
        let Some(output) = self.graph.only_output(at)? else {
            return refuse(&operation, "only its first output is made, and others are used");
        };
        let slot = self.kernel(&operation, output)?;
        if self.elements(output)? != self.draft.words(slot) {
            return refuse(
                &operation,
                "it gives another shape than the kernel that is like it",
            );
        }
        let edge = &self.graph.edges()[output];
        if edge.to.len() != 1 || edge.is_output {
            self.draft.keep(slot);
        }
        self.slots.insert(output, slot);
        Ok(())
    }

    /// What computes an operator.
    fn kernel(&mut self, operation: &Operation<'_>, output: usize) -> Result<Slot, InferError> {
        match operation.op.as_str() {
            "Conv" => self.convolution(operation),
            "Gemm" => self.gemm(operation),
            "MatMul" => self.product(operation),
            "MaxPool" | "AveragePool" => self.pool(operation),
            "GlobalMaxPool" | "GlobalAveragePool" => self.whole(operation),
            "Softmax" => self.softmax(operation),
            "BatchNormalization" => self.normalisation(operation),
            "Add" | "Sub" | "Mul" | "Div" => self.arithmetic(operation, output),
            "Concat" => self.concat(operation, output),
            "Clip" => self.clip(operation),
            "Relu" => self.each(operation, &[Step::Relu]),
            "Sigmoid" => self.each(operation, &[Step::Sigmoid]),
            "Tanh" => self.each(operation, &[Step::Tanh]),
            "Exp" => self.each(operation, &[Step::Exp]),
            "Abs" => self.each(operation, &[Step::Abs]),
            "Neg" => self.each(operation, &[Step::Scale(-1.0)]),
            // Elements stay where they are, and those of a batch follow each other.
            "Identity" | "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze" => {
                self.edge(operation, 0).map(|(slot, _)| slot)
            }
            "Dropout" if matches!(operation.input(2), Operand::Absent) => {
                self.edge(operation, 0).map(|(slot, _)| slot)
            }
            "Dropout" => refuse(operation, "it says for itself whether it drops"),
            _ => refuse(operation, "no kernel here computes it"),
        }
    }

    /// Where an operator's input in this place lies, and its sizes.
    pub(super) fn edge(
        &self,
        operation: &Operation<'_>,
        place: usize,
    ) -> Result<(Slot, Vec<u32>), InferError> {
        match operation.input(place) {
            Operand::Edge(edge) => Ok((self.slot(edge)?, self.dims(edge)?)),
            _ => refuse(operation, format!("its input {place} is a constant")),
        }
    }

    /// The numbers of the constant that an operator takes in this place.
    pub(super) fn constant(&self, operation: &Operation<'_>, place: usize) -> Result<Weight, InferError> {
        match self.optional(operation, place)? {
            Some(weight) => Ok(weight),
            None => refuse(operation, format!("its input {place} is left out")),
        }
    }

    /// The same where it may be left out.
    pub(super) fn optional(
        &self,
        operation: &Operation<'_>,
        place: usize,
    ) -> Result<Option<Weight>, InferError> {
        match operation.input(place) {
            Operand::Absent => Ok(None),
            Operand::Constant(tensor) => match constant(tensor)? {
                Some(weight) => Ok(Some(weight)),
                None => refuse(operation, format!("its input {place} is not f32")),
            },
            Operand::Edge(_) => refuse(operation, format!("its input {place} is no constant")),
            Operand::Computed => refuse(
                operation,
                format!("its input {place} is a constant that is computed"),
            ),
        }
    }

    /// A constant of the program: those of all operators together are no larger than it may be, however often the file's are used.
    pub(super) fn hold(&mut self, values: Vec<f32>) -> Result<Slot, InferError> {
        self.reserve(values.len() as u64)?;
        Ok(self.draft.constant(values))
    }

    /// Counts the words of a constant, before it is made.
    pub(super) fn reserve(&mut self, words: u64) -> Result<(), InferError> {
        self.constants = self.constants.saturating_add(words.saturating_mul(4));
        match self.constants <= self.most.0 {
            true => Ok(()),
            false => Err(too_large(self.constants, self.most).into()),
        }
    }

    /// Where an edge lies, after all nodes before those that take it.
    fn slot(&self, edge: usize) -> Result<Slot, InferError> {
        let lies = self.slots.get(&edge).copied();
        lies.ok_or_else(|| InferError::malformed("an operator takes what none before it makes"))
    }

    pub(super) fn dims(&self, edge: usize) -> Result<Vec<u32>, InferError> {
        let info = &self.graph.edges()[edge].info;
        let no = |reason: String| InferError::NotOnGpu {
            what: format!("tensor `{}`", printable(&info.name)),
            reason,
        };
        if info.element != ElementType::F32 {
            return Err(no(format!(
                "its elements are {}, and kernels take f32",
                info.element
            )));
        }
        let dims = self.graph.dims_at(edge, self.batch);
        dims.ok_or_else(|| no("more than one of its sizes is open".into()))
    }

    /// The elements of an edge, which have to be as few as a tensor may have.
    fn elements(&self, edge: usize) -> Result<usize, InferError> {
        let elements = count(&self.dims(edge)?);
        InferError::over("tensor", self.limits.tensor.0, elements.saturating_mul(4), || {
            format!("`{}` in bytes", printable(&self.graph.edges()[edge].info.name))
        })?;
        // Above that it does not fit into memory either.
        Ok(usize::try_from(elements).unwrap_or(usize::MAX))
    }

    /// The same steps on every element.
    pub(super) fn each(&mut self, operation: &Operation<'_>, steps: &[Step]) -> Result<Slot, InferError> {
        let (slot, _) = self.edge(operation, 0)?;
        Ok(self.draft.steps(slot, steps)?)
    }
}

/// The elements of a tensor of these sizes.
pub(super) fn count(dims: &[u32]) -> u64 {
    dims.iter()
        .fold(1, |all, dim| all.saturating_mul(u64::from(*dim)))
}
