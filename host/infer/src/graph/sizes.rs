//! How large everything is that a run makes, by its batch.

use super::Scaled;
use super::order::{Names, live, order};
use super::raw::Raw;
use super::shapes::Known;
use crate::outline::Outline;
use crate::screen::printable;
use crate::{InferError, ModelLimits};
use karman_types::ByteSize;

/// The bytes of each tensor that a run makes, of those whose size can be told beforehand.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    tensors: Vec<(String, Scaled)>,
    all: Scaled,
    /// The largest batch that is within the limits.
    most_items: u32,
}

impl Sizes {
    /// Those of a model whose only open dimension is the batch: the first of its inputs.
    ///
    /// # Errors
    /// Those of [`Graph::read`](super::Graph::read).
    pub(crate) fn read(file: &[u8], outline: &Outline, limits: &ModelLimits) -> Result<Self, InferError> {
        let raw = Raw::read(file)?;
        let names = Names::of(&raw, outline)?;
        let live = live(&raw, outline, &names, &order(&raw, &names)?)?;
        // Weights count there as inputs, but no run makes them.
        let with_weights = ModelLimits {
            tensor: limits.tensor.max(limits.constants),
            run: ByteSize(limits.run.0.saturating_add(limits.constants.0)),
            ..limits.clone()
        };
        let known = Known::infer(&raw, outline, &live, &with_weights, &[])?;
        let tensors: Vec<(String, Scaled)> = live
            .iter()
            .flat_map(|at| raw.nodes[*at].makes())
            .filter_map(|name| {
                let fact = known.get(name).ok()?;
                let bytes = fact.elements().times(fact.element.size() as u64);
                Some((printable(name), bytes))
            })
            .collect();
        let sizes = || tensors.iter().map(|(_, bytes)| *bytes);
        let all = sizes().fold(Scaled::default(), Scaled::plus);
        let most = sizes().map(|bytes| bytes.most(limits.tensor.0)).min();
        Ok(Self {
            all,
            most_items: all.most(limits.run.0).min(most.unwrap_or(u32::MAX)),
            tensors,
        })
    }

    /// An error where one tensor, or all that a run on so many items makes, would be larger than the limits that it was read with.
    pub(crate) fn check(&self, items: u32, limits: &ModelLimits) -> Result<(), InferError> {
        if items <= self.most_items {
            return Ok(());
        }
        for (name, bytes) in &self.tensors {
            InferError::over("tensor", limits.tensor.0, bytes.at(items), || {
                format!("`{name}` in bytes, for a batch of {items},")
            })?;
        }
        InferError::over("run", limits.run.0, self.all.at(items), || {
            format!("all that one run makes in bytes, for a batch of {items},")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo::{Architecture, Variant};

    #[test]
    fn a_batch_is_bounded_by_what_lies_between_its_inputs_and_outputs() {
        let variant = Variant {
            input: 32,
            narrower: 4,
            classes: 10,
            ..Variant::default()
        };
        let file = Architecture::Vgg16.generate(&variant);
        let limits = ModelLimits {
            tensor: ByteSize::mib(1),
            run: ByteSize::mib(2),
            ..ModelLimits::default()
        };
        let outline = Outline::read(&file, &limits).unwrap();
        let sizes = Sizes::read(&file, &outline, &limits).unwrap();
        // The first convolution makes 16 maps of 32 by 32: 64 KiB, the largest.
        assert_eq!(sizes.check(1, &limits), Ok(()));
        let over = |items| match sizes.check(items, &limits) {
            Err(InferError::Limit { limit, .. }) => Some(limit),
            _ => None,
        };
        assert_eq!([3, 16, 17].map(over), [None, Some("run"), Some("tensor")]);
        let most = sizes.most_items;
        assert_eq!([most, most + 1].map(over), [None, Some("run")]);
        assert_eq!(over(u32::MAX), Some("tensor"));
    }
}
