//! Four numbers at once: a vector where this is Wasm, an array where its tests run.

#[cfg(target_arch = "wasm32")]
pub(crate) use vector::Four;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use array::Four;

#[cfg(target_arch = "wasm32")]
mod vector {
    use core::arch::wasm32::{f32x4_add, f32x4_mul, f32x4_pmax, f32x4_splat, v128};

    #[derive(Clone, Copy)]
    pub(crate) struct Four(v128);

    impl Four {
        #[inline]
        #[target_feature(enable = "simd128")]
        pub(crate) fn splat(number: f32) -> Self {
            Self(f32x4_splat(number))
        }

        #[inline]
        #[target_feature(enable = "simd128")]
        pub(crate) fn load(numbers: &[f32; 4]) -> Self {
            Self(bytemuck::pod_read_unaligned(bytemuck::bytes_of(numbers)))
        }

        #[inline]
        #[target_feature(enable = "simd128")]
        pub(crate) fn store(self) -> [f32; 4] {
            bytemuck::cast(self.0)
        }

        #[inline]
        #[target_feature(enable = "simd128")]
        pub(crate) fn plus(self, other: Self) -> Self {
            Self(f32x4_add(self.0, other.0))
        }

        #[inline]
        #[target_feature(enable = "simd128")]
        pub(crate) fn times(self, other: Self) -> Self {
            Self(f32x4_mul(self.0, other.0))
        }

        /// The other where it is larger: what is no number stays.
        #[inline]
        #[target_feature(enable = "simd128")]
        pub(crate) fn or_larger(self, other: Self) -> Self {
            Self(f32x4_pmax(self.0, other.0))
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod array {
    #[derive(Clone, Copy)]
    pub(crate) struct Four([f32; 4]);

    impl Four {
        pub(crate) fn splat(number: f32) -> Self {
            Self([number; 4])
        }

        pub(crate) fn load(numbers: &[f32; 4]) -> Self {
            Self(*numbers)
        }

        pub(crate) fn store(self) -> [f32; 4] {
            self.0
        }

        pub(crate) fn plus(self, other: Self) -> Self {
            Self(std::array::from_fn(|lane| self.0[lane] + other.0[lane]))
        }

        pub(crate) fn times(self, other: Self) -> Self {
            Self(std::array::from_fn(|lane| self.0[lane] * other.0[lane]))
        }

        /// The other where it is larger: what is no number stays.
        pub(crate) fn or_larger(self, other: Self) -> Self {
            Self(std::array::from_fn(|lane| match self.0[lane] < other.0[lane] {
                true => other.0[lane],
                false => self.0[lane],
            }))
        }
    }
}
