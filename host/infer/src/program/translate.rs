//! From the nodes of a graph to kernels.

use super::draft::{Draft, Slot};
use super::feed::{Feed, Taken, is_whole};
use super::{Translated, too_large};
use crate::graph::{Graph, Operand, Operation};
use crate::screen::printable;
use crate::weights::{Weight, constant, whole_numbers};
use crate::{InferError, ModelLimits};
use karman_gpu::Step;
use karman_tensor::{ElementType, Shape};
use karman_types::ByteSize;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

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
    /// What each input of the program is.
    feeds: Vec<Feed>,
    /// Edges of whole numbers that are an input of the model: which.
    whole: HashMap<usize, usize>,
    /// Edges whose numbers follow from sizes: those are known, and no device computes them.
    sizes: HashSet<usize>,
}

/// The program of a graph at this batch, with what goes in and what comes out.
///
/// # Errors
/// [`InferError::NotOnGpu`] for the first operator that no kernel computes as it is set.
pub(super) fn translate(
    graph: &Graph,
    batch: u32,
    limits: &ModelLimits,
    most: ByteSize,
) -> Result<Translated, InferError> {
    graph.check_translatable()?;
    let mut translation = Translation {
        graph,
        batch,
        limits,
        most,
        draft: Draft::default(),
        constants: 0,
        slots: HashMap::new(),
        feeds: Vec::new(),
        whole: HashMap::new(),
        sizes: HashSet::new(),
    };
    for (input, edge) in graph.inputs().iter().enumerate() {
        if is_whole(graph.edges()[*edge].info.element) {
            translation.whole.insert(*edge, input);
            continue;
        }
        translation.dims(*edge)?;
        let slot = translation.feed(input, Taken::AsItIs)?;
        translation.slots.insert(*edge, slot);
    }
    for at in 0..graph.nodes().len() {
        translation.node(at)?;
    }
    let (mut outputs, mut shapes) = (Vec::new(), Vec::new());
    for edge in graph.outputs() {
        let shape = Shape::new(&translation.dims(*edge)?);
        outputs.push(translation.slot(*edge)?);
        shapes.push(shape.map_err(|reason| InferError::Output {
            name: graph.edges()[*edge].info.name.clone(),
            reason,
        })?);
    }
    Ok(Translated {
        program: Arc::new(translation.draft.finish(&outputs)?),
        feeds: translation.feeds.into(),
        shapes: shapes.into(),
    })
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
        let outputs = self.graph.outputs_of(at)?;
        if self.follows_from_sizes(&operation, &outputs) {
            self.sizes.extend(outputs.into_iter().flatten());
            return Ok(());
        }
        if operation.op == "Split" {
            for (output, slot) in self.split(&operation, &outputs)? {
                self.lies(&operation, output, slot)?;
            }
            return Ok(());
        }
        let (Some(Some(output)), true) = (
            outputs.first().copied(),
            outputs.iter().skip(1).all(Option::is_none),
        ) else {
            return refuse(&operation, "only its first output is made, and others are used");
        };
        let gives = self.graph.edges()[output].info.element;
        if let Some(input) = self.whole_input(&operation, 0)
            && only_moves(&operation.op)
            && is_whole(gives)
        {
            self.whole.insert(output, input);
            return Ok(());
        }
        let slot = self.kernel(&operation, output)?;
        self.lies(&operation, output, slot)
    }

    /// An output of an operator lies there from now on.
    fn lies(&mut self, operation: &Operation<'_>, output: usize, slot: Slot) -> Result<(), InferError> {
        if self.elements(output)? != self.draft.words(slot) {
            return refuse(
                operation,
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

    /// Whether what an operator gives are whole numbers that follow from the sizes of tensors. The sizes of all tensors are known, so
    /// that only who takes the numbers themselves has to be refused.
    fn follows_from_sizes(&self, operation: &Operation<'_>, outputs: &[Option<usize>]) -> bool {
        let follows = |input: &Operand<'_>| match input {
            Operand::Edge(edge) => self.sizes.contains(edge),
            _ => true,
        };
        let is_number = |edge: &usize| self.graph.edges()[*edge].info.element != ElementType::F32;
        let is_known =
            matches!(operation.op.as_str(), "Shape" | "Size") || operation.inputs.iter().all(follows);
        is_known && outputs.iter().flatten().all(is_number)
    }

    /// The input of the model that an operator takes in this place, where that has whole numbers.
    pub(super) fn whole_input(&self, operation: &Operation<'_>, place: usize) -> Option<usize> {
        match operation.input(place) {
            Operand::Edge(edge) => self.whole.get(&edge).copied(),
            _ => None,
        }
    }

    /// The input of the program that is this one of the model, taken so.
    pub(super) fn feed(&mut self, input: usize, taken: Taken) -> Result<Slot, InferError> {
        let feed = Feed { input, taken };
        if let Some(at) = self.feeds.iter().position(|known| *known == feed) {
            return Ok(Slot::Input(at));
        }
        let words = self.elements(self.graph.inputs()[input])?;
        self.feeds.push(feed);
        Ok(self.draft.input(words))
    }

    /// What computes an operator.
    fn kernel(&mut self, operation: &Operation<'_>, output: usize) -> Result<Slot, InferError> {
        match operation.op.as_str() {
            "Conv" => self.convolution(operation),
            "Gemm" => self.gemm(operation),
            "MatMul" => self.product(operation),
            "LayerNormalization" => self.layer_norm(operation),
            "LRN" => self.response_norm(operation),
            "ReduceMean" | "ReduceSum" | "ReduceMax" | "ReduceMin" => self.fold(operation),
            "MaxPool" | "AveragePool" => self.pool(operation),
            "GlobalMaxPool" | "GlobalAveragePool" => self.whole(operation),
            "Softmax" => self.softmax(operation),
            "BatchNormalization" => self.normalisation(operation),
            "Add" | "Sub" | "Mul" | "Div" => self.arithmetic(operation, output),
            "Sum" => self.sum(operation),
            "Concat" => self.concat(operation, output),
            "Transpose" => self.transpose(operation),
            "Slice" => self.slice(operation, output),
            "Expand" => self.expand(operation, output),
            "Gather" => self.gather(operation),
            "Resize" => self.resize(operation, output),
            "Cast" => self.cast(operation),
            "Clip" => self.clip(operation),
            "Relu" => self.each(operation, &[Step::Relu]),
            "Sigmoid" => self.each(operation, &[Step::Sigmoid]),
            "Tanh" => self.each(operation, &[Step::Tanh]),
            "Exp" => self.each(operation, &[Step::Exp]),
            "Abs" => self.each(operation, &[Step::Abs]),
            "Neg" => self.each(operation, &[Step::Scale(-1.0)]),
            "Sqrt" => self.each(operation, &[Step::SquareRoot]),
            "Erf" => self.each(operation, &[Step::Erf]),
            "HardSigmoid" => self.hard_sigmoid(operation),
            "HardSwish" => self.hard_swish(operation),
            "Gelu" => self.gelu(operation),
            "LeakyRelu" => self.leaky(operation),
            "PRelu" => self.sloped(operation),
            "Elu" => self.elu(operation),
            "Pow" => self.power(operation),
            "Reciprocal" => self.reciprocal(operation),
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
            Operand::Edge(edge) => {
                let dims = self.dims(edge)?;
                Ok((self.slot(edge)?, dims))
            }
            _ => refuse(operation, format!("its input {place} is a constant")),
        }
    }

    /// The same where it may be a constant, too.
    pub(super) fn operand(
        &mut self,
        operation: &Operation<'_>,
        place: usize,
    ) -> Result<(Slot, Vec<u32>), InferError> {
        match operation.input(place) {
            Operand::Edge(_) => self.edge(operation, place),
            _ => {
                let weight = self.constant(operation, place)?;
                Ok((self.hold(weight.values)?, weight.shape))
            }
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
        let Some(tensor) = of_file(operation, place)? else {
            return Ok(None);
        };
        match constant(tensor)? {
            Some(weight) => Ok(Some(weight)),
            None => refuse(operation, format!("its input {place} is not f32")),
        }
    }

    /// The whole numbers of the constant that an operator takes in this place, where it is not left out.
    pub(super) fn numbers(
        &self,
        operation: &Operation<'_>,
        place: usize,
    ) -> Result<Option<Vec<i64>>, InferError> {
        let Some(tensor) = of_file(operation, place)? else {
            return Ok(None);
        };
        match whole_numbers(tensor)? {
            Some(numbers) => Ok(Some(numbers)),
            None => refuse(operation, format!("its input {place} has no whole numbers")),
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
        let element = self.graph.edges()[edge].info.element;
        match element {
            ElementType::F32 => self.dims_of_any(edge),
            _ => Err(self.no(edge, format!("its elements are {element}, and kernels take f32"))),
        }
    }

    fn dims_of_any(&self, edge: usize) -> Result<Vec<u32>, InferError> {
        let dims = self.graph.dims_at(edge, self.batch);
        dims.ok_or_else(|| self.no(edge, "more than one of its sizes is open".into()))
    }

    /// A tensor that no kernel takes, with the reason.
    fn no(&self, edge: usize, reason: String) -> InferError {
        InferError::NotOnGpu {
            what: format!("tensor `{}`", printable(&self.graph.edges()[edge].info.name)),
            reason,
        }
    }

    /// The elements of an edge, which have to be as few as a tensor may have.
    pub(super) fn elements(&self, edge: usize) -> Result<usize, InferError> {
        let elements = count(&self.dims_of_any(edge)?);
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

/// Whether an operator leaves the numbers of its first input as they are and where they are.
fn only_moves(op: &str) -> bool {
    matches!(
        op,
        "Identity" | "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze" | "Cast"
    )
}

/// The constant that an operator takes in this place as it stands in the file; none where it is left out.
fn of_file<'g>(operation: &Operation<'g>, place: usize) -> Result<Option<&'g [u8]>, InferError> {
    match operation.input(place) {
        Operand::Absent => Ok(None),
        Operand::Constant(tensor) => Ok(Some(tensor)),
        Operand::Edge(_) => refuse(operation, format!("its input {place} is no constant")),
        Operand::Computed => refuse(
            operation,
            format!("its input {place} is a constant that is computed"),
        ),
    }
}

/// The elements of a tensor of these sizes.
pub(super) fn count(dims: &[u32]) -> u64 {
    dims.iter()
        .fold(1, |all, dim| all.saturating_mul(u64::from(*dim)))
}
