use crate::storage::Storage;
use crate::{Element, ElementType, Shape, TensorError};
use bytes::Bytes;

/// Elements of one type in a shape: row-major, little-endian, aligned to 64 bytes. A clone shares the elements.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tensor {
    element: ElementType,
    shape: Shape,
    data: Storage,
}

impl Tensor {
    /// The most bytes of one tensor: 1 GiB. What takes tensors from outside sets a lower bound of its own.
    pub const MAX_BYTES: usize = 1 << 30;

    /// A tensor with a copy of these bytes, which may come from anyone.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] past [`Tensor::MAX_BYTES`], [`TensorError::Length`] when the bytes are not exactly as many
    /// as the shape asks for, [`TensorError::Bool`] when a bool is neither 0 nor 1.
    pub fn new(element: ElementType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Self, TensorError> {
        let shape = shape.into();
        check(element, shape, bytes)?;
        let data = Storage::copy(bytes);
        Ok(Self { element, shape, data })
    }

    /// A tensor of these bytes, which may come from anyone. It shares them where they begin at a multiple of 64, else it copies them.
    ///
    /// # Errors
    /// Those of [`Tensor::new`].
    pub fn from_bytes(
        element: ElementType,
        shape: impl Into<Shape>,
        bytes: Bytes,
    ) -> Result<Self, TensorError> {
        let shape = shape.into();
        check(element, shape, &bytes)?;
        let data = Storage::share(bytes);
        Ok(Self { element, shape, data })
    }

    /// A tensor with a copy of these elements.
    ///
    /// # Errors
    /// Those of [`Tensor::new`].
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, elements: &[T]) -> Result<Self, TensorError> {
        Self::new(T::TYPE, shape, bytemuck::cast_slice(elements))
    }

    /// The bytes that a tensor of this type and shape has.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] past [`Tensor::MAX_BYTES`].
    pub fn bytes_of(element: ElementType, shape: Shape) -> Result<usize, TensorError> {
        shape
            .elements()
            .and_then(|n| n.checked_mul(element.size() as u64))
            .filter(|bytes| *bytes <= Self::MAX_BYTES as u64)
            .map(|bytes| bytes as usize)
            .ok_or(TensorError::TooLarge { element, shape })
    }

    /// The type of its elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The number of its elements.
    pub fn len(&self) -> usize {
        self.bytes().len() / self.element.size()
    }

    /// Whether one of its dimensions is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Its elements as bytes, little-endian.
    pub fn bytes(&self) -> &[u8] {
        self.data.as_ref()
    }

    /// Its elements as bytes, shared with it: no copy.
    pub fn to_bytes(&self) -> Bytes {
        self.data.to_bytes()
    }

    /// Its elements: no copy.
    ///
    /// # Errors
    /// [`TensorError::Element`] when they are of another type.
    pub fn view<T: Element>(&self) -> Result<&[T], TensorError> {
        if self.element != T::TYPE {
            return Err(TensorError::Element {
                is: self.element,
                wanted: T::TYPE,
            });
        }
        Ok(bytemuck::checked::cast_slice(self.bytes()))
    }
}

/// Whether these bytes are the elements of such a tensor.
fn check(element: ElementType, shape: Shape, bytes: &[u8]) -> Result<(), TensorError> {
    let expected = Tensor::bytes_of(element, shape)?;
    if bytes.len() != expected {
        return Err(TensorError::Length {
            element,
            shape,
            expected,
            given: bytes.len(),
        });
    }
    if element == ElementType::Bool
        && let Some((index, value)) = bytes.iter().enumerate().find(|(_, byte)| **byte > 1)
    {
        return Err(TensorError::Bool { index, value: *value });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn element() -> impl Strategy<Value = ElementType> {
        prop::sample::select(ElementType::ALL.to_vec())
    }

    proptest! {
        #[test]
        fn only_exactly_fitting_bytes_are_taken(
            element in element(),
            dims in prop::collection::vec(0u32..5, 0..=4),
            bytes in prop::collection::vec(0u8..2, 0..200),
        ) {
            let shape = Shape::new(&dims).unwrap();
            let fits = Tensor::bytes_of(element, shape).unwrap() == bytes.len();
            let tensor = Tensor::new(element, shape, &bytes);
            prop_assert_eq!(tensor.is_ok(), fits);
            if let Ok(tensor) = tensor {
                prop_assert_eq!(tensor.bytes(), &bytes);
                prop_assert_eq!(&tensor.to_bytes()[..], &bytes[..]);
                prop_assert_eq!(tensor.len() as u64, shape.elements().unwrap());
                prop_assert_eq!(tensor.bytes().as_ptr().align_offset(64), 0);
                // What is where it should be is shared, the rest is copied.
                let shared = Tensor::from_bytes(element, shape, tensor.to_bytes()).unwrap();
                prop_assert_eq!(&shared, &tensor);
                prop_assert!(tensor.is_empty() || shared.bytes().as_ptr() == tensor.bytes().as_ptr());
                let moved = Bytes::from([&[0], &bytes[..]].concat()).slice(1..);
                let copied = Tensor::from_bytes(element, shape, moved).unwrap();
                prop_assert_eq!(copied.bytes().as_ptr().align_offset(64), 0);
                prop_assert_eq!(&copied, &tensor);
            }
        }

        #[test]
        fn no_shape_overflows(element in element(), dims in prop::collection::vec(any::<u32>(), 0..=8)) {
            let shape = Shape::new(&dims).unwrap();
            if let Ok(bytes) = Tensor::bytes_of(element, shape) {
                prop_assert!(bytes <= Tensor::MAX_BYTES);
            }
        }

        #[test]
        fn a_view_is_what_went_in(values in prop::collection::vec(any::<i64>(), 0..50)) {
            let tensor = Tensor::from_slice([values.len() as u32], &values).unwrap();
            prop_assert_eq!(tensor.view::<i64>().unwrap(), &values);
            prop_assert!(tensor.view::<f64>().is_err());
        }
    }

    #[test]
    fn a_bool_is_0_or_1() {
        assert_eq!(
            Tensor::new(ElementType::Bool, [3], &[0, 1, 2]),
            Err(TensorError::Bool { index: 2, value: 2 })
        );
        let tensor = Tensor::new(ElementType::Bool, [2], &[0, 1]).unwrap();
        assert_eq!(tensor.view::<bool>(), Ok(&[false, true][..]));
    }

    #[test]
    fn a_single_value_has_no_dimensions() {
        assert_eq!(Tensor::from_slice([], &[7i32]).unwrap().len(), 1);
        assert!(Tensor::from_slice([0, 5], &[0i32; 0]).unwrap().is_empty());
    }
}
