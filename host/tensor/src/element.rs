use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What one element of a tensor is: what models and `wasi:nn` use.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    /// IEEE 754 half precision, 2 bytes.
    F16,
    /// The upper half of an `f32`, 2 bytes.
    Bf16,
    /// IEEE 754 single precision, 4 bytes.
    F32,
    /// IEEE 754 double precision, 8 bytes.
    F64,
    /// Signed, 1 byte.
    I8,
    /// Unsigned, 1 byte.
    U8,
    /// Signed, 4 bytes.
    I32,
    /// Signed, 8 bytes.
    I64,
    /// 0 or 1, 1 byte.
    Bool,
}

impl ElementType {
    /// Every element type.
    pub const ALL: [Self; 9] = [
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::I8,
        Self::U8,
        Self::I32,
        Self::I64,
        Self::Bool,
    ];

    /// Bytes of one element: 1, 2, 4 or 8.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// The name as it is written in contracts: `f32`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A Rust type that is an [`ElementType`]: the type of a view.
pub trait Element: bytemuck::CheckedBitPattern + bytemuck::NoUninit + sealed::Sealed {
    /// The element type of which a view is a slice of `Self`.
    const TYPE: ElementType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $variant:ident),*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$variant;
        }
    )*};
}

elements!(f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64, i8 => I8, u8 => U8, i32 => I32, i64 => I64, bool => Bool);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_as_wide_as_its_type() {
        fn check<T: Element>() {
            assert_eq!(size_of::<T>(), T::TYPE.size(), "{}", T::TYPE);
        }
        check::<f16>();
        check::<bf16>();
        check::<f32>();
        check::<f64>();
        check::<i8>();
        check::<u8>();
        check::<i32>();
        check::<i64>();
        check::<bool>();
    }
}
