//! Numbers as bytes: eight for each, the least first.

const BYTES: usize = 8;

pub(crate) fn write(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Numbers, one after the other.
pub(crate) struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, String> {
        match bytes.len().is_multiple_of(BYTES) {
            true => Ok(Self(bytes)),
            false => Err(format!("{} bytes are no state of this policy", bytes.len())),
        }
    }

    /// The next so many.
    pub(crate) fn next<const N: usize>(&mut self) -> Result<[f64; N], String> {
        let (these, rest) = self
            .0
            .split_at_checked(N * BYTES)
            .ok_or("the state ends too early: it is of other tasks")?;
        self.0 = rest;
        let number = |n: usize| these[n * BYTES..][..BYTES].try_into().map(f64::from_le_bytes);
        let mut numbers = [0.0; N];
        for (n, to) in numbers.iter_mut().enumerate() {
            *to = number(n).map_err(|_| "the state ends too early")?;
        }
        Ok(numbers)
    }

    pub(crate) fn end(self) -> Result<(), String> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(format!("{} bytes of the state are left over", self.0.len())),
        }
    }
}
