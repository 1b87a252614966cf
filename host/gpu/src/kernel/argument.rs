use half::f16;

/// The contents of a buffer: 32-bit words, whatever their elements are, because that is what every device can address.
pub type Words = Vec<u32>;

/// One buffer of a kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Argument {
    /// What it is called.
    pub name: &'static str,
    /// Its length in words of 4 bytes.
    pub words: usize,
    /// Which way it goes.
    pub role: Role,
    /// What its words hold.
    pub element: Element,
}

/// Which way a buffer goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Given by the caller, only read.
    Input,
    /// Given back to the caller.
    Output,
    /// From one pass to the next.
    Scratch,
}

/// What the words of a buffer hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Element {
    /// One number of single precision.
    F32,
    /// Two of half precision, the first in the low bits.
    F16,
    /// Four signed bytes, the first in the lowest bits.
    I8,
    /// One signed integer.
    I32,
    /// One unsigned integer, or bits that only the kernel understands.
    U32,
}

impl Argument {
    pub(crate) const fn input(name: &'static str, element: Element, words: usize) -> Self {
        Self {
            name,
            words,
            role: Role::Input,
            element,
        }
    }

    pub(crate) const fn output(name: &'static str, element: Element, words: usize) -> Self {
        Self {
            name,
            words,
            role: Role::Output,
            element,
        }
    }

    pub(crate) const fn scratch(name: &'static str, words: usize) -> Self {
        Self {
            name,
            words,
            role: Role::Scratch,
            element: Element::U32,
        }
    }
}

impl Element {
    /// The elements of these words as numbers.
    pub fn numbers(self, words: &[u32]) -> Vec<f64> {
        match self {
            Self::F32 => floats(words).iter().map(|value| f64::from(*value)).collect(),
            Self::F16 => halves(words)
                .iter()
                .map(|value| f64::from(value.to_f32()))
                .collect(),
            Self::I8 => bytes(words).iter().map(|value| f64::from(*value)).collect(),
            Self::I32 => words.iter().map(|value| f64::from(value.cast_signed())).collect(),
            Self::U32 => words.iter().map(|value| f64::from(*value)).collect(),
        }
    }
}

/// Words as numbers of single precision.
pub fn floats(words: &[u32]) -> &[f32] {
    bytemuck::cast_slice(words)
}

/// The same, to be written.
pub(crate) fn floats_mut(words: &mut [u32]) -> &mut [f32] {
    bytemuck::cast_slice_mut(words)
}

/// Words as pairs of numbers of half precision.
pub fn halves(words: &[u32]) -> &[f16] {
    bytemuck::cast_slice(words)
}

/// Words as fours of signed bytes.
pub(crate) fn bytes(words: &[u32]) -> &[i8] {
    bytemuck::cast_slice(words)
}

/// Numbers of single precision as words.
pub fn f32_words(values: &[f32]) -> Words {
    bytemuck::cast_slice(values).to_vec()
}

/// Numbers rounded to half precision as words, filled up with a zero where they are odd in number.
pub fn f16_words(values: &[f32]) -> Words {
    let half = |value: Option<&f32>| u32::from(f16::from_f32(value.copied().unwrap_or_default()).to_bits());
    values
        .chunks(2)
        .map(|pair| half(pair.first()) | half(pair.get(1)) << 16)
        .collect()
}
