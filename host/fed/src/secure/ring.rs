use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The integers in which sums are taken: modulo 2^8, 2^16, … 2^64. An element travels in this many bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Ring(u8);

/// A width that no ring has.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a ring's elements have from 1 to 8 bytes, not {0}")]
pub struct WidthError(u8);

/// One loop for each width: the width is known to the compiler where elements are put together.
macro_rules! for_width {
    ($ring:expr, $function:ident($($argument:expr),*)) => {
        match $ring.0 {
            1 => $function::<1>($($argument),*),
            2 => $function::<2>($($argument),*),
            3 => $function::<3>($($argument),*),
            4 => $function::<4>($($argument),*),
            5 => $function::<5>($($argument),*),
            6 => $function::<6>($($argument),*),
            7 => $function::<7>($($argument),*),
            _ => $function::<8>($($argument),*),
        }
    };
}
impl Ring {
    /// Modulo 2^32: as many bytes as single-precision numbers take.
    pub const BITS_32: Self = Self(4);
    /// Modulo 2^64.
    pub const BITS_64: Self = Self(8);

    /// The ring whose elements have so many bytes.
    ///
    /// # Errors
    ///
    /// None or more than eight.
    pub const fn new(bytes: u8) -> Result<Self, WidthError> {
        match bytes {
            1..=8 => Ok(Self(bytes)),
            _ => Err(WidthError(bytes)),
        }
    }

    /// Bytes of an element.
    pub const fn width(self) -> usize {
        self.0 as usize
    }

    /// Its bits.
    pub const fn bits(self) -> u32 {
        self.0 as u32 * 8
    }

    /// The element that this number stands for.
    pub const fn wrap(self, number: u64) -> u64 {
        number & (u64::MAX >> (64 - self.bits()))
    }

    /// The number from the middle of the range, -2^(bits-1) up to 2^(bits-1), that an element stands for.
    pub const fn centred(self, element: u64) -> i64 {
        let shift = 64 - self.bits();
        ((element << shift) as i64) >> shift
    }

    /// Elements as they travel, little-endian.
    pub(crate) fn pack(self, elements: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(elements.len() * self.width());
        for element in elements {
            bytes.extend_from_slice(&element.to_le_bytes()[..self.width()]);
        }
        bytes
    }

    /// Adds packed elements to others.
    pub(crate) fn add_packed(self, sum: &mut [u64], bytes: &[u8]) {
        for_width!(self, add_words(sum, bytes, u64::wrapping_add));
    }

    /// Adds the mask that a key stands for: the key stream of ChaCha20 (RFC 8439) under the zero nonce, cut into elements. A key
    /// masks one vector only.
    pub fn add_mask(self, sum: &mut [u64], key: &[u8; 32]) {
        for_width!(self, stream(sum, key, u64::wrapping_add));
    }

    /// Takes it off again.
    pub(crate) fn subtract_mask(self, sum: &mut [u64], key: &[u8; 32]) {
        for_width!(self, stream(sum, key, u64::wrapping_sub));
    }
}

/// Elements whose key stream is made at once.
const PART: usize = 512;

fn stream<const WIDTH: usize>(sum: &mut [u64], key: &[u8; 32], combine: impl Fn(u64, u64) -> u64 + Copy) {
    let mut cipher = ChaCha20::new(key.into(), &Default::default());
    let mut buffer = Zeroizing::new([0; PART * 8]);
    for part in sum.chunks_mut(PART) {
        let bytes = &mut buffer[..part.len() * WIDTH];
        bytes.fill(0);
        cipher.apply_keystream(bytes);
        add_words::<WIDTH>(part, bytes, combine);
    }
}

fn add_words<const WIDTH: usize>(sum: &mut [u64], bytes: &[u8], combine: impl Fn(u64, u64) -> u64) {
    for (element, bytes) in sum.iter_mut().zip(bytes.as_chunks::<WIDTH>().0) {
        let mut word = [0; 8];
        word[..WIDTH].copy_from_slice(bytes);
        *element = combine(*element, u64::from_le_bytes(word));
    }
}

impl TryFrom<u8> for Ring {
    type Error = WidthError;

    fn try_from(bytes: u8) -> Result<Self, WidthError> {
        Self::new(bytes)
    }
}

impl From<Ring> for u8 {
    fn from(ring: Ring) -> Self {
        ring.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_comes_off_as_it_went_on() {
        for width in 1..=8 {
            let ring = Ring::new(width).unwrap();
            let plain: Vec<u64> = (0..1_300)
                .map(|n: u64| ring.wrap(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
                .collect();
            let mut sum = plain.clone();
            ring.add_mask(&mut sum, &[7; 32]);
            let masked = ring.pack(&sum);
            assert_eq!(masked.len(), plain.len() * usize::from(width));
            let mut back = vec![0; plain.len()];
            ring.add_packed(&mut back, &masked);
            assert!(
                back.iter()
                    .zip(&plain)
                    .filter(|(masked, plain)| masked == plain)
                    .count()
                    < 50
            );
            ring.subtract_mask(&mut back, &[7; 32]);
            let back: Vec<_> = back.into_iter().map(|element| ring.wrap(element)).collect();
            assert_eq!(back, plain);
        }
        assert_eq!(Ring::new(0), Err(WidthError(0)));
        assert_eq!(Ring::new(9), Err(WidthError(9)));
    }

    /// RFC 8439, appendix A.1, test vector 1: the key stream of the zero key.
    #[test]
    fn masks_are_the_key_stream_of_chacha20() {
        let mut sum = vec![0; 2];
        Ring::BITS_64.add_mask(&mut sum, &[0; 32]);
        assert_eq!(
            sum[0].to_le_bytes(),
            [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]
        );
        assert_eq!(
            sum[1].to_le_bytes(),
            [0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86, 0xbd, 0x28]
        );
    }

    #[test]
    fn elements_stand_for_signed_numbers() {
        for number in [-1_i64, 0, 1, i64::from(i32::MIN), i64::from(i32::MAX)] {
            assert_eq!(Ring::BITS_32.centred(Ring::BITS_32.wrap(number as u64)), number);
            assert_eq!(Ring::BITS_64.centred(Ring::BITS_64.wrap(number as u64)), number);
        }
    }
}
