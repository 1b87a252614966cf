//! How large everything is that a run makes, by its batch.

use super::Scaled;
use super::order::{Names, live, order};
use super::raw::Raw;
use super::shapes::{Fact, Known};
use crate::outline::Outline;
use crate::screen::printable;
use crate::{InferError, ModelLimits};
use karman_types::ByteSize;

/// The bytes of each tensor that a run makes, of those whose size can be told beforehand.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    tensors: Vec<Made>,
    /// The largest batch that is within the limits.
    most_items: u32,
    /// The largest batch whose sizes are known; none where those of any are.
    most_known: Option<u32>,
}

/// A tensor that a run makes.
#[derive(Debug)]
struct Made {
    name: String,
    /// Bytes of an element.
    size: u64,
    /// Each dimension, or a line above it.
    dims: Vec<Scaled>,
}

impl Made {
    /// Two dimensions may both grow with the batch.
    fn bytes(&self, items: u32) -> u64 {
        let dims = self.dims.iter().map(|dim| dim.at(items));
        dims.fold(self.size, u64::saturating_mul)
    }
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
        let known = Known::infer(&raw, outline, &live, &with_weights)?;
        let mut sizes = Self {
            most_known: known.over.map(|over| over - 1),
            ..Self::default()
        };
        for name in live.iter().flat_map(|at| raw.nodes[*at].makes()) {
            if let Ok(fact) = known.get(name) {
                sizes.add(name, fact, known.most);
            }
        }
        sizes.most_items = sizes.largest(limits);
        Ok(sizes)
    }

    /// A tensor of which sizes up to this batch were inferred.
    fn add(&mut self, name: &str, fact: &Fact, most: u32) {
        let largest = fact.one.iter().zip(&fact.two).zip(&fact.most);
        let largest = largest.map(|((one, two), most)| *one.max(two).max(most));
        let mut dims = Vec::with_capacity(fact.dims.len());
        for (bound, largest) in fact.bounds(most).zip(largest) {
            if bound.is_none() {
                self.most_known = Some(self.most_known.map_or(most, |known| known.min(most)));
            }
            dims.push(bound.unwrap_or_else(|| Scaled {
                fixed: largest.into(),
                per_item: 0,
            }));
        }
        self.tensors.push(Made {
            name: printable(name),
            size: fact.element.size() as u64,
            dims,
        });
    }

    /// The largest batch that is within the limits: none of the sizes falls as it grows.
    fn largest(&self, limits: &ModelLimits) -> u32 {
        (0..u32::BITS).rev().fold(0, |most, bit| {
            let larger = most | 1 << bit;
            match self.measure(larger, limits) {
                Ok(()) => larger,
                Err(_) => most,
            }
        })
    }

    /// An error where one tensor, or all that a run on so many items makes, would be larger than the limits that it was read with, or is
    /// not known.
    pub(crate) fn check(&self, items: u32, limits: &ModelLimits) -> Result<(), InferError> {
        match items <= self.most_items {
            true => Ok(()),
            false => self.measure(items, limits),
        }
    }

    fn measure(&self, items: u32, limits: &ModelLimits) -> Result<(), InferError> {
        let mut all = 0u64;
        for made in &self.tensors {
            let bytes = made.bytes(items);
            all = all.saturating_add(bytes);
            InferError::over("tensor", limits.tensor.0, bytes, || {
                format!("`{}` in bytes, for a batch of {items},", made.name)
            })?;
        }
        InferError::over("run", limits.run.0, all, || {
            format!("all that one run makes in bytes, for a batch of {items},")
        })?;
        match self.most_known {
            Some(most) if items > most => Err(InferError::Unbounded { items, most }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shapes::write_info;
    use super::*;
    use crate::Dim;
    use crate::wire::Writer;
    use crate::zoo::{Architecture, Variant};

    /// `x`, f32 [N, 4], given to these nodes, of which the last makes `y`.
    fn model(nodes: &[(&str, &[&str], &str)], constants: &[(&str, &[i64])]) -> Vec<u8> {
        let mut graph = Writer::default();
        for (op, takes, makes) in nodes {
            graph.message(1, |node| {
                takes.iter().for_each(|name| _ = node.bytes(1, name));
                node.bytes(2, makes).bytes(4, op);
            });
        }
        for (name, numbers) in constants {
            graph.message(5, |tensor| {
                let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                tensor.number(1, numbers.len() as i64).number(2, 7);
                tensor.bytes(8, name).bytes(9, raw);
            });
        }
        let dims = [Dim::Any("N".into()), Dim::Fixed(4)];
        write_info(&mut graph, 11, "x", 1, dims.into_iter());
        graph.message(12, |info| {
            info.bytes(1, "y").message(2, |of_type| {
                of_type.message(1, |tensor| _ = tensor.number(1, 1));
            });
        });
        let mut model = Writer::default();
        model.number(1, 8).bytes(7, graph.0);
        model.message(8, |set| _ = set.number(2, 17));
        model.0
    }

    fn sizes(file: &[u8], limits: &ModelLimits) -> Sizes {
        let outline = Outline::read(file, limits).unwrap();
        Sizes::read(file, &outline, limits).unwrap()
    }

    /// `x xᵀ` has as many rows as columns, and both are the batch.
    #[test]
    fn what_grows_with_the_square_of_the_batch_is_bounded() {
        let file = model(&[("Transpose", &["x"], "t"), ("MatMul", &["x", "t"], "y")], &[]);
        for tensor in [40_000, 100, 20].map(ByteSize) {
            let limits = ModelLimits {
                tensor,
                constants: ByteSize(16),
                ..ModelLimits::default()
            };
            let sizes = sizes(&file, &limits);
            let most = u32::try_from((tensor.0 / 4).isqrt())
                .unwrap()
                .min((tensor.0 / 16) as u32);
            assert_eq!(sizes.check(most, &limits), Ok(()));
            assert!(
                matches!(
                    sizes.check(most + 1, &limits),
                    Err(InferError::Limit { limit: "tensor", .. })
                ),
                "{tensor}: {sizes:?}"
            );
        }
    }

    #[test]
    fn a_batch_of_which_nothing_is_known_is_refused() {
        let limits = ModelLimits::default();
        // Every second item: no more than there are.
        let constants: [(&str, &[i64]); 4] = [("b", &[0]), ("e", &[i64::MAX]), ("a", &[0]), ("s", &[2])];
        let file = model(&[("Slice", &["x", "b", "e", "a", "s"], "y")], &constants);
        assert_eq!(sizes(&file, &limits).check(1_000_000, &limits), Ok(()));
        // The square of the batch in one dimension.
        let nodes: [(&str, &[&str], &str); 3] = [
            ("Transpose", &["x"], "t"),
            ("MatMul", &["x", "t"], "p"),
            ("Reshape", &["p", "flat"], "y"),
        ];
        let file = model(&nodes, &[("flat", &[-1])]);
        let sizes = sizes(&file, &limits);
        assert_eq!(sizes.check(7, &limits), Ok(()));
        let unbounded = InferError::Unbounded { items: 8, most: 7 };
        assert_eq!(sizes.check(8, &limits), Err(unbounded));
    }

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
