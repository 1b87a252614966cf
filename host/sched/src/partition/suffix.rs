//! What is left of a request.

use super::{GraphError, LayerGraph, Producer, Tensor};
use serde::{Deserialize, Serialize};

/// An activation that survives on some tier.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Held {
    /// Which tensor.
    pub tensor: usize,
    /// The tier that has it.
    pub tier: usize,
}

/// The part of a network that still has to run, as a graph of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Suffix {
    /// Its layers and tensors; what is held is its input.
    pub graph: LayerGraph,
    /// What its layers are called in the whole graph.
    pub layers: Vec<usize>,
    /// What its tensors are called there.
    pub tensors: Vec<usize>,
}

impl LayerGraph {
    /// What has to run to get every result, when these activations are held. Going back from the results, it stops at what is
    /// held: layers whose outputs died with a node run again, others do not. The inputs of the network count as held where
    /// they were.
    ///
    /// # Errors
    ///
    /// A tensor that does not exist, or nothing to run.
    pub fn remaining(&self, held: &[Held]) -> Result<Suffix, GraphError> {
        let mut at = vec![None; self.tensors().len()];
        for (index, tensor) in self.tensors().iter().enumerate() {
            if let Producer::Held(tier) = tensor.from {
                at[index] = Some(tier);
            }
        }
        for Held { tensor, tier } in held {
            *at.get_mut(*tensor)
                .ok_or(GraphError::NoSuchTensor { tensor: *tensor })? = Some(*tier);
        }
        let runs = self.runs(&at);
        let layers: Vec<usize> = (0..runs.len()).filter(|layer| runs[*layer]).collect();
        if layers.is_empty() {
            return Err(GraphError::NothingLeft);
        }
        let new_index = |layer: &usize| layers.binary_search(layer).ok();
        let mut tensors = Vec::new();
        let mut kept = Vec::new();
        for (index, tensor) in self.tensors().iter().enumerate() {
            let from = match (at[index], tensor.from) {
                (Some(tier), _) | (None, Producer::Held(tier)) => Producer::Held(tier),
                (None, Producer::Layer(layer)) => match new_index(&layer) {
                    Some(layer) => Producer::Layer(layer),
                    None => continue,
                },
            };
            let left = Tensor {
                from,
                to: tensor.to.iter().filter_map(new_index).collect(),
                ..*tensor
            };
            if left.is_used() {
                tensors.push(left);
                kept.push(index);
            }
        }
        let of = |layer: &usize| self.layers()[*layer].clone();
        Ok(Suffix {
            graph: Self::new(layers.iter().map(of).collect(), tensors)?,
            layers,
            tensors: kept,
        })
    }

    /// Which layers have to run again when tensors are held there.
    fn runs(&self, at: &[Option<usize>]) -> Vec<bool> {
        let mut inputs = vec![Vec::new(); self.layers().len()];
        for (index, tensor) in self.tensors().iter().enumerate() {
            for layer in &tensor.to {
                inputs[*layer].push(index);
            }
        }
        let wanted = |index: &usize| self.tensors()[*index].wanted_at.is_some();
        let mut needed: Vec<usize> = (0..self.tensors().len()).filter(wanted).collect();
        let mut runs = vec![false; self.layers().len()];
        while let Some(tensor) = needed.pop() {
            if let (None, Producer::Layer(layer)) = (at[tensor], self.tensors()[tensor].from)
                && !std::mem::replace(&mut runs[layer], true)
            {
                needed.extend(&inputs[layer]);
            }
        }
        runs
    }
}
