use crate::TensorError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The size of each dimension, outermost first; none for a single value. Cheap to copy.
#[derive(Clone, Copy, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct Shape {
    rank: u8,
    // Those past the rank stay 0, so that equality is that of the dimensions.
    dims: [u32; Self::MAX_RANK],
}

impl Shape {
    /// The most dimensions: 8.
    pub const MAX_RANK: usize = 8;

    /// A shape of these dimensions.
    ///
    /// # Errors
    /// [`TensorError::Rank`] when there are more than 8.
    pub fn new(dims: &[u32]) -> Result<Self, TensorError> {
        let mut shape = Self::default();
        let rank = dims.len();
        shape
            .dims
            .get_mut(..rank)
            .ok_or(TensorError::Rank { rank })?
            .copy_from_slice(dims);
        shape.rank = rank as u8;
        Ok(shape)
    }

    /// A shape of dimensions as back-ends count them.
    ///
    /// # Errors
    /// [`TensorError::Rank`] when there are more than 8, [`TensorError::Dimension`] when one is negative or too large.
    pub fn from_dims<T: Copy + TryInto<i64>>(dims: &[T]) -> Result<Self, TensorError> {
        let mut shape = Self::new(&vec![0; dims.len().min(Self::MAX_RANK + 1)])?;
        for (axis, size) in dims.iter().enumerate() {
            let size = (*size).try_into().unwrap_or(i64::MAX);
            shape.dims[axis] = u32::try_from(size).map_err(|_| TensorError::Dimension { axis, size })?;
        }
        Ok(shape)
    }

    /// The size of each dimension.
    pub fn dims(&self) -> &[u32] {
        &self.dims[..usize::from(self.rank)]
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// The number of elements: the product of the dimensions, 1 without any. `None` past 64 bits.
    pub fn elements(&self) -> Option<u64> {
        // A zero anywhere makes it zero, whatever the others would overflow to.
        if self.dims().contains(&0) {
            return Some(0);
        }
        self.dims()
            .iter()
            .try_fold(1u64, |n, dim| n.checked_mul((*dim).into()))
    }
}

impl<const N: usize> From<[u32; N]> for Shape {
    /// Checked when compiled: more than 8 dimensions do not build.
    fn from(dims: [u32; N]) -> Self {
        const { assert!(N <= Self::MAX_RANK) };
        Self::new(&dims).expect("the rank was checked when compiled")
    }
}

impl TryFrom<Vec<u32>> for Shape {
    type Error = TensorError;

    fn try_from(dims: Vec<u32>) -> Result<Self, TensorError> {
        Self::new(&dims)
    }
}

impl From<Shape> for Vec<u32> {
    fn from(shape: Shape) -> Self {
        shape.dims().to_vec()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.dims()).finish()
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn elements_are_the_product_or_none(dims in prop::collection::vec(any::<u32>(), 0..=8)) {
            let exact = dims.iter().map(|d| u128::from(*d)).try_fold(1u128, u128::checked_mul);
            let expected = match dims.contains(&0) {
                true => Some(0),
                false => exact.and_then(|n| u64::try_from(n).ok()),
            };
            prop_assert_eq!(Shape::new(&dims).unwrap().elements(), expected);
        }

        #[test]
        fn a_shape_keeps_its_dimensions(dims in prop::collection::vec(any::<u32>(), 0..12)) {
            match Shape::new(&dims) {
                Ok(shape) => prop_assert_eq!(shape.dims(), &dims),
                Err(error) => prop_assert_eq!(error, TensorError::Rank { rank: dims.len() }),
            }
        }
    }

    #[test]
    fn dimensions_of_back_ends_are_checked() {
        assert_eq!(Shape::from_dims(&[1i64, 3]), Ok(Shape::from([1, 3])));
        assert_eq!(
            Shape::from_dims(&[1i64, -1]),
            Err(TensorError::Dimension { axis: 1, size: -1 })
        );
        assert_eq!(
            Shape::from_dims(&[u64::MAX]),
            Err(TensorError::Dimension {
                axis: 0,
                size: i64::MAX
            })
        );
        assert_eq!(Shape::from_dims(&[0usize; 9]), Err(TensorError::Rank { rank: 9 }));
    }
}
