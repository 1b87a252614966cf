use crate::{Element, ElementType, Tensor, TensorError};
use half::{bf16, f16};

impl Tensor {
    /// The same numbers as another floating-point type: f16, bf16, f32 or f64. Rounds to nearest, ties to even; what is too
    /// large becomes infinite. From f16 or bf16 to f32 nothing is lost. Shares the elements when the type is the same.
    ///
    /// # Errors
    /// [`TensorError::Element`] when one of the two types is not a floating-point one.
    pub fn to_float(&self, wanted: ElementType) -> Result<Self, TensorError> {
        if self.element() == wanted {
            return Ok(self.clone());
        }
        let mismatch = || TensorError::Element {
            is: self.element(),
            wanted,
        };
        match self.element() {
            ElementType::F16 => self.map(wanted, f16::to_f64),
            ElementType::Bf16 => self.map(wanted, bf16::to_f64),
            ElementType::F32 => self.map(wanted, |x: f32| x.into()),
            ElementType::F64 => self.map(wanted, |x: f64| x),
            _ => Err(mismatch()),
        }
    }

    /// `f64` holds every value of the four types, so each conversion rounds once.
    fn map<T: Element>(&self, wanted: ElementType, wide: impl Fn(T) -> f64) -> Result<Self, TensorError> {
        fn collect<T: Element, U: Element>(
            tensor: &Tensor,
            narrow: impl Fn(T) -> U,
        ) -> Result<Tensor, TensorError> {
            let elements: Vec<U> = tensor.view::<T>()?.iter().map(|x| narrow(*x)).collect();
            Tensor::from_slice(tensor.shape(), &elements)
        }
        match wanted {
            ElementType::F16 => collect(self, |x| f16::from_f64(wide(x))),
            ElementType::Bf16 => collect(self, |x| bf16::from_f64(wide(x))),
            ElementType::F32 => collect(self, |x| wide(x) as f32),
            ElementType::F64 => collect(self, wide),
            _ => Err(TensorError::Element {
                is: self.element(),
                wanted,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn widening_and_narrowing_again_changes_nothing(bits in prop::collection::vec(any::<u16>(), 0..64)) {
            for narrow in [ElementType::F16, ElementType::Bf16] {
                let tensor = Tensor::new(narrow, [bits.len() as u32], bytemuck::cast_slice(&bits)).unwrap();
                let wide = tensor.to_float(ElementType::F32).unwrap();
                let back = wide.to_float(narrow).unwrap();
                for (a, b) in tensor.bytes().chunks(2).zip(back.bytes().chunks(2)) {
                    let (a, b) = (f16::from_le_bytes([a[0], a[1]]), f16::from_le_bytes([b[0], b[1]]));
                    let nan = match narrow {
                        ElementType::F16 => a.is_nan() && b.is_nan(),
                        _ => bf16::from_bits(a.to_bits()).is_nan() && bf16::from_bits(b.to_bits()).is_nan(),
                    };
                    prop_assert!(nan || a.to_bits() == b.to_bits(), "{a} became {b}");
                }
            }
        }

        #[test]
        fn f16_keeps_eleven_bits(x in -60_000f32..60_000.0) {
            let tensor = Tensor::from_slice([1], &[x]).unwrap().to_float(ElementType::F16).unwrap();
            let y = tensor.to_float(ElementType::F32).unwrap().view::<f32>().unwrap()[0];
            prop_assert!((x - y).abs() <= x.abs() / 2048.0 + f32::from(f16::MIN_POSITIVE_SUBNORMAL), "{x} became {y}");
        }
    }

    #[test]
    fn whole_numbers_are_no_floats() {
        let whole = Tensor::from_slice([1], &[1i32]).unwrap();
        assert!(whole.to_float(ElementType::F32).is_err());
        let float = Tensor::from_slice([1], &[1e9f32]).unwrap();
        assert!(float.to_float(ElementType::I32).is_err());
        let half = float.to_float(ElementType::F16).unwrap();
        assert_eq!(half.view::<f16>().unwrap(), [f16::INFINITY]);
    }
}
